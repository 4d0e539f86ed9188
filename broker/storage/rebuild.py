"""Rebuild the indexes of a segment from its batches, if their files are damaged or missing.

The segment suffices for the offset index and the time index. An aborted transaction may have
started in an earlier segment, so the rebuild of the aborted index starts at the newest readable
producer snapshot at or before the segment, or else at the first batch of the log.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.environment.turns import Turns
from odradek.broker.storage.aborted import AbortedEntry, AbortedIndex
from odradek.broker.storage.chain import BrokenChain, Chain, ChainRules
from odradek.broker.storage.files import SNAPSHOT, OpenFiles, file_path
from odradek.broker.storage.producers import Producers
from odradek.broker.storage.segment import NO_TIMESTAMP, Segment
from odradek.broker.storage.snapshot import decode_snapshot, encode_snapshot
from odradek.protocol.batch import HEADER_BYTES, BatchHeader, iter_batches, read_header
from odradek.protocol.control import read_marker

LOGGER: Final = logging.getLogger(__name__)
READ_BYTES: Final = 256 * 1024


async def rebuild_indexes(
    segment: Segment, files: OpenFiles, directory: str, rules: ChainRules, interval_bytes: int
) -> None:
    """Rebuild the offset index and the time index. Raises OSError and DamagedSegment."""
    made = Segment(files, directory, segment.base_offset)
    async with aclosing(batches_of(segment, rules)) as batches:
        async for position, header, _ in batches:
            timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP
            made.note(position, header.size_bytes, header.last_offset, timestamp, interval_bytes)
    if segment.is_sealed:
        made.seal()
    assert made.indexes.loaded is not None
    segment.indexes.take_rebuilt(made.indexes.loaded)


async def rebuild_aborted(
    segments: Sequence[Segment], number: int, files: OpenFiles, directory: str, rules: ChainRules
) -> None:
    """Rebuild the aborted index of segment `number` of a log.

    Raises OSError and DamagedSegment.
    """
    first, producers = await known_before(segments, number, files.disk, directory)
    index = AbortedIndex()
    for segment in segments[first : number + 1]:
        async for entry in _aborted(segment, producers, rules):
            if segment is segments[number]:
                index.append(entry)
    segments[number].indexes.take_rebuilt_aborted(index)


async def check_snapshot(
    segments: Sequence[Segment], number: int, files: OpenFiles, directory: str, rules: ChainRules
) -> None:
    """Rebuild the snapshot at the start of segment `number` of a log if it is damaged.

    Raises OSError and DamagedSegment.
    """
    base_offset, disk = segments[number].base_offset, files.disk
    path = file_path(directory, base_offset, SNAPSHOT)
    if not disk.exists(path) or await snapshot_at(disk, directory, base_offset, 0) is not None:
        return
    disk.remove(path)
    # The records that the first snapshot describes are deleted. Without the snapshot the broker
    # does not know their producers, which is allowed.
    if number == 0:
        LOGGER.warning("%s is damaged: removing it, because its records were deleted", path)
        return
    LOGGER.warning("%s is damaged: rebuilding it from the log", path)
    first, producers = await known_before(segments, number, disk, directory)
    for segment in segments[first:number]:
        async for _ in _aborted(segment, producers, rules):
            pass
    file = disk.open(path)
    try:
        file.append(encode_snapshot(producers.entries.values()))
        await file.fsync()
    finally:
        file.close()


async def known_before(
    segments: Sequence[Segment], number: int, disk: Disk, directory: str
) -> tuple[int, Producers]:
    """Return the number of the last segment up to `number` with a snapshot, and its producers."""
    for first in range(number, -1, -1):
        producers = await snapshot_at(disk, directory, segments[first].base_offset, 0)
        if producers is not None:
            return first, producers
    return 0, Producers()


async def _aborted(
    segment: Segment, producers: Producers, rules: ChainRules
) -> AsyncGenerator[AbortedEntry, None]:
    """Apply a whole segment to `producers`, and yield the transactions that it aborts."""
    async with aclosing(batches_of(segment, rules)) as batches:
        async for _, header, batch in batches:
            entry = note_transaction(producers, header, batch, 0)
            if entry is not None:
                yield entry


def note_transaction(
    producers: Producers, header: BatchHeader, batch: memoryview, now_ms: int
) -> AbortedEntry | None:
    """Apply a batch of the log to `producers`. Return the transaction that it aborts, if any."""
    if header.is_control:
        # Kafka's cleaner may leave a control batch without its marker.
        if header.record_count == 0:
            return None
        marker = read_marker(batch)
        ended = producers.add_marker(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=header.base_offset,
            timestamp_ms=header.max_timestamp,
            now_ms=now_ms,
        )
        return AbortedEntry(*ended) if ended is not None and not marker.committed else None
    if header.has_producer:
        producers.add_batch(header, header.base_offset, header.max_timestamp, now_ms)
    return None


async def snapshot_at(disk: Disk, directory: str, offset: int, now_ms: int) -> Producers | None:
    """Return the producers of the snapshot at `offset`, None without one. Raises OSError."""
    path = file_path(directory, offset, SNAPSHOT)
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        entries = decode_snapshot(await file.pread(0, file.size), now_ms)
    finally:
        file.close()
    if entries is None:
        return None
    for entry in entries:
        # The format lacks it. The latest that it can be shows whether a truncation concerns it.
        entry.last_marker_offset = offset - 1
    return Producers(entries)


async def batches_of(
    segment: Segment, rules: ChainRules, position: int = 0, next_offset: int | None = None
) -> AsyncGenerator[tuple[int, BatchHeader, memoryview], None]:
    """Yield the batches of a segment from `position` on, each with its position.

    The batch there continues the log at `next_offset`. Raises OSError and DamagedSegment.
    """
    chain = Chain(rules, segment.base_offset if next_offset is None else next_offset)
    turns = Turns()
    end, end_offset = segment.size_bytes, segment.next_offset
    wanted = READ_BYTES
    while position < end:
        data = await segment.read(position, min(end, position + wanted))
        try:
            size_bytes = chain.follow(data, with_crc=True)
        except BrokenChain as error:
            raise segment.damaged(position + error.at, str(error)) from error
        if size_bytes == 0:
            # A checkpoint that is not this log's may end inside a batch, or inside a header.
            header_bytes = read_header(data).size_bytes if len(data) >= HEADER_BYTES else 0
            if position + header_bytes > end or header_bytes <= wanted:
                raise segment.damaged(position, "the segment ends inside a batch")
            wanted = header_bytes
            continue
        at = position
        for header, batch in iter_batches(memoryview(data)[:size_bytes]):
            await turns.take()
            yield at, header, batch
            at += header.size_bytes
        position, wanted = at, READ_BYTES
    if chain.next_offset > end_offset:
        raise segment.damaged(end, f"the segment reaches beyond offset {end_offset - 1}")
