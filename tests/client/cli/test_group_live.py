"""`odradek group`, on a real broker: ours, and with --peers Apache Kafka."""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.client.blocking import (
    Admin,
    Consumer,
    GroupDescription,
    GroupMemberDescription,
    Producer,
    TopicPartition,
)
from odradek.client.cli.group import _sentences
from tests.broker.group.wire import WireClient
from tests.client.live import Run, name_of
from tests.stories.looking import eventually


def topic_with(run: Run, partitions: int = 1, *timestamps_ms: int) -> str:
    """Make a topic with a record for each timestamp in partition 0."""
    topic = name_of("topic")
    run.said("topic", "create", topic, "--partitions", str(partitions))
    with Producer(run.bootstrap) as producer:
        for timestamp_ms in timestamps_ms:
            producer.send(topic, b"v", partition=0, timestamp_ms=timestamp_ms)
        producer.flush()
    return topic


def store(run: Run, group: str, topic: str, offset: int, partition: int = 0) -> None:
    with Consumer(run.bootstrap, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, partition): offset})


def assignment(topic: str, *partitions: int) -> bytes:
    name = topic.encode()
    head = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(partitions))
    return head + struct.pack(f">{len(partitions)}ii", *partitions, -1)


def subscription(topic: str) -> bytes:
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


@contextmanager
def member(run: Run, group: str, topic: str, *partitions: int) -> Iterator[Any]:
    """A consumer in the group, with these partitions."""
    with WireClient(run.bootstrap, client_id="worker-7") as client:
        client.coordinator_of(group)
        joined = client.join(group, protocols=[("range", subscription(topic))])
        joined = client.join(group, joined.member_id, protocols=[("range", subscription(topic))])
        assigned = {joined.member_id: assignment(topic, *partitions)}
        assert client.sync(group, joined, assigned).error_code == 0
        yield joined
        client.leave(group, joined.member_id)


def described(run: Run, group: str) -> Any:
    return json.loads(run.said("group", "describe", group, "--json"))


def test_groups_are_listed_with_their_states(run: Run) -> None:
    topic, empty, stable = topic_with(run), name_of("group"), name_of("group")
    store(run, empty, topic, 0)
    with member(run, stable, topic, 0):
        lines = run.said("group", "list", "--json").splitlines()
        found = {line["group"]: line for line in map(json.loads, lines)}
        assert (found[empty]["state"], found[empty]["type"]) == ("Empty", "classic")
        assert (found[stable]["state"], found[stable]["protocol_type"]) == ("Stable", "consumer")
        assert found[stable]["coordinator"] == 1
        only = run.said("group", "list", "--state", "stable", "--type", "classic").splitlines()
        names = [line.split()[0] for line in only]
        assert stable in names
        assert empty not in names
    assert run.said("group", "list", "--state", "Dead") == "There is no such group.\n"


def test_a_group_is_described_with_its_members_and_its_lag(run: Run) -> None:
    topic, group = topic_with(run, 2, 1, 2, 3), name_of("group")
    store(run, group, topic, 1)
    with member(run, group, topic, 0, 1) as joined:
        found = described(run, group)
        assert (found["state"], found["protocol"], found["lag"]) == ("Stable", "range", 2)
        assert found["partitions"] == [
            {"topic": topic, "partition": 0, "offset": 1, "end": 3, "lag": 2},
            {"topic": topic, "partition": 1, "offset": None, "end": 0, "lag": None},
        ]
        (one,) = found["members"]
        assert (one["member"], one["client_id"]) == (joined.member_id, "worker-7")
        assert one["client_host"] == "127.0.0.1"
        assert [place["partition"] for place in one["partitions"]] == [0, 1]
        head, columns, *rows = run.said("group", "describe", group).splitlines()
        assert head.startswith(f"{group}  Stable (classic, range), 1 member, coordinator 1")
        assert columns.split() == ["topic", "partition", "offset", "end", "lag", "member"]
        assert rows[0].split() == [topic, "0", "1", "3", "2", "worker-7", "at", "127.0.0.1"]
        assert rows[1].split()[:5] == [topic, "1", "-", "0", "-"]


