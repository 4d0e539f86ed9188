"""Commands say why nothing comes, on a real broker: ours, and with --peers Apache Kafka."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition
from tests.client.live import WAIT_MS, Run, name_of
from tests.programs import running

HURRIED = """
from odradek.broker.cli import main
from odradek.client.consuming import pin_watch
pin_watch.PATIENCE_S = 0.1
main(prog_name="odradek")
"""


class Pinned:
    """A topic with one record, and three more in a transaction that is open behind it."""

    def __init__(self, run: Run, producer: Producer) -> None:
        self.topic, self.name, self.group = name_of("topic"), name_of("id"), name_of("group")
        self.words = (
            rf"3 records of {self.topic}-0 wait behind the transaction of '{producer_id(producer)}'"
            rf"( \(worker at 127\.0\.0\.1\))?, open for [\d.]+ s, aborted in [\d.]+ s at the "
            rf"latest; `odradek txn who-pins {self.topic} --bootstrap {run.bootstrap}`"
        )
        self.sentence = re.compile(rf"{self.words}\.\n")
        with Admin(run.bootstrap) as admin:
            admin.create_topic(self.topic, partitions=2)
            admin.set_group_offsets(self.group, {TopicPartition(self.topic, 0): 1})


def producer_id(producer: Producer) -> str:
    assert producer.transactional_id is not None
    return producer.transactional_id


@pytest.fixture
def pinned(run: Run) -> Iterator[Pinned]:
    with Producer(
        run.bootstrap, transactional_id=name_of("id"), client_id="worker", max_block_ms=WAIT_MS
    ) as producer:
        found = Pinned(run, producer)
        run.said("produce", found.topic, "--partition", "0", given="first")
        with producer.transaction() as transaction:
            for value in (b"1", b"2", b"3"):
                transaction.send(found.topic, value, partition=0)
            transaction.flush()
            yield found
            transaction.abort()


def test_consume_says_at_its_end_what_it_has_not_printed(run: Run, pinned: Pinned) -> None:
    """It printed nothing and ended with 0."""
    done = run("consume", pinned.topic)
    assert (done.exit_code, done.stdout) == (0, "first\n")
    assert pinned.sentence.fullmatch(done.stderr), done.stderr
    done = run("consume", pinned.topic, "--group", pinned.group)
    assert (done.exit_code, done.stdout) == (0, "")
    assert pinned.sentence.fullmatch(done.stderr), done.stderr
    assert run("consume", pinned.topic, "--isolation", "read_uncommitted").stderr == ""
    assert run("consume", pinned.topic, "-n", "1").stderr == ""


def test_consume_says_it_while_it_follows(run: Run, pinned: Pinned) -> None:
    """It stood still without a word."""
    words = ["consume", pinned.topic, "--follow", "--from-beginning", "--bootstrap", run.bootstrap]
    with running(
        [sys.executable, "-c", HURRIED, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "first\n"
        said = process.stderr.readline()
        assert re.fullmatch(rf"{pinned.words}\n", said), said


def test_the_lag_of_a_group_is_explained(run: Run, pinned: Pinned) -> None:
    """It showed a lag of 3 that no member could ever work off."""
    said = run.said("group", "describe", pinned.group)
    assert pinned.sentence.search(said), said
    (place,) = json.loads(run.said("group", "describe", pinned.group, "--json"))["partitions"]
    assert place["lag"] == place["pin"]["records_behind"] == 3


def test_a_group_that_could_not_begin_yet_is_explained(run: Run, pinned: Pinned) -> None:
    """Without a stored offset there is no lag, and no sentence."""
    group = name_of("group")
    with Consumer(run.bootstrap, group_id=group, auto_offset_reset="latest") as consumer:
        consumer.subscribe(pinned.topic)
        while not consumer.assignment():
            consumer.poll(100)
        said = run.said("group", "describe", group)
    assert pinned.sentence.search(said), said


def test_the_two_ends_of_a_topic_are_explained(run: Run, pinned: Pinned) -> None:
    said = run.said("topic", "describe", pinned.topic)
    assert pinned.sentence.search(said), said
    described = json.loads(run.said("topic", "describe", pinned.topic, "--json"))
    first, second = described["partitions"]
    assert (first["last_stable_offset"], first["end_offset"]) == (1, 4)
    assert first["pin"]["transactional_id"].startswith("client-id-")
    assert "pin" not in second


def test_nothing_is_said_where_nothing_waits(run: Run) -> None:
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", "1")
    run.said("produce", topic, "--transactional-id", name_of("id"), given="one")
    run.said("consume", topic, "--follow", "--from-beginning", "-n", "1")
    assert run("consume", topic).stderr == ""
    assert "wait" not in run.said("topic", "describe", topic)


def test_a_transaction_on_a_terminal_says_that_it_is_open(run: Run) -> None:
    """It took lines without a word about what ends it."""
    topic, name = name_of("topic"), name_of("id")
    run.said("topic", "create", topic, "--partitions", "1")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "odradek.broker", "produce", topic, "--transactional-id", name]
    command += ["--bootstrap", run.bootstrap, "--transaction-timeout", "120"]
    with running(command, stdin=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert process.stderr.readline() == (
            f"A transaction of {name!r} is open until Ctrl-D, which commits it. Ctrl-C aborts it, "
            "and so does the broker 2 min after its first record.\n"
        )
        os.write(ours, b"one\n\x04")
        assert process.stderr.readline() == f"1 record committed to {topic}.\n"
        assert process.wait(WAIT_MS / 1000) == 0
    os.close(ours)
    assert run("produce", topic, "--transactional-id", name, given="two").stderr == (
        f"1 record committed to {topic}.\n"
    )
