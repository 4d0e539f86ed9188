"""Reading for a Fetch: what is asked, the wait for enough of it, and what is found.

The first part of a fetch gets the partitions and what the answer may hold from a *source*: a fetch
that lists everything (`WholeFetch`), or a session (`SessionFetch`), whose source names the
partitions that are ready each time before they are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import trio

from odradek.broker.api.context import ANSWER_ITEM_BYTES, RequestContext
from odradek.broker.api.offsets import NOT_SAID, READ_COMMITTED, check_leader_epoch
from odradek.broker.partitions.fetch_sessions import FetchSession, SessionPlace, next_epoch
from odradek.broker.partitions.partition import Partition
from odradek.broker.turns import Turns
from odradek.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

PARTITIONS_BETWEEN_YIELDS: Final = 64
READING_STEPS: Final = 3
"""The cost of looking up one partition, in steps of a turn."""
NONE_YET: Final = -1
NOT_FOUND: Final[Mapping[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_ID: 1,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 2,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
}
"""The errors for which a partition is not read, in the order in which an answer has them."""


@dataclass(slots=True)
class Reading:
    """A request for one partition, and what it has found."""

    topic_number: int
    wanted: FetchPartition
    partition: Partition | None = None
    error: KafkaError | None = None
    topic: str = ""
    place: SessionPlace | None = None
    """Where it is in the session; None without one."""
    was_there: bool = True
    """False if it was not found when the fetch began."""

    def look_up(self, context: RequestContext, topic: str, topic_id: UUID) -> None:
        """Find the partition. `topic_id` is zero for a client that names its topics."""
        self.topic = topic
        try:
            found = context.core.partitions.get(topic, self.wanted.partition)
            self.partition = found
            if topic_id != ZERO_UUID and found.topic_id != topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            # Any negative epoch is none; in other requests only -1 is.
            check_leader_epoch(found, max(NOT_SAID, self.wanted.current_leader_epoch))
        except KafkaError as error:
            self.error = error

    @property
    def is_found(self) -> bool:
        return self.error is None or self.error.code not in NOT_FOUND


@dataclass(frozen=True, slots=True)
class Asked:
    """The partitions that a fetch reads now, and the bytes that it may return."""

    readings: Sequence[Reading]
    partitions_bytes: int = 0
    batch_bytes: int = 0
    """One batch is returned whatever the request's limits are; this is the largest one."""
    found_count: int = 0

    @property
    def items_bytes(self) -> int:
        return len(self.readings) * ANSWER_ITEM_BYTES


async def asked_of(readings: Sequence[Reading], turns: Turns) -> Asked:
    partitions_bytes = batch_bytes = found_count = 0
    for reading in readings:
        await turns.take()
        found_count += reading.is_found
        partitions_bytes += max(0, reading.wanted.partition_max_bytes)
        if reading.partition is not None:
            batch_bytes = max(batch_bytes, reading.partition.log.config.max_message_bytes)
    return Asked(readings, partitions_bytes, batch_bytes, found_count)


class Awaited(Protocol):
    """Returned by `Source.watch`."""

    async def wait(self) -> None: ...


class Source(Protocol):
    """The partitions of one fetch, and their news."""

    @property
    def is_over(self) -> bool:
        """True if there is no use in waiting."""
        ...

    async def asked(self) -> Asked:
        """Return what is to be read now."""
        ...

    def watch(self) -> AbstractContextManager[Awaited]:
        """Enter with what waits for news since the last `asked`."""
        ...


class WholeFetch:
    """A fetch that lists everything. Its partitions are looked up once."""

    def __init__(self, context: RequestContext, asked: Asked) -> None:
        self._context = context
        self._asked = asked

    @property
    def is_over(self) -> bool:
        return not self._asked.found_count

    async def asked(self) -> Asked:
        return self._asked

    def watch(self) -> AbstractContextManager[Awaited]:
        return self._context.core.partitions.watch(
            [reading.partition for reading in self._asked.readings if reading.partition is not None]
        )


