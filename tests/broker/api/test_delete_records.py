"""DeleteRecords, as a real Kafka answers it (with --peers), and over kills of our own broker."""

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import run_broker
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import settled, unique
from tests.broker.asks import batch, create_topic, fetch, produce
from tests.broker.raw import RawClient

E = ErrorCode
EARLIEST = -2


def topic_with(client: RawClient, *values: bytes, **configs: str) -> str:
    """Make a topic of one partition with a batch for each value."""
    name = unique("delete")
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    assert create_topic(client, name, configs=settings).error_code == E.NONE
    settled(lambda: fetch(client, name, 0))
    for value in values:
        assert produce(client, name, batch(value)).error_code == E.NONE
    return name


def delete(client: RawClient, *places: tuple[str, int, int], version: int = 2) -> list[Any]:
    """Ask for deletions of (topic, partition, offset), a topic entry each.

    Return (topic, partition, error, low watermark) of each answer.
    """
    request = DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(
                name=topic,
                partitions=(DeleteRecordsPartition(partition_index=index, offset=offset),),
            )
            for topic, index, offset in places
        ),
        timeout_ms=10_000,
    )
    answer = client.ask(DELETE_RECORDS, version, request)
    return [
        (topic.name, found.partition_index, found.error_code, found.low_watermark)
        for topic in answer.topics
        for found in topic.partitions
    ]


def outcome(client: RawClient, topic: str, offset: int, **options: Any) -> tuple[ErrorCode, int]:
    """Return error and low watermark of one deletion."""
    ((_, _, code, low_watermark),) = delete(client, (topic, 0, offset), **options)
    return ErrorCode(code), low_watermark


def log_start(client: RawClient, topic: str) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    topics = (ListOffsetsTopic(name=topic, partitions=(wanted,)),)
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    (found,) = client.ask(LIST_OFFSETS, 7, request).topics[0].partitions
    assert found.error_code == E.NONE
    return int(found.offset)


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone(either: RawClient, version: int) -> None:
    topic = topic_with(either, b"a", b"b", b"c")
    assert outcome(either, topic, 2, version=version) == (E.NONE, 2)
    assert log_start(either, topic) == 2
    gone = fetch(either, topic, 1)
    assert gone.error_code == E.OFFSET_OUT_OF_RANGE
    there = fetch(either, topic, 2)
    assert (there.error_code, there.log_start_offset, there.high_watermark) == (E.NONE, 2, 3)
    assert produce(either, topic, batch(b"d")).log_start_offset == 2


def test_an_offset_inside_a_batch_is_where_the_log_begins(either: RawClient) -> None:
    topic = topic_with(either)
    assert produce(either, topic, batch(b"a", b"b", b"c")).error_code == E.NONE
    assert outcome(either, topic, 1) == (E.NONE, 1)
    assert log_start(either, topic) == 1


def test_minus_one_deletes_everything_that_is_visible(either: RawClient) -> None:
    topic = topic_with(either, b"a", b"b")
    assert outcome(either, topic, -1) == (E.NONE, 2)
    assert log_start(either, topic) == 2
    assert produce(either, topic, batch(b"c")).base_offset == 2
    assert fetch(either, topic, 2).error_code == E.NONE


def test_an_offset_below_the_start_deletes_nothing(either: RawClient) -> None:
    topic = topic_with(either, b"a", b"b")
    assert outcome(either, topic, 2) == (E.NONE, 2)
    assert outcome(either, topic, 1) == (E.NONE, 2)
    assert outcome(either, topic, 0) == (E.NONE, 2)


@pytest.mark.parametrize("offset", [3, 2**63 - 1, -2, -(2**63)])
def test_an_offset_that_is_not_there_is_refused(either: RawClient, offset: int) -> None:
    topic = topic_with(either, b"a", b"b")
    assert outcome(either, topic, offset) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert log_start(either, topic) == 0


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", E.POLICY_VIOLATION), ("compact,delete", E.NONE), ("delete", E.NONE)],
)
def test_a_topic_that_is_only_compacted_keeps_its_records(
    either: RawClient, policy: str, code: ErrorCode
) -> None:
    topic = topic_with(either, cleanup_policy=policy)
    assert outcome(either, topic, 0) == (code, -1 if code else 0)


def test_each_partition_is_answered_once_and_the_last_offset_counts(either: RawClient) -> None:
    topic = topic_with(either, b"a", b"b")
    answers = delete(either, (topic, 0, 9), (topic, 0, 1), (topic, 7, 0), ("absent", 0, 0))
    assert sorted(answers) == sorted(
        [
            (topic, 0, E.NONE, 1),
            (topic, 7, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("absent", 0, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
    )


def test_the_records_of_the_state_topics_stay(either: RawClient) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=("g",))
    settled(lambda: either.ask(FIND_COORDINATOR, 4, request).coordinators[0])
    assert outcome(either, "__consumer_offsets", -1) == (E.INVALID_TOPIC_EXCEPTION, -1)


def test_ten_thousand_partitions_are_answered(client: RawClient) -> None:
    topic = topic_with(client, b"a")
    places = [(topic, index, -1) for index in range(10_000)]
    first, *others = delete(client, *places)
    assert first == (topic, 0, E.NONE, 1)
    assert {code for _, _, code, _ in others} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(others) == 9_999


@pytest.mark.slow
def test_what_was_deleted_stays_deleted_over_kills_and_restarts(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker:
        with RawClient(broker) as client:
            topic = topic_with(client, b"a", b"b", b"c")
            assert outcome(client, topic, 2) == (E.NONE, 2)
        broker.kill()
        broker.start()
        with RawClient(broker) as client:
            assert log_start(client, topic) == 2
            assert outcome(client, topic, -1) == (E.NONE, 3)
        broker.restart()
        with RawClient(broker) as client:
            assert log_start(client, topic) == 3
            assert produce(client, topic, batch(b"d")).base_offset == 3