def test_a_group_of_the_new_protocol_is_described_and_is_not_reset_with_members(run: Run) -> None:
    topic, group = topic_with(run, 2, 1, 2, 3), name_of("group")
    with Consumer(
        run.bootstrap, group_id=group, group_protocol="consumer", client_id="worker-8"
    ) as consumer:
        consumer.subscribe(topic)
        eventually(lambda: (consumer.poll(50), len(consumer.assignment()))[1], 2)
        consumer.commit({TopicPartition(topic, 0): 1})
        eventually(lambda: described(run, group)["state"], "Stable")
        found = described(run, group)
        assert (found["type"], found["protocol"], found["lag"]) == ("consumer", "uniform", 2)
        assert found["epoch"] == found["assignment_epoch"] >= 1
        (one,) = found["members"]
        assert (one["client_id"], one["epoch"]) == ("worker-8", found["epoch"])
        assert one["partitions"] == one["target"]
        assert [place["partition"] for place in one["target"]] == [0, 1]
        head, columns, *rows = run.said("group", "describe", group).splitlines()
        assert head == (
            f"{group}  Stable (consumer, uniform), 1 member, coordinator 1, "
            f"epoch {found['epoch']}, 2 records behind"
        )
        assert columns.split()[-1] == "member"
        assert rows[0].split() == [topic, "0", "1", "3", "2", "worker-8", "at", "127.0.0.1"]
        assert len(rows) == 2
        for command in (("reset", "--to-earliest", "--yes"), ("delete", "--yes")):
            refused = run("group", command[0], group, *command[1:])
            assert refused.exit_code == 1
            assert "first" in refused.output
            assert "members" in refused.output


def test_a_member_that_has_not_reached_its_target_is_described_in_sentences() -> None:
    member = GroupMemberDescription(
        member_id="a",
        group_instance_id=None,
        client_id="reader",
        client_host="host",
        partitions=(TopicPartition("t", 0), TopicPartition("t", 1)),
        target=(TopicPartition("t", 1), TopicPartition("t", 2)),
        member_epoch=3,
    )
    found = GroupDescription(
        group_id="g",
        coordinator_id=1,
        state="Reconciling",
        protocol_type="consumer",
        protocol="uniform",
        members=(member,),
        group_type="consumer",
        group_epoch=4,
        assignment_epoch=4,
    )
    assert _sentences(member, found) == [
        "has to give up t-0.",
        "is to get t-2.",
        "is in epoch 3.",
    ]


def test_a_group_of_a_deleted_topic_is_described(run: Run) -> None:
    topic, other, group = topic_with(run), topic_with(run), name_of("group")
    store(run, group, other, 0)
    with member(run, group, topic, 0):
        run.said("topic", "delete", topic)
        found = described(run, group)
        ends = {each["topic"]: each["end"] for each in found["partitions"]}
        assert ends[other] == 0
        assert ends.get(topic) is None


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [
        (("--to-earliest",), 1),
        (("--to-latest",), 4),
        (("--to-offset", "3"), 3),
        (("--to-offset", "0"), 1),
        (("--to-offset", "99"), 4),
        (("--to-time", "3000"), 2),
        (("--to-time", "1970-01-01T00:00:04Z"), 3),
        (("--to-time", "2100-01-01"), 4),
        (("--shift", "1"), 3),
        (("--shift", "-1"), 1),
        (("--shift", "-99"), 1),
    ],
)
def test_a_group_is_reset_once_it_was_shown(
    run: Run, arguments: tuple[str, ...], offset: int
) -> None:
    topic, group = topic_with(run, 1, 1_000, 2_000, 3_000, 4_000), name_of("group")
    run.said("topic", "delete-records", topic, "--before", "1", "--yes")
    store(run, group, topic, 2)
    shown = json.loads(run.said("group", "reset", group, *arguments, "--dry-run", "--json"))
    assert (shown["offset"], shown["new_offset"]) == (2, offset)
    assert described(run, group)["partitions"][0]["offset"] == 2
    head, row = run.said("group", "reset", group, *arguments, "--yes").splitlines()
    assert head.split() == ["topic", "partition", "offset", "new", "offset"]
    assert row.split() == [topic, "0", "2", str(offset)]
    assert described(run, group)["partitions"][0]["offset"] == offset