class SessionFetch:
    """An incremental fetch: the partitions that are ready, looked up each time."""

    def __init__(
        self,
        context: RequestContext,
        session: FetchSession,
        request: FetchRequest,
        *,
        refuses: bool,
    ) -> None:
        """`refuses` is true for a client that asks as a follower."""
        self._context = context
        self._session = session
        self._epoch = next_epoch(request.session_epoch)
        self._refuses = refuses
        self._news = session.watch_news()
        self._not_found: frozenset[SessionPlace] | None = None
        """The partitions that were not found when the fetch began."""

    @property
    def is_over(self) -> bool:
        """True if the session has ended, goes on with a later fetch, or has nothing to read."""
        if self._session.is_ended or self._session.epoch != self._epoch:
            return True
        return len(self._not_found or ()) == len(self._session.places)

    async def asked(self) -> Asked:
        self._news = self._session.watch_news()
        turns = Turns()
        readings = []
        for place in self._session.in_turn():
            await turns.take(READING_STEPS)
            readings.append(self._reading(place))
        if self._not_found is None:
            self._not_found = frozenset(
                reading.place
                for reading in readings
                if reading.place is not None and not reading.is_found
            )
        for reading in readings:
            await turns.take()
            reading.was_there = reading.place not in self._not_found
        return await asked_of(readings, turns)

    def _reading(self, place: SessionPlace) -> Reading:
        reading = Reading(0, place.wanted, place=place)
        if self._session.by_id and not place.topic:
            topic = self._context.core.cluster.image.topic_by_id(place.topic_id)
            place.topic = "" if topic is None else topic.name
        if self._refuses:
            reading.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif self._session.by_id and not place.topic:
            reading.error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            reading.look_up(self._context, place.topic, place.topic_id)
        place.watch(reading.partition)
        return reading

    def watch(self) -> AbstractContextManager[Awaited]:
        return nullcontext(self._news)


async def poll(
    context: RequestContext, request: FetchRequest, source: Source
) -> tuple[Sequence[Reading], list[PartitionData]]:
    """Read until there is enough, or until the request's time is over."""
    max_bytes = max(0, min(request.max_bytes, context.core.config.fetch_max_bytes))
    min_bytes = min(request.min_bytes, max_bytes)
    longest_ms = context.core.config.connections_max_idle_ms
    deadline = trio.current_time() + min(max(0, request.max_wait_ms), longest_ms) / 1000
    is_over = needs_batch = False
    while True:
        asked = await source.asked()
        readings, items_bytes, batch_bytes = asked.readings, asked.items_bytes, asked.batch_bytes
        least_bytes = items_bytes + batch_bytes if needs_batch else items_bytes
        wanted_bytes = max(min(max_bytes, asked.partitions_bytes), batch_bytes) + items_bytes
        with source.watch() as news:
            async with context.allowance.reading(wanted_bytes, least_bytes) as granted_bytes:
                room_bytes = granted_bytes - items_bytes
                fits_one = room_bytes >= batch_bytes
                found, size_bytes, is_final = await _read_all(
                    request, readings, min(max_bytes, room_bytes), min_one=fits_one
                )
                is_over = is_over or source.is_over or trio.current_time() >= deadline
                if is_final or is_over or size_bytes >= min_bytes:
                    context.allowance.keep(size_bytes)  # others run before the answer is built
                    return readings, found
            needs_batch = False
            del found  # it is read again, and may be much
            with context.allowance.polling(deadline) as wait:
                if not (fits_one or size_bytes) and await _has_more(request, readings):
                    # Memory is short, and no batch fitted into what was left of it.
                    one_bytes = items_bytes + batch_bytes
                    async with context.allowance.reading(one_bytes, one_bytes):
                        needs_batch = True  # there is room now, and no checkpoint until then
                else:
                    await news.wait()
            is_over = wait.cancelled_caught


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
    total_bytes, is_final = 0, False
    for number, reading in enumerate(readings):
        if number % PARTITIONS_BETWEEN_YIELDS == PARTITIONS_BETWEEN_YIELDS - 1:
            await trio.lowlevel.checkpoint()
        data = await _read(
            request, reading, max_bytes - total_bytes, is_first=min_one and not total_bytes
        )
        total_bytes += len(data.records or b"")
        is_final = is_final or _ends_wait(reading, data)
        found.append(data)
    return found, total_bytes, is_final


def _ends_wait(reading: Reading, data: PartitionData) -> bool:
    """Return True if the client should have the answer now.

    A client may go on fetching what does not exist. Each fetch would be answered at once.
    """
    if data.error_code == ErrorCode.NONE:
        return data.diverging_epoch.epoch != NONE_YET
    return reading.was_there


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
    if wanted.last_fetched_epoch <= NOT_SAID:
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
        aborted_transactions=() if error.code in NOT_FOUND else None,
        records=b"",
    )
