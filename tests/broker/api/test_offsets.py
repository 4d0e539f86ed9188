"""ListOffsets and OffsetForLeaderEpoch."""

import uuid
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, create_topic, produce, topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode


@pytest.fixture
def topic(client: RawClient) -> str:
    """Six records with times 100, 100, 300, 300, 200, 200."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(client, name)
    for timestamp_ms in (100, 300, 200):
        produce(client, name, batch(b"a", b"b", timestamp_ms=timestamp_ms))
    return name


def list_offset(
    client: RawClient,
    topic: str,
    timestamp: int,
    *,
    version: int = 11,
    epoch: int = -1,
    count: int = 1,
    isolation_level: int = 0,
) -> Any:
    wanted = ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=(ListOffsetsTopic(name=topic, partitions=(wanted,) * count),),
    )
    return client.ask(LIST_OFFSETS, version, request).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp", "found"), [(-1, (-1, 6)), (-2, (-1, 0)), (150, (300, 2)), (301, (-1, -1))]
)
def test_offsets_are_found_by_time_in_every_version(
    client: RawClient, topic: str, version: int, timestamp: int, found: tuple[int, int]
) -> None:
    answer = list_offset(client, topic, timestamp, version=version)
    assert answer.error_code == E.NONE
    assert (answer.timestamp, answer.offset) == found


@pytest.mark.parametrize(
    ("timestamp", "since", "found"),
    [(-3, 7, (300, 2)), (-4, 8, (-1, 0)), (-5, 9, (-1, -1)), (-6, 11, (-1, -1))],
)
def test_places_came_with_versions(
    client: RawClient, topic: str, timestamp: int, since: int, found: tuple[int, int]
) -> None:
    answer = list_offset(client, topic, timestamp, version=since)
    assert (answer.error_code, answer.timestamp, answer.offset) == (E.NONE, *found)
    older = list_offset(client, topic, timestamp, version=since - 1)
    assert older.error_code == E.UNSUPPORTED_VERSION


def test_a_place_that_there_is_none_of_is_unsupported(client: RawClient, topic: str) -> None:
    assert list_offset(client, topic, -7).error_code == E.UNSUPPORTED_VERSION


def test_a_partition_named_twice_is_refused(client: RawClient, topic: str) -> None:
    assert list_offset(client, topic, -1, count=2).error_code == E.INVALID_REQUEST


def test_an_unknown_topic_is_unknown(client: RawClient) -> None:
    assert list_offset(client, "nowhere", -1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_the_leader_epoch_is_checked_and_told(
    client: RawClient, topic: str, shared_broker: RunningBroker
) -> None:
    epoch = topic_metadata(client, topic).partitions[0].leader_epoch
    assert list_offset(client, topic, -1, epoch=epoch).leader_epoch == epoch
    assert list_offset(client, topic, -1, epoch=epoch + 1).error_code == E.UNKNOWN_LEADER_EPOCH
    shared_broker.restart()
    with RawClient(shared_broker) as after:
        assert list_offset(after, topic, -1, epoch=epoch).error_code == E.FENCED_LEADER_EPOCH
        produce(after, topic, batch(b"x"))
        assert list_offset(after, topic, -2).leader_epoch == epoch
        assert list_offset(after, topic, -1).leader_epoch == epoch + 1

        def end_of(wanted_epoch: int, *, version: int = 4, current: int = -1) -> Any:
            partition = OffsetForLeaderPartition(
                partition=0, leader_epoch=wanted_epoch, current_leader_epoch=current
            )
            request = OffsetForLeaderEpochRequest(
                topics=(OffsetForLeaderTopic(topic=topic, partitions=(partition,)),)
            )
            answer = after.ask(OFFSET_FOR_LEADER_EPOCH, version, request)
            return answer.topics[0].partitions[0]

        for version in (2, 3, 4):
            old, new = end_of(epoch, version=version), end_of(epoch + 1, version=version)
            assert (old.leader_epoch, old.end_offset) == (epoch, 6)
            assert (new.leader_epoch, new.end_offset) == (epoch + 1, 7)
        unknown = end_of(epoch + 5)
        assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (E.NONE, -1, -1)
        assert end_of(epoch, current=epoch).error_code == E.FENCED_LEADER_EPOCH
        assert end_of(epoch, current=epoch + 2).error_code == E.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("replica_id", "code"), [(-2, E.NONE), (-1, E.NONE), (2, E.TOPIC_AUTHORIZATION_FAILED)]
)
def test_the_end_of_an_epoch_is_for_clients(
    client: RawClient, topic: str, replica_id: int, code: ErrorCode
) -> None:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=replica_id,
        topics=(OffsetForLeaderTopic(topic=topic, partitions=(partition,)),),
    )
    answer = client.ask(OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
    assert answer.error_code == code
    assert (answer.end_offset < 0) == (code != E.NONE)


@pytest.mark.parametrize("version", range(2, 12))
def test_an_isolation_level_that_there_is_none_of_is_refused(
    client: RawClient, topic: str, version: int
) -> None:
    """It was taken for read_uncommitted."""
    answer = list_offset(client, topic, -1, version=version, isolation_level=7)
    assert answer.error_code == E.INVALID_REQUEST
