"""kafka-python: records, reading, groups, topics."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from tests.compat.conftest import CreateTopic, wait_until_known
from tests.compat.kafka_python import consumer, deliver, poll_until, producer, read
from tests.compat.wire import stored_codecs
from tests.stories.looking import eventually

BROKER_VERSION = (4, 3)
"""What kafka-python infers from the versions of the APIs."""
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]  # in the order of their codes


def test_the_version_of_the_broker_is_inferred(bootstrap: str) -> None:
    with consumer(bootstrap) as receiver, producer(bootstrap) as sender:
        assert receiver.config["api_version"] == BROKER_VERSION
        assert sender.config["api_version"] == BROKER_VERSION


def test_an_idempotent_producer_gets_ascending_offsets(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    sent = [b"%d" % number for number in range(100)]

    with producer(bootstrap) as sender:
        answers = deliver(sender, topic, sent)

    assert [answer.offset for answer in answers] == list(range(100))
    assert [record.value for record in read(bootstrap, topic, count=100)] == sent


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_and_read_back(
    bootstrap: str, create_topic: CreateTopic, codec: str | None
) -> None:
    topic = create_topic()
    sent = [b"%d " % number * 50 for number in range(200)]

    with producer(bootstrap, compression_type=codec, linger_ms=20) as sender:
        deliver(sender, topic, sent)

    assert [record.value for record in read(bootstrap, topic, count=200)] == sent
    assert stored_codecs(bootstrap, topic) == {CODECS.index(codec)}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_stores_the_records(
    bootstrap: str, create_topic: CreateTopic, acks: int | str
) -> None:
    topic = create_topic()
    sent = [b"%d" % number for number in range(50)]

    with producer(bootstrap, enable_idempotence=False, acks=acks) as sender:
        deliver(sender, topic, sent)

    assert [record.value for record in read(bootstrap, topic, count=50)] == sent


def test_a_pattern_does_not_match_a_topic_that_is_marked_as_internal(
    odradek_address: str, unique: Callable[[str], str]
) -> None:
    prefix = unique("marked")
    with closing(KafkaAdminClient(bootstrap_servers=odradek_address)) as administrator:
        administrator.create_topics(
            [
                NewTopic(f"{prefix}-own", 1, 1, topic_configs={"odradek.internal": "true"}),
                NewTopic(f"{prefix}-orders", 1, 1),
            ]
        )

    with consumer(odradek_address, unique("group")) as receiver:
        receiver.subscribe(pattern=f"^{prefix}-.*")
        poll_until(receiver.assignment, receiver)
        assert receiver.assignment() == {TopicPartition(f"{prefix}-orders", 0)}
    with consumer(odradek_address, unique("group")) as receiver:
        receiver.subscribe([f"{prefix}-own"])
        poll_until(receiver.assignment, receiver)
        assert receiver.assignment() == {TopicPartition(f"{prefix}-own", 0)}


def test_keys_headers_and_timestamps_come_back_as_they_were(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    headers = [("trace", b"1"), ("trace", b"2"), ("empty", b"")]

    with producer(bootstrap) as sender:
        deliver(sender, topic, [b"value"], key=b"key", headers=headers, timestamp_ms=12345)
        deliver(sender, topic, [None], key=b"")

    first, second = read(bootstrap, topic, count=2)
    assert (first.key, first.value, first.timestamp) == (b"key", b"value", 12345)
    assert list(first.headers) == headers
    assert (second.key, second.value) == (b"", None)


def test_a_consumer_seeks_to_any_offset_and_finds_offsets_by_time(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    place = TopicPartition(topic, 0)
    received: list[Any] = []
    with producer(bootstrap) as sender:
        for number in range(10):
            deliver(sender, topic, [b"%d" % number], timestamp_ms=1_000 + 100 * number)

    with consumer(bootstrap) as receiver:
        receiver.assign([place])
        receiver.seek(place, 7)
        poll_until(lambda: len(received) == 3, receiver, collect=received)
        found = receiver.offsets_for_times({place: 1_350})[place]
        beyond = receiver.offsets_for_times({place: 5_000})[place]
        ends = receiver.beginning_offsets([place])[place], receiver.end_offsets([place])[place]

    assert [record.value for record in received] == [b"7", b"8", b"9"]
    assert (found.offset, found.timestamp) == (4, 1_400)
    assert beyond is None
    assert ends == (0, 10)


def test_a_too_large_record_is_refused_and_the_producer_goes_on(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(max_message_bytes="10000")
    with producer(bootstrap, enable_idempotence=False) as sender:
        with pytest.raises(MessageSizeTooLargeError):
            deliver(sender, topic, [bytes(20_000)])
        deliver(sender, topic, [b"small"])

    assert [record.value for record in read(bootstrap, topic, count=1)] == [b"small"]


def test_an_unknown_topic_is_made_when_it_is_written_to(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("auto")
    with producer(bootstrap) as sender:
        deliver(sender, topic, [b"value"])
        assert sender.partitions_for(topic) == {0, 1, 2, 3}


def test_ten_thousand_records_arrive_once_and_in_order_of_their_partition(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=4)
    with producer(bootstrap, linger_ms=5) as sender:
        deliver(sender, topic, [b"%d" % number for number in range(10_000)])

    records = read(bootstrap, topic, count=10_000, partitions=4)
    for partition in range(4):
        numbers = [int(record.value) for record in records if record.partition == partition]
        assert numbers == sorted(numbers)
    assert sorted(int(record.value) for record in records) == list(range(10_000))


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], assignor: type
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    sent = [b"%d" % number for number in range(200)]
    received: list[Any] = []
    settings = {"partition_assignment_strategy": [assignor]}

    with consumer(bootstrap, group, **settings) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == 4, first)
        with consumer(bootstrap, group, **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: _sizes(first, second) == [2, 2], first, second)
            with producer(bootstrap) as sender:
                deliver(sender, topic, sent)
            poll_until(lambda: len(received) >= 200, first, second, collect=received)
        poll_until(lambda: len(first.assignment()) == 4, first)

    assert sorted(record.value for record in received) == sorted(sent)


def test_a_static_member_comes_back_to_its_partitions(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    with consumer(bootstrap, group, group_instance_id="a") as stays:
        stays.subscribe([topic])
        with consumer(bootstrap, group, group_instance_id="b") as leaves:
            leaves.subscribe([topic])
            poll_until(lambda: _sizes(stays, leaves) == [2, 2], stays, leaves)
            before, kept = leaves.assignment(), stays.assignment()
        with consumer(bootstrap, group, group_instance_id="b") as returns:
            returns.subscribe([topic])
            poll_until(lambda: len(returns.assignment()) == 2, stays, returns)
            assert (returns.assignment(), stays.assignment()) == (before, kept)


def test_a_group_goes_on_where_it_stored_its_offset(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(), unique("group")
    place = TopicPartition(topic, 0)
    received: list[Any] = []
    with producer(bootstrap) as sender:
        deliver(sender, topic, [b"%d" % number for number in range(10)])

    with consumer(bootstrap, group) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == 1, first)
        first.commit({place: OffsetAndMetadata(5, "note", -1)})
        assert first.committed(place, metadata=True).metadata == "note"
    with consumer(bootstrap, group) as second:
        second.subscribe([topic])
        poll_until(lambda: len(received) == 5, second, collect=received)

    assert [record.value for record in received] == [b"%d" % number for number in range(5, 10)]


def test_groups_are_listed_described_and_deleted(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(partitions=2), unique("group")
    administrator = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        with consumer(bootstrap, group) as member:
            member.subscribe([topic])
            poll_until(lambda: len(member.assignment()) == 2, member)
            described = administrator.describe_groups([group])[group]
            assert described["group_state"] == "Stable"
            assert len(described["members"]) == 1
            assert "NonEmptyGroup" in str(administrator.delete_groups([group])[group])
        assert group in {found["group_id"] for found in administrator.list_groups()}
        # A member that says good-bye to a broker that stands still is not heard.
        eventually(lambda: administrator.describe_groups([group])[group]["group_state"], "Empty")
        administrator.delete_groups([group])
        assert group not in {found["group_id"] for found in administrator.list_groups()}
    finally:
        administrator.close()


def test_topics_are_created_described_grown_and_deleted(
    bootstrap: str, admin: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    asked = {topic: {"num_partitions": 2, "configs": {"retention.ms": "7"}}}
    administrator = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        administrator.create_topics(asked)
        with pytest.raises(TopicAlreadyExistsError):
            administrator.create_topics(asked)
        wait_until_known(admin, topic, 2)
        configs = administrator.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        assert configs["topic"][topic]["retention.ms"]["value"] == "7"
        administrator.create_partitions({topic: 5})
        wait_until_known(admin, topic, 5)
        assert len(administrator.describe_topics([topic])[0]["partitions"]) == 5
        assert topic in administrator.list_topics()
        administrator.delete_topics([topic])
        with pytest.raises(UnknownTopicOrPartitionError):
            administrator.delete_topics([topic])
    finally:
        administrator.close()


def _sizes(*members: Any) -> list[int]:
    return [len(member.assignment()) for member in members]
