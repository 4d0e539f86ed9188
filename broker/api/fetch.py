"""Fetch, key 1, versions 4-18.

Behaviour: record batches from each partition's offset on, as they lie in the files, up to the high
watermark, or to the last stable offset for read_committed with the aborted transactions in between,
sorted by their first offset. The first batch is returned whole even if it is larger than every
limit, so that a reader always makes progress. The answer waits for `min_bytes`, for at most
`max_wait_ms`. It does not wait if a partition has an error, or if the client has closed its side of
the connection.

High watermark, last stable offset, records and aborted transactions of a partition are taken in one
step: a second look could belong to a later state (KAFKA-9807).

Versions: 7 has sessions, of which none are kept: the answer's session id is 0, and to go on with a
session is FETCH_SESSION_ID_NOT_FOUND. 9 checks the leader epoch. 12 gives the epoch of the last
record that the reader has; if this log diverged from the reader's, the answer says at which epoch
and offset (KIP-595). 13 names topics by id. 16 names the leader in a refusal (KIP-951).

Differs from Kafka: a follower's fetch (replica id >= 0) is TOPIC_AUTHORIZATION_FAILED, as brokers
have a listener of their own. An isolation level other than 0 and 1 is INVALID_REQUEST. An answer
has at most `fetch.max.bytes`, 55 MiB unless set otherwise, but for one batch that is larger, and it
waits for `connections.max.idle.ms` at most, whatever `max_wait_ms` says. Kafka lists aborted
transactions in the order of their markers, and with OFFSET_OUT_OF_RANGE it does not say where the
log is.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio

from odradek.broker.api.context import ANSWER_ITEM_BYTES, RequestContext
from odradek.broker.api.leaders import NAMED_FOR, LeaderHints
from odradek.broker.api.offsets import (
    ISOLATION_LEVELS,
    NOT_SAID,
    READ_COMMITTED,
    check_leader_epoch,
)
from odradek.broker.partitions.partition import Partition
from odradek.broker.turns import Turns
from odradek.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
FULL_FETCH_EPOCHS: Final = frozenset({-1, 0})
"""Session epochs that do not continue a session: 0 asks for a new session, -1 for none."""
BY_ID_FROM: Final = 13
PARTITIONS_BETWEEN_YIELDS: Final = 64
READING_STEPS: Final = 3
"""The cost of looking up one partition, in steps of a turn."""
NONE_YET: Final = -1


@dataclass(slots=True)
class Reading:
    """A request for one partition, and what it has found."""

    topic_number: int
    wanted: FetchPartition
    partition: Partition | None = None
    error: KafkaError | None = None
    topic: str = ""


async def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    if request.isolation_level not in ISOLATION_LEVELS:
        return await _refused(context, request, KafkaError(ErrorCode.INVALID_REQUEST))
    turns = Turns()
    readings = []
    for reading in _readings(context, request):
        await turns.take(READING_STEPS)
        readings.append(reading)
    found = await _poll(context, request, readings, turns)
    by_topic: list[list[PartitionData]] = [[] for _ in request.topics]
    hints = LeaderHints(context)
    for reading, data in zip(readings, found, strict=True):
        await turns.take()
        if data.error_code in NAMED_FOR:
            data = _with_leader(hints, reading, data)
        by_topic[reading.topic_number].append(data)
    responses = []
    for topic, partitions in zip(request.topics, by_topic, strict=True):
        await turns.take()
        responses.append(
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(partitions)
            )
        )
    return FetchResponse(
        responses=tuple(responses),
        node_endpoints=tuple(
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port)
            for broker in hints.brokers.values()
        ),
    )


def _with_leader(hints: LeaderHints, reading: Reading, data: PartitionData) -> PartitionData:
    leader, epoch = hints.leader_and_epoch(data.error_code, reading.topic, data.partition_index)
    return replace(data, current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch))


async def _refused(
    context: RequestContext, request: FetchRequest, error: KafkaError
) -> FetchResponse:
    """Return an answer that refuses the whole request: up to version 12 in each partition, too."""
    topics = () if context.api_version >= BY_ID_FROM else request.topics
    turns = Turns()
    responses = []
    for topic in topics:
        await turns.take()
        refused = await turns.map(lambda wanted: failed(None, wanted, error), topic.partitions)
        responses.append(FetchableTopicResponse(topic=topic.topic, partitions=tuple(refused)))
    return FetchResponse(error_code=error.code, responses=tuple(responses))


def _readings(context: RequestContext, request: FetchRequest) -> Iterator[Reading]:
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    if replica_id >= 0:
        LOGGER.warning("a fetch of replica %d from client %s was refused", replica_id, context.host)
    for number, topic in enumerate(request.topics):
        name, unknown = topic.topic, None
        if context.api_version >= BY_ID_FROM:
            found = context.core.cluster.image.topic_by_id(topic.topic_id)
            if found is None:
                unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                name = found.name
        if replica_id >= 0:
            unknown = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for wanted in topic.partitions:
            reading = Reading(number, wanted, error=unknown)
            if unknown is None:
                _look_up(context, reading, name)
            yield reading


def _look_up(context: RequestContext, reading: Reading, topic: str) -> None:
    reading.topic = topic
    try:
        reading.partition = context.core.partitions.get(topic, reading.wanted.partition)
        check_leader_epoch(reading.partition, reading.wanted.current_leader_epoch)
    except KafkaError as error:
        reading.error = error


async def _poll(
    context: RequestContext, request: FetchRequest, readings: Sequence[Reading], turns: Turns
) -> list[PartitionData]:
    """Read until there is enough, or until the request's time is over."""
    max_bytes = max(0, min(request.max_bytes, context.core.config.fetch_max_bytes))
    min_bytes = min(request.min_bytes, max_bytes)
    longest_ms = context.core.config.connections_max_idle_ms
    deadline = trio.current_time() + min(max(0, request.max_wait_ms), longest_ms) / 1000
    partitions_bytes = batch_bytes = 0
    for reading in readings:
        await turns.take()
        partitions_bytes += max(0, reading.wanted.partition_max_bytes)
        if reading.partition is not None:  # one batch is given whatever the request's limits are
            batch_bytes = max(batch_bytes, reading.partition.log.config.max_message_bytes)
    items_bytes = least_bytes = len(readings) * ANSWER_ITEM_BYTES
    wanted_bytes = max(min(max_bytes, partitions_bytes), batch_bytes) + items_bytes
    is_over = False
    while True:
        with context.core.partitions.watch(
            [reading.partition for reading in readings if reading.partition is not None]
        ) as news:
            async with context.allowance.reading(wanted_bytes, least_bytes) as granted_bytes:
                room_bytes = granted_bytes - items_bytes
                fits_one = room_bytes >= batch_bytes
                found, size_bytes, is_final = await _read_all(
                    request, readings, min(max_bytes, room_bytes), min_one=fits_one
                )
                is_over = is_over or trio.current_time() >= deadline
                if is_final or is_over or size_bytes >= min_bytes:
                    context.allowance.keep(size_bytes)  # others run before the answer is built
                    return found
            least_bytes = items_bytes
            del found  # it is read again, and may be much
            with context.allowance.polling(deadline) as poll:
                if not (fits_one or size_bytes) and await _has_more(request, readings):
                    # Memory is short, and no batch fitted into what was left of it.
                    one_bytes = items_bytes + batch_bytes
                    async with context.allowance.reading(one_bytes, one_bytes):
                        least_bytes = one_bytes  # there is room now, and no checkpoint until then
                else:
                    await news.wait()
            is_over = poll.cancelled_caught


