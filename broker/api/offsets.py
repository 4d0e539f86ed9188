"""ListOffsets, key 2, versions 1-11; OffsetForLeaderEpoch, key 23, versions 2-4.

Behaviour: returns the first offset at or after a timestamp. A negative timestamp stands for a
place: -1 the end (for read_committed the last stable offset), -2 the beginning, -3 the record with
the largest timestamp, -4 the beginning of what is on this broker (here the same as -2), -5 and -6
places in tiered storage, which does not exist here: offset -1. OffsetForLeaderEpoch returns the end
of a leader epoch, so that a client can detect that records it has read were truncated.

A leader that was just elected answers OFFSET_NOT_AVAILABLE (before version 5: LEADER_NOT_AVAILABLE)
until its high watermark has reached the end that its log had then (KIP-207).

A request with the replica id -2 looks into the log of any replica, whether it leads or not: the
end is then that of the log. `odradek cluster elect` compares replicas with it. OffsetForLeaderEpoch
with the node id of a broker is TOPIC_AUTHORIZATION_FAILED: followers here do not send it (KIP-595).

Versions: 2 has the isolation level; 4 checks the client's leader epoch (codes 74 and 75); -3
came with 7, -4 with 8, -5 with 9, -6 with 11: before, and for other negative timestamps,
UNSUPPORTED_VERSION for the partition.

Differs from Kafka:

- Under read_committed, ListOffsets finds no offset past the last stable offset. The end is never
  below the log's start. MAX_TIMESTAMP finds the newest record below the last stable offset; Kafka
  answers -1 if the newest record of all is in an open transaction.
"""

import logging
from enum import IntEnum
from functools import partial
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.by_time import first_at, largest
from odradek.broker.partitions.isolation import ISOLATION_LEVELS, READ_COMMITTED
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.reader_epochs import NOT_SAID, check_leader_epoch
from odradek.broker.security.rights import CLUSTER_ACTION, DESCRIBE_TOPIC
from odradek.protocol.apis.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
DEBUGGING: Final = -2
"""The replica id of a request that any replica may answer."""
NOT_AVAILABLE_FROM: Final = 5
LIST_STEPS: Final = 4
"""The cost of one partition, in steps of a turn."""


class Place(IntEnum):
    """The meanings of negative timestamps."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


SINCE: Final = {
    Place.LATEST: 0,
    Place.EARLIEST: 0,
    Place.MAX_TIMESTAMP: 7,
    Place.EARLIEST_LOCAL: 8,
    Place.LATEST_TIERED: 9,
    Place.EARLIEST_PENDING_UPLOAD: 11,
}


async def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    turns = Turns()
    counts = await turns.distinct(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    topics = []
    for topic in request.topics:
        found = []
        for wanted in topic.partitions:
            await turns.take(LIST_STEPS)
            is_repeated = counts[topic.name, wanted.partition_index] > 1
            found.append(
                await _list_offset(context, request, topic.name, wanted, is_repeated=is_repeated)
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
    return ListOffsetsResponse(topics=tuple(topics))


async def _list_offset(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    *,
    is_repeated: bool,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        context.access.check(DESCRIBE_TOPIC, topic)
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the partition twice.")
        _check_timestamp(wanted.timestamp, context.api_version)
        if request.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There is no isolation level {request.isolation_level}."
            )
        if request.replica_id == DEBUGGING and wanted.timestamp == Place.LATEST:
            return _log_end(context, topic, index)
        leader = context.core.partitions.leader(topic, index)
        check_leader_epoch(leader, wanted.current_leader_epoch)
        _check_end_is_known(leader, wanted.timestamp, context.api_version)
        read_committed = request.isolation_level == READ_COMMITTED
        timestamp, offset = await _find(leader, wanted.timestamp, read_committed=read_committed)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    epoch = NOT_SAID if offset == NOT_SAID else leader.log.epochs.at(offset)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _log_end(context: RequestContext, topic: str, index: int) -> ListOffsetsPartitionResponse:
    """Return where the log here ends, and in which leader epoch. Raises KafkaError."""
    log = context.core.partitions.get_replica(topic, index).log
    end = log.log_end_offset
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        offset=end,
        leader_epoch=log.epochs.at(end - 1) if end else NOT_SAID,
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and (timestamp not in SINCE or version < SINCE[Place(timestamp)]):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"Timestamp {timestamp} is not known in {version}."
        )


def _check_end_is_known(leader: Leader, timestamp: int, version: int) -> None:
    """Refuse to say where a log ends until a new leader knows it (KIP-207).

    The leader before may have answered with a later offset. Raises KafkaError.
    """
    is_known = leader.marks.high_watermark >= leader.view.start_offset
    if not is_known and timestamp not in (Place.EARLIEST, Place.EARLIEST_LOCAL):
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if version >= NOT_AVAILABLE_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE,
            "The new leader does not know yet which records are on all in-sync replicas.",
        )


async def _find(leader: Leader, timestamp: int, *, read_committed: bool) -> tuple[int, int]:
    """Return timestamp and offset; each is -1 if there is none."""
    end = leader.marks.end_for(read_committed=read_committed)
    start = leader.log.log_start_offset
    if timestamp == Place.LATEST:
        return NOT_SAID, max(start, end)
    if timestamp in (Place.EARLIEST, Place.EARLIEST_LOCAL):
        return NOT_SAID, start
    if timestamp in (Place.LATEST_TIERED, Place.EARLIEST_PENDING_UPLOAD):
        return NOT_SAID, NOT_SAID
    if timestamp == Place.MAX_TIMESTAMP:
        found = await largest(leader, read_committed=read_committed)
    else:
        found = await first_at(leader, timestamp, read_committed=read_committed)
    return (NOT_SAID, NOT_SAID) if found is None else (found.timestamp_ms, found.offset)


async def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    turns = Turns()
    topics = []
    is_follower = request.replica_id >= 0
    if is_follower:
        LOGGER.warning(
            "a question of replica %d about epochs from client %s was refused",
            request.replica_id,
            context.host,
        )
    sees_all = context.access.shows(CLUSTER_ACTION)
    end_in = _not_for_followers if is_follower else partial(_epoch_end, context, sees_all)
    for topic in request.topics:
        await turns.take()
        ends = await turns.map(partial(end_in, topic.topic), topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(ends)))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _not_for_followers(_topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(
        partition=wanted.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


def _epoch_end(
    context: RequestContext, sees_all: bool, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        if not sees_all:
            context.access.check(DESCRIBE_TOPIC, topic)
        leader = context.core.partitions.leader(topic, wanted.partition)
        check_leader_epoch(leader, wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = leader.log.epochs.end_offset(wanted.leader_epoch, leader.log.log_end_offset)
    return EpochEndOffset(
        partition=wanted.partition,
        error_code=ErrorCode.NONE,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


SERVED: Final = (
    ServedApi(LIST_OFFSETS, list_offsets, (Need(DESCRIBE_TOPIC),)),
    ServedApi(
        OFFSET_FOR_LEADER_EPOCH,
        offset_for_leader_epoch,
        (Need(DESCRIBE_TOPIC, "or CLUSTER_ACTION"), Need(CLUSTER_ACTION, "instead of that")),
    ),
)
