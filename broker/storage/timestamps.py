"""Timestamp look-ups for ListOffsets: the first record at or after a time, the largest timestamp.

The time index gives a starting point. From there the look-up reads batch headers, and decodes the
records of the one batch that has the record. Besides this, the broker decodes records only for
compacted topics.

If a segment is deleted or replaced during a look-up, the look-up starts again.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from odradek.broker.environment.turns import Turns
from odradek.broker.storage.config import INT64_MAX
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.log import Log
from odradek.broker.storage.scan import batches
from odradek.broker.storage.segment import NO_TIMESTAMP
from odradek.late import dataclass
from odradek.protocol.batch import MAGIC, BatchHeader, TimestampType, crc_is_good
from odradek.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampOffset:
    """The timestamp and the offset of a record."""

    timestamp_ms: int
    offset: int


async def offset_for_timestamp(
    log: Log, timestamp_ms: int, to_offset: int, decompressor: Decompressor
) -> TimestampOffset | None:
    """Return the first record at `timestamp_ms` or later below `to_offset`, or None.

    Raises KafkaError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
    """
    return await _undisturbed(log, lambda: _first_at(log, timestamp_ms, to_offset, decompressor))


async def largest_timestamp(
    log: Log, to_offset: int, decompressor: Decompressor
) -> TimestampOffset | None:
    """Return the first record with the largest timestamp below `to_offset`, or None.

    If no record has a timestamp, it is the first record without one, as in Kafka. Raises KafkaError
    KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
    """
    return await _undisturbed(log, lambda: _first_of_largest(log, to_offset, decompressor))


async def _undisturbed(
    log: Log, look_up: Callable[[], Awaitable[TimestampOffset | None]]
) -> TimestampOffset | None:
    """Repeat `look_up` until no segment was removed during it."""
    reader = log.reader
    while True:
        removal_count = reader.removal_count
        try:
            found = await look_up()
        except KafkaError:
            # The segment may have been removed during the look-up: then the error is no answer.
            if reader.is_closed or removal_count == reader.removal_count:
                raise
            continue
        if reader.is_closed or removal_count == reader.removal_count:
            return found


async def _first_at(
    log: Log, timestamp_ms: int, to_offset: int, decompressor: Decompressor
) -> TimestampOffset | None:
    for segment in list(log.segments):
        if segment.base_offset >= to_offset:
            return None
        if segment.largest_timestamp < timestamp_ms:
            continue
        times = await log.reader.times_of(segment)
        # `to_offset` is the last stable offset for a read_committed consumer: a record above it is
        # no answer yet (KAFKA-5522).
        start = max(times.before(timestamp_ms), log.log_start_offset)
        end = min(segment.next_offset, to_offset)
        async with aclosing(batches(log, start, end)) as walked:
            async for header, batch in walked:
                if header.max_timestamp < timestamp_ms:
                    continue
                # The record that had the largest timestamp may be gone: compaction keeps the batch.
                # The search then goes on in the next batch.
                found = await _first_in(
                    header, batch, timestamp_ms, log.log_start_offset, decompressor
                )
                if found is not None:
                    return found
    return None


async def _first_of_largest(
    log: Log, to_offset: int, decompressor: Decompressor
) -> TimestampOffset | None:
    largest = NO_TIMESTAMP
    for segment in list(log.segments):
        if segment.largest_timestamp_offset < to_offset:
            largest = max(largest, segment.largest_timestamp)
        # The record with the largest timestamp is at or above `to_offset`, which the reader must
        # not see. The batches below it have to be read.
        elif segment.base_offset < to_offset:
            async with aclosing(batches(log, segment.base_offset, to_offset)) as walked:
                async for header, _ in walked:
                    largest = max(largest, header.max_timestamp)
    return await _first_at(log, largest, to_offset, decompressor)


async def _first_in(
    header: BatchHeader,
    batch: memoryview,
    timestamp_ms: int,
    from_offset: int,
    decompressor: Decompressor,
) -> TimestampOffset | None:
    """Return the first record of a batch at `timestamp_ms` or later, or None."""
    # With LogAppendTime the broker sets max_timestamp, and it counts for all records of the batch.
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        offset = max(header.base_offset, from_offset)
        return TimestampOffset(timestamp_ms=header.max_timestamp, offset=offset)
    if header.magic != MAGIC or not crc_is_good(batch, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged"
        )
    async with aclosing(decompressor.records(header, batch, Turns())) as records:
        async for record in records:
            found_ms = header.base_timestamp + record.timestamp_delta
            offset = header.base_offset + record.offset_delta
            if timestamp_ms <= found_ms <= INT64_MAX and offset >= from_offset:
                return TimestampOffset(timestamp_ms=found_ms, offset=offset)
    return None
