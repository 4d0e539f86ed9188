"""The wait of a Fetch: read until there is enough, or until its time is over.

High watermark, last stable offset, records and aborted transactions of a partition are taken in one
step. The wait begins with a watch that is set before the reading, so that no news is missed.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import trio

from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_readings import NOT_FOUND, Reading, Source
from odradek.broker.partitions.fetch_sessions import NONE_YET
from odradek.broker.partitions.isolation import READ_COMMITTED
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.reader_epochs import NOT_SAID, where_it_parted
from odradek.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from odradek.protocol.errors import ErrorCode, KafkaError

PARTITIONS_BETWEEN_YIELDS: Final = 64


class AnswerRoom(Protocol):
    """The memory and the time that an answer may take (`broker/api/context.py`)."""

    def reading(self, max_bytes: int, least_bytes: int = 0) -> AbstractAsyncContextManager[int]: ...

    def keep(self, size_bytes: int) -> None: ...

    def polling(self, deadline: float) -> trio.CancelScope: ...

    def note_polled(self, seconds: float) -> None: ...


async def poll(
    request: FetchRequest, source: Source, allowance: AnswerRoom, config: BrokerConfig
) -> tuple[Sequence[Reading], list[PartitionData]]:
    """Read until there is enough, or until the request's time is over."""
    max_bytes = max(0, min(request.max_bytes, config.fetch_max_bytes))
    min_bytes = min(request.min_bytes, max_bytes)
    longest_ms = config.connections_max_idle_ms
    deadline = trio.current_time() + min(max(0, request.max_wait_ms), longest_ms) / 1000
    is_over = needs_batch = False
    while True:
        asked = await source.collect()
        readings, items_bytes, batch_bytes = asked.readings, asked.items_bytes, asked.batch_bytes
        least_bytes = items_bytes + batch_bytes if needs_batch else items_bytes
        wanted_bytes = max(min(max_bytes, asked.partitions_bytes), batch_bytes) + items_bytes
        with source.watch() as news:
            async with allowance.reading(wanted_bytes, least_bytes) as granted_bytes:
                room_bytes = granted_bytes - items_bytes
                fits_one = room_bytes >= batch_bytes
                found, size_bytes, is_final = await _read_all(
                    request, source, readings, min(max_bytes, room_bytes), min_one=fits_one
                )
                is_over = is_over or source.is_over or trio.current_time() >= deadline
                if is_final or is_over or size_bytes >= min_bytes:
                    allowance.keep(size_bytes)  # others run before the answer is built
                    return readings, found
            needs_batch = False
            del found  # it is read again, and may be much
            since = trio.current_time()
            with allowance.polling(deadline) as wait:
                if not (fits_one or size_bytes) and await _has_more(request, readings):
                    # Memory is short, and no batch fitted into what was left of it.
                    one_bytes = items_bytes + batch_bytes
                    async with allowance.reading(one_bytes, one_bytes):
                        needs_batch = True  # there is room now, and no checkpoint until then
                else:
                    await news.wait()
            allowance.note_polled(trio.current_time() - since)
            is_over = wait.cancelled_caught


async def _has_more(request: FetchRequest, readings: Iterable[Reading]) -> bool:
    """Return True if a partition has records for the reader."""
    is_committed = request.isolation_level == READ_COMMITTED
    turns = Turns()
    for reading in readings:
        await turns.take()
        leader = reading.leader
        if leader is not None:
            end = leader.marks.end_for(read_committed=is_committed)
            if reading.wanted.fetch_offset < end:
                return True
    return False


async def _read_all(
    request: FetchRequest,
    source: Source,
    readings: Sequence[Reading],
    max_bytes: int,
    *,
    min_one: bool,
) -> tuple[list[PartitionData], int, bool]:
    """Read all partitions once. Return what was found, its size, and True if waiting is no use."""
    found = []
    total_bytes, is_final = 0, False
    for number, reading in enumerate(readings):
        if number % PARTITIONS_BETWEEN_YIELDS == PARTITIONS_BETWEEN_YIELDS - 1:
            await trio.lowlevel.checkpoint()
        # Here and not before: the wait for memory may have been long.
        reading.ask_right(source.may_read)
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
    wanted, leader = reading.wanted, reading.leader
    try:
        if reading.error is not None:
            raise reading.error
        assert leader is not None
        parted = where_it_parted(leader, wanted)
        if parted is not None:
            return to_diverged(leader, wanted, parted)
        read = await leader.read(
            wanted.fetch_offset,
            max(0, min(wanted.partition_max_bytes, room_bytes)),
            read_committed=request.isolation_level == READ_COMMITTED,
            min_one=is_first,
        )
    except KafkaError as error:
        return to_failed(leader, wanted, error)
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=_aborted_transactions(request, read.aborted),
        records=read.records,
    )


def _aborted_transactions(
    request: FetchRequest, aborted: Sequence[tuple[int, int]]
) -> tuple[AbortedTransaction, ...] | None:
    """Return the aborted transactions; None for read_uncommitted."""
    if request.isolation_level != READ_COMMITTED:
        return None
    return tuple(
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in aborted
    )


def to_diverged(leader: Leader, wanted: FetchPartition, parted: EpochEndOffset) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=leader.marks.high_watermark,
        last_stable_offset=leader.marks.last_stable_offset,
        log_start_offset=leader.log.log_start_offset,
        diverging_epoch=parted,
        aborted_transactions=None,
        records=b"",
    )


def to_failed(leader: Leader | None, wanted: FetchPartition, error: KafkaError) -> PartitionData:
    """Return a partition's error with the log's start, which clients reset their position by."""
    is_known = leader is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error.code,
        high_watermark=leader.marks.high_watermark if leader and is_known else NOT_SAID,
        last_stable_offset=leader.marks.last_stable_offset if leader and is_known else NOT_SAID,
        log_start_offset=leader.log.log_start_offset if leader and is_known else NOT_SAID,
        aborted_transactions=() if error.code in NOT_FOUND else None,
        records=b"",
    )
