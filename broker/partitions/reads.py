"""Reads of one partition: batches with their aborted transactions, and records by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.env import Buffer
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.log import Log
from odradek.broker.storage.marking import MARKER_BYTES
from odradek.broker.storage.timestamps import (
    TimestampOffset,
    largest_timestamp,
    offset_for_timestamp,
)
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition


def check_range(log: Log, offset: int) -> None:
    """Raise KafkaError OFFSET_OUT_OF_RANGE unless `offset` is one of the log's, or its end."""
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name} has offsets {log.log_start_offset} to {log.log_end_offset}, not {offset}",
        )


async def read_batches(
    log: Log, offset: int, max_bytes: int, to_offset: int, *, read_committed: bool, min_one: bool
) -> tuple[Buffer, tuple[AbortedTxn, ...]]:
    """Return whole batches and the aborted transactions among them, from the same segments."""
    while True:
        removal_count = log.reader.removal_count
        records, end_offset = await log.read(
            offset, max_bytes, to_offset=to_offset, min_one=min_one
        )
        if not (read_committed and records):
            return records, ()
        aborted = await log.aborted(offset, end_offset)
        if removal_count == log.reader.removal_count:
            return records, aborted


async def read_for_follower(log: Log, offset: int, max_bytes: int, *, min_one: bool) -> Buffer:
    """Return whole batches, which do not end between two markers of a transaction group.

    A follower that has some of them may lead next, and its readers would see a part of the group.
    """
    end = log.log_end_offset
    records, _ = await log.read(offset, max_bytes, to_offset=end, min_one=min_one)
    missing = log.producers.markers_after(_next_offset(records)) if log.producers.has_runs else 0
    if missing:
        more_bytes = len(records) + missing * MARKER_BYTES
        records, _ = await log.read(offset, more_bytes, to_offset=end, min_one=True)
    return records


def _next_offset(records: Buffer) -> int:
    """Return the offset after whole batches; -1 without one."""
    return max((header.next_offset for header, _ in iter_batches(memoryview(records))), default=-1)


async def first_at(
    partition: Partition, timestamp_ms: int, *, read_committed: bool = False
) -> TimestampOffset | None:
    """Return the first visible record at `timestamp_ms` or later (KAFKA-5522)."""
    partition.check_available()
    end = _end_for(partition, read_committed=read_committed)
    return await offset_for_timestamp(partition.log, timestamp_ms, end, partition.decompressor)


async def largest(partition: Partition, *, read_committed: bool = False) -> TimestampOffset | None:
    """Return the first visible record with the largest timestamp. Raises KafkaError."""
    partition.check_available()
    end = _end_for(partition, read_committed=read_committed)
    return await largest_timestamp(partition.log, end, partition.decompressor)


def _end_for(partition: Partition, *, read_committed: bool) -> int:
    return partition.last_stable_offset if read_committed else partition.high_watermark