def test_a_group_is_reset_in_topics_that_it_has_not_read(run: Run) -> None:
    topic, group = topic_with(run, 3, 1, 2), name_of("group")
    assert "--topic" in run("group", "reset", group, "--to-latest").stderr
    run.said("group", "reset", group, "--to-latest", "--topic", f"{topic}:0,2", "--yes")
    offsets = {each["partition"]: each["offset"] for each in described(run, group)["partitions"]}
    assert offsets == {0: 2, 2: 0}
    run.said("group", "reset", group, "--to-earliest", "--topic", topic, "--yes")
    offsets = {each["partition"]: each["offset"] for each in described(run, group)["partitions"]}
    assert offsets == {0: 0, 1: 0, 2: 0}
    unshifted = run("group", "reset", name_of("group"), "--shift", "1", "--topic", topic)
    assert "no offset" in unshifted.stderr


def test_a_group_with_members_is_neither_reset_nor_deleted(run: Run) -> None:
    topic, group = topic_with(run, 1, 1), name_of("group")
    store(run, group, topic, 1)
    with member(run, group, topic, 0):
        for command in (("reset", group, "--to-earliest"), ("delete", group)):
            result = run("group", *command, "--yes")
            assert result.exit_code == 1
            assert "stop" in result.stderr
        subscribed = run("group", "delete", group, "--topic", topic, "--yes")
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in subscribed.stderr
        assert described(run, group)["partitions"][0]["offset"] == 1


def test_groups_and_offsets_are_deleted(run: Run) -> None:
    topic, other, group = topic_with(run, 2), topic_with(run), name_of("group")
    for name, partition in ((topic, 0), (topic, 1), (other, 0)):
        store(run, group, name, 0, partition)
    run.said("group", "delete", group, "--topic", f"{topic}:1", "--topic", other, "--yes")
    left = [(each["topic"], each["partition"]) for each in described(run, group)["partitions"]]
    assert left == [(topic, 0)]
    run.said("group", "delete", group, "--yes")
    with Admin(run.bootstrap) as admin:
        assert group not in [listing.group_id for listing in admin.list_groups()]
    for command in (("delete", group, "--yes"), ("describe", group)):
        result = run("group", *command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"no group '{group}'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--state", "Stabel"), "'stable', 'preparingrebalance'"),
        (("list", "--type", "clasic"), "'classic', 'consumer'"),
        (("reset", "g"), "Give one of"),
        (("reset", "g", "--to-earliest", "--to-latest"), "Give one of"),
        (("reset", "g", "--to-time", "yesterday"), "is not a time"),
        (("reset", "g", "--to-earliest", "--topic", "t:x"), "TOPIC:PARTITION"),
        (("reset", "g", "--to-offset", "-1"), "range"),
        (("reset", "g", "--to-earliest", "--topic", "absent-topic"), "no topic"),
        (("delete", "g", "--topic", "absent-topic"), "no topic"),
    ],
)
def test_mistakes_are_told_in_a_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run("group", *arguments)
    assert result.exit_code in (1, 2), result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_group_that_does_not_exist_hides_no_other_that_is_described_with_it(run: Run) -> None:
    topic, group = topic_with(run, 1, 1_000), name_of("group")
    store(run, group, topic, 1)
    result = run("group", "describe", "absent-1", group, "absent-2")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{group}  Empty")
    assert result.stderr == ("Error: There is no group 'absent-1'; there is no group 'absent-2'.\n")


def test_groups_are_listed_by_state_and_type_in_any_case(run: Run) -> None:
    topic, group = topic_with(run, 1), name_of("group")
    store(run, group, topic, 0)
    assert group in run.said("group", "list", "--state", "EMPTY", "--type", "Classic")
    assert group not in run.said("group", "list", "--state", "stable")
