"""`odradek consume --group`, on a real broker: ours, and with --peers Apache Kafka."""

import json
import signal
import subprocess
import sys

import pytest

from odradek.client.blocking import Consumer, TopicPartition
from tests.client.live import WAIT_MS, Run, name_of
from tests.programs import running


def topic_with(run: Run, *values: str) -> str:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, given="\n".join(values))
    return topic


def place_of(run: Run, group: str) -> tuple[int, int]:
    """The offset of a group in its only partition, and how far it is behind."""
    (place,) = json.loads(run.said("group", "describe", group, "--json"))["partitions"]
    return place["offset"], place["lag"]


@pytest.mark.slow
def test_a_group_is_shown_each_record_once(run: Run) -> None:
    topic, group = topic_with(run, "one", "two", "three"), name_of("group")
    assert run.said("consume", topic, "--group", group, "-n", "2") == "one\ntwo\n"
    assert place_of(run, group) == (2, 1)  # nothing of what was read and not shown
    assert run.said("consume", topic, "--group", group) == "three\n"
    assert run.said("consume", topic, "--group", group) == ""
    run.said("produce", topic, given="four")
    assert run.said("consume", topic, "--group", group, "--follow", "-n", "1") == "four\n"


def test_a_group_that_has_read_all_of_a_transaction_is_not_behind(run: Run) -> None:
    """The marker has an offset, too."""
    topic, group = topic_with(run), name_of("group")
    run.said("produce", topic, "--transactional-id", name_of("id"), given="one\ntwo")
    assert run.said("consume", topic, "--group", group) == "one\ntwo\n"
    assert place_of(run, group) == (3, 0)


@pytest.mark.slow
def test_a_member_that_gets_no_partition_says_who_has_them(run: Run) -> None:
    topic, group = topic_with(run, "one"), name_of("group")
    with Consumer(run.bootstrap, group_id=group) as owner:
        owner.subscribe(topic)
        assert [record.value for record in owner.poll(WAIT_MS)] == [b"one"]
        idle = run("consume", topic, "--group", group, "--timeout", "3")
        assert idle.exit_code == 1
        assert f"no partition of {topic} within 3 s" in idle.stderr
        owner.commit()
        assert owner.assignment() == [TopicPartition(topic, 0)]
    assert place_of(run, group) == (1, 0)


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_lets_a_reader_leave_its_group(
    run: Run, sent: signal.Signals, status: int
) -> None:
    """SIGTERM killed it, as `timeout` and systemd send it, and nothing was read for 45 seconds.

    So did SIGHUP, when the terminal was closed.
    """
    topic, group = topic_with(run, "one"), name_of("group")
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from odradek.broker.cli import main; main(prog_name='odradek')\n"
    )
    words = ["consume", topic, "--group", group, "--follow", "--bootstrap", run.bootstrap]
    with running([sys.executable, "-c", code, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.send_signal(sent)
        assert process.wait(WAIT_MS / 1000) == status
    assert json.loads(run.said("group", "describe", group, "--json"))["members"] == []