async def _has_more(request: FetchRequest, readings: Iterable[Reading]) -> bool:
    """Return True if a partition has records for the reader."""
    is_committed = request.isolation_level == READ_COMMITTED
    turns = Turns()
    for reading in readings:
        await turns.take()
        partition = reading.partition
        if partition is not None:
            end = partition.last_stable_offset if is_committed else partition.high_watermark
            if reading.wanted.fetch_offset < end:
                return True
    return False


async def _read_all(
    request: FetchRequest, readings: Sequence[Reading], max_bytes: int, *, min_one: bool
) -> tuple[list[PartitionData], int, bool]:
    """Read all partitions once. Return what was found, its size, and True if waiting is no use."""
    found = []
    total_bytes, is_final = 0, not readings
    for number, reading in enumerate(readings):
        if number % PARTITIONS_BETWEEN_YIELDS == PARTITIONS_BETWEEN_YIELDS - 1:
            await trio.lowlevel.checkpoint()
        data = await _read(
            request, reading, max_bytes - total_bytes, is_first=min_one and not total_bytes
        )
        total_bytes += len(data.records or b"")
        is_final = is_final or data.error_code != 0 or data.diverging_epoch.epoch != NONE_YET
        found.append(data)
    return found, total_bytes, is_final


async def _read(
    request: FetchRequest, reading: Reading, room_bytes: int, *, is_first: bool
) -> PartitionData:
    wanted, partition = reading.wanted, reading.partition
    try:
        if reading.error is not None:
            raise reading.error
        assert partition is not None
        parted = where_it_parted(partition, wanted)
        if parted is not None:
            return diverged(partition, wanted, parted)
        read = await partition.read(
            wanted.fetch_offset,
            max(0, min(wanted.partition_max_bytes, room_bytes)),
            read_committed=request.isolation_level == READ_COMMITTED,
            min_one=is_first,
        )
    except KafkaError as error:
        return failed(partition, wanted, error)
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=_aborted(request, read.aborted),
        records=read.records,
    )


def _aborted(
    request: FetchRequest, aborted: Sequence[tuple[int, int]]
) -> tuple[AbortedTransaction, ...] | None:
    """Return the aborted transactions; None for read_uncommitted."""
    if request.isolation_level != READ_COMMITTED:
        return None
    return tuple(
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in aborted
    )


def where_it_parted(partition: Partition, wanted: FetchPartition) -> EpochEndOffset | None:
    """Return the last epoch and offset that this log and the reader's share, if they diverged."""
    if wanted.last_fetched_epoch == NOT_SAID:
        return None
    epoch, end_offset = partition.offset_for_leader_epoch(wanted.last_fetched_epoch)
    if epoch == NOT_SAID or end_offset == NOT_SAID:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "That leader epoch is not known here.")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def diverged(partition: Partition, wanted: FetchPartition, parted: EpochEndOffset) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        diverging_epoch=parted,
        aborted_transactions=None,
        records=b"",
    )


def failed(partition: Partition | None, wanted: FetchPartition, error: KafkaError) -> PartitionData:
    """Return a partition's error with the log's start, which clients reset their position by."""
    is_known = partition is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error.code,
        high_watermark=partition.high_watermark if partition and is_known else NOT_SAID,
        last_stable_offset=partition.last_stable_offset if partition and is_known else NOT_SAID,
        log_start_offset=partition.log_start_offset if partition and is_known else NOT_SAID,
        aborted_transactions=None,
        records=b"",
    )
