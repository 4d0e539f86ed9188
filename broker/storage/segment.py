"""One segment of a log: a file of record batches, and its indexes (`segment_indexes.py`).

The last segment of a log is *active*: the log appends to it, and its indexes are in memory. The
other segments are *sealed*: their indexes are loaded for a read. Offsets ascend. In a compacted log
some are missing, but each segment ends where the next one begins. A segment does not know of
producers, transactions or the high watermark.
"""

import errno
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.broker.environment.env import Buffer, File, FsyncEnded
from odradek.broker.storage.chain import BrokenChain, Chain, ChainRules
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedSegment
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    OpenFiles,
    file_path,
)
from odradek.broker.storage.index import OffsetIndex
from odradek.broker.storage.segment_indexes import SegmentIndexes
from odradek.broker.storage.segment_summary import SegmentSummary
from odradek.protocol.batch import HEADER_BYTES
from odradek.protocol.plain_produce import End

INT32_MAX: Final = 2**31 - 1
LANDMARKS_MAX: Final = 32
WALK_BYTES: Final = 8 * 1024
NO_TIMESTAMP: Final = -1

_BASE_OFFSET: Final = struct.Struct(">q")


class Segment:
    """The batches of a log from `base_offset` up to `next_offset`."""

    __slots__ = (
        "_bytes_since_entry",
        "_directory",
        "_files",
        "_landmarks",
        "_log_path",
        "base_offset",
        "end_crc",
        "end_crc_at",
        "first_append_ms",
        "first_timestamp",
        "indexes",
        "is_deleted",
        "is_sealed",
        "largest_timestamp",
        "largest_timestamp_offset",
        "next_offset",
        "size_bytes",
    )

    def __init__(self, files: OpenFiles, directory: str, base_offset: int) -> None:
        self._files = files
        self._directory = directory
        self._log_path = file_path(directory, base_offset, LOG)
        self._bytes_since_entry = 0
        # Offset -> position of the batch that begins there: those that were appended last, and
        # those at which reads have ended. A consumer that reads on from there needs no index and
        # no walk over headers.
        self._landmarks: dict[int, int] = {}
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.first_timestamp = NO_TIMESTAMP
        self.first_append_ms = -1
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_timestamp_offset = base_offset
        self.is_sealed = False
        self.is_deleted = False
        self.indexes = SegmentIndexes(files, directory, base_offset)
        # The CRC of the last bytes below a position (`end_sum.py`).
        self.end_crc: int | None = None
        self.end_crc_at = 0

    @classmethod
    def restored(cls, files: OpenFiles, directory: str, summary: SegmentSummary) -> "Segment":
        """Return the segment that a checkpoint describes, sealed, with no index loaded."""
        segment = cls(files, directory, summary.base_offset)
        segment.next_offset = summary.next_offset
        segment.size_bytes = summary.size_bytes
        segment.largest_timestamp = summary.largest_timestamp
        segment.largest_timestamp_offset = summary.largest_timestamp_offset
        segment.first_timestamp = summary.first_timestamp
        segment.first_append_ms = summary.first_append_ms
        segment._bytes_since_entry = summary.bytes_since_entry
        segment.indexes.restore(summary)
        if summary.end_crc is not None:
            segment.has_end(summary.size_bytes, summary.end_crc)
        segment.is_sealed = True
        return segment

    def summary(self) -> SegmentSummary:
        """Return the summary for a checkpoint that is written after the index files."""
        saved = self.indexes.to_be_saved()
        index_bytes, index_crc = saved[OFFSET_INDEX]
        time_index_bytes, time_index_crc = saved[TIME_INDEX]
        aborted_bytes, aborted_crc = saved[ABORTED_INDEX]
        return SegmentSummary(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size_bytes=self.size_bytes,
            largest_timestamp=self.largest_timestamp,
            largest_timestamp_offset=self.largest_timestamp_offset,
            first_timestamp=self.first_timestamp,
            first_append_ms=self.first_append_ms,
            bytes_since_entry=self._bytes_since_entry,
            index_bytes=index_bytes,
            time_index_bytes=time_index_bytes,
            aborted_bytes=aborted_bytes,
            index_crc=index_crc,
            time_index_crc=time_index_crc,
            aborted_crc=aborted_crc,
            end_crc=self.end_crc if self.end_crc_at == self.size_bytes else None,
        )

    def has_end(self, position: int, crc: int) -> None:
        """Note the CRC of the last bytes below `position`."""
        self.end_crc, self.end_crc_at = crc, position

    def newest_ms(self) -> int:
        """Return the largest timestamp; if no record has one, when the file was written last.

        Compaction keeps the time of the file, as it keeps the timestamps. Raises OSError.
        """
        if self.largest_timestamp >= 0 or not self.size_bytes:
            return self.largest_timestamp
        return self._files.disk.modified_ms(self._log_path)

    def path(self, suffix: str = LOG) -> str:
        if suffix is LOG:
            return self._log_path
        return file_path(self._directory, self.base_offset, suffix)

    @property
    def file(self) -> File:
        """Return the open file of batches. Use it before the next await. Raises OSError."""
        self._check_is_there()
        return self._files.get(self._log_path)

    def _check_is_there(self) -> None:
        if self.is_deleted:
            raise FileNotFoundError(errno.ENOENT, "the segment was deleted", self._log_path)

    async def sync(self) -> None:
        """Flush the batches to disk. Raises OSError."""
        self._check_is_there()
        await self._files.sync(self._log_path)

    def start_sync(self, done: FsyncEnded) -> bool:
        """See `OpenFiles.start_sync`."""
        self._check_is_there()
        return self._files.start_sync(self._log_path, done)

    # Appending

    def has_room(
        self, batch_bytes: int, timestamp: int, last_offset: int, config: LogConfig
    ) -> bool:
        """Return True if the batch fits in here, False if the log must roll before it."""
        if self.size_bytes == 0:
            return True
        assert self.indexes.loaded is not None
        index_bytes = len(self.indexes.loaded[0].data) + OffsetIndex.ENTRY_BYTES
        # Index entries have offsets relative to the base offset in 32 bits (KAFKA-5413).
        return (
            self.size_bytes + batch_bytes <= config.segment_bytes
            and last_offset - self.base_offset <= INT32_MAX
            and index_bytes <= config.segment_index_bytes
            and (self.first_timestamp < 0 or timestamp - self.first_timestamp <= config.segment_ms)
        )

    def has_room_for_all(self, size_bytes: int, ends: Sequence[End], config: LogConfig) -> bool:
        """Return True if the log need not roll before any of these batches, which follow here."""
        if self.size_bytes == 0:
            return False  # the first one decides for the others
        assert self.indexes.loaded is not None
        # A batch adds an entry to the index only after an interval without one.
        entries = 1 + size_bytes // (config.index_interval_bytes + 1)
        index_bytes = len(self.indexes.loaded[0].data) + entries * OffsetIndex.ENTRY_BYTES
        largest = max([timestamp for _, timestamp in ends])
        return index_bytes <= config.segment_index_bytes and self.has_room(
            size_bytes, largest, ends[-1][0], config
        )

    def append(
        self, batch: Buffer, base_offset: int, last_offset: int, timestamp: int, config: LogConfig
    ) -> None:
        """Write a batch that has its offsets. Raises OSError; the segment is then unchanged."""
        # invariant durable 3: A log's end, indexes and producers change only after the write.
        # plant KAFKA-7866
        self._write(batch)
        position = self.size_bytes
        self.note_boundary(base_offset, position)
        self.note(position, len(batch), last_offset, timestamp, config.index_interval_bytes)

    def append_together(
        self,
        batches: Buffer,
        sizes: Iterable[int],
        base_offset: int,
        ends: Sequence[End],
        config: LogConfig,
    ) -> None:
        """Write batches of these sizes, which have their offsets, by one write.

        Raises as `append`.
        """
        self._write(batches)
        # A reader that goes on begins where a write has ended.
        self.note_boundary(base_offset, self.size_bytes)
        self._note_all(sizes, ends, config.index_interval_bytes)

    def _write(self, batches: Buffer) -> None:
        file = self._files.get(self._log_path)
        position = self.size_bytes
        # A failed append truncates the file. If that failed too and the file was opened again, its
        # size includes the remains, and recovery could not find a batch behind them.
        if file.size != position:
            raise OSError(errno.EIO, "a failed append left bytes behind the end", self._log_path)
        file.append(batches)

    def note_boundary(self, offset: int, position: int) -> None:
        """Note that the chain of headers continues at `offset` at a position."""
        landmarks = self._landmarks
        if len(landmarks) >= LANDMARKS_MAX:
            del landmarks[next(iter(landmarks))]
        landmarks[offset] = position

    def note(
        self, position: int, size_bytes: int, last_offset: int, timestamp: int, interval_bytes: int
    ) -> None:
        """Note the batch that was written at `position`: size, times, index entries."""
        if position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.largest_timestamp:
            self.largest_timestamp = timestamp
            self.largest_timestamp_offset = last_offset
        # Sparse indexes, as Kafka's: one entry every index.interval.bytes.
        if self._bytes_since_entry > interval_bytes:
            self._add_entry(last_offset, position)
        self._bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes
        self.next_offset = last_offset + 1

    def _note_all(self, sizes: Iterable[int], ends: Sequence[End], interval_bytes: int) -> None:
        """Note batches that were written at the end. It is `note` for each, at once."""
        position, since, largest = self.size_bytes, self._bytes_since_entry, self.largest_timestamp
        if position == 0:
            self.first_timestamp = ends[0][1]
        for size_bytes, (last_offset, timestamp) in zip(sizes, ends, strict=True):
            if timestamp > largest:
                self.largest_timestamp = largest = timestamp
                self.largest_timestamp_offset = last_offset
            if since > interval_bytes:
                self._add_entry(last_offset, position)
                since = 0
            since += size_bytes
            position += size_bytes
        self._bytes_since_entry, self.size_bytes = since, position
        self.next_offset = ends[-1][0] + 1

    def _add_entry(self, last_offset: int, position: int) -> None:
        """Add an entry to both indexes, before the batch at `position`."""
        assert self.indexes.loaded is not None
        offsets, times = self.indexes.loaded
        offsets.append(last_offset, position)
        times.append(self.largest_timestamp, self.largest_timestamp_offset)
        self._bytes_since_entry = 0

    def seal(self) -> None:
        """End the appends, and finish the time index."""
        assert self.indexes.loaded is not None
        # Kafka's rule: the last entry of a sealed time index is the segment's largest timestamp.
        if self.largest_timestamp >= 0:
            self.indexes.loaded[1].append(self.largest_timestamp, self.largest_timestamp_offset)
        self.is_sealed = True

    def unseal(self) -> None:
        """Make the segment active again. Its indexes must be loaded."""
        assert self.indexes.loaded is not None
        self.is_sealed = False

    def unload(self) -> None:
        """Drop the indexes from memory if their files have them."""
        assert self.is_sealed
        if self.indexes.unload():
            self._landmarks.clear()

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self._files.close(self._log_path)

    def delete(self) -> None:
        """Note that the log has this segment no more. Its files may be gone, or another one's."""
        self.close()
        self.is_deleted = self.indexes.is_deleted = True

    # Reading

    async def locate(self, offset: int, rules: ChainRules) -> tuple[int, int]:
        """Find the first batch whose last offset is >= `offset`, or the end if there is none.

        Return its position, and the offset at which the chain of headers continues there. Raises
        OSError and DamagedSegment.
        """
        if offset >= self.next_offset:
            return self.size_bytes, self.next_offset
        if (landmark := self._landmarks.get(offset)) is not None:
            return landmark, offset
        if offset <= self.base_offset:
            return 0, self.base_offset
        offsets, _ = self.indexes.loaded or await self.indexes.load()
        position, end = 0, self.size_bytes
        chain = Chain(rules, self.base_offset)
        entry = offsets.before_offset(offset)
        # An index with a flipped bit could lead into the middle of a batch, or to a wrong one. The
        # batch at the position must end at the offset that the entry gives.
        if entry is not None:
            last_offset, position = entry
            (base_offset,) = _BASE_OFFSET.unpack(await self.read(position, position + 8))
            chain = Chain(rules, base_offset)
            following = await self.batch_end(position, chain)
            if chain.next_offset != last_offset + 1 or base_offset < self.base_offset:
                raise self.damaged(position, "the index entry is for another batch")
            if last_offset == offset:
                return position, base_offset
            position = following
        while position < end:
            chunk = await self.file.pread(position, min(WALK_BYTES, end - position))
            try:
                at = chain.follow(chunk, to_offset=offset, headers_only=True)
            except BrokenChain as error:
                raise self.damaged(position + error.at, str(error)) from error
            if len(chunk) - at >= HEADER_BYTES:
                return position + at, chain.next_offset
            if at == 0 or position + at > end:
                raise self.damaged(position, "the segment ends inside a batch")
            position += at
        return end, chain.next_offset

    async def batch_end(self, position: int, chain: Chain) -> int:
        """Return the end of the batch at `position`, after checking its header against `chain`.

        Raises OSError and DamagedSegment.
        """
        header = await self.file.pread(position, HEADER_BYTES)
        try:
            size_bytes = chain.follow(header, batches_max=1, headers_only=True)
        except BrokenChain as error:
            raise self.damaged(position, str(error)) from error
        if size_bytes == 0 or position + size_bytes > self.size_bytes:
            raise self.damaged(position, "the segment ends inside a batch")
        return position + size_bytes

    def damaged(self, position: int, why: str) -> DamagedSegment:
        return DamagedSegment(f"{self.path()} is damaged at byte {position}: {why}")

    async def first_boundary(self, start: int, chain: Chain) -> int:
        """Return the end of the batch at `start`. Raises OSError, DamagedSegment."""
        end = await self.batch_end(start, chain)
        # The CRC does not cover the length. The next header is at the end only if the length is
        # right.
        if end < self.size_bytes:
            await self.batch_end(end, chain)
        return end

    async def last_boundary(self, start: int, limit: int, chain: Chain) -> tuple[int, int | None]:
        """Return the end of a read of whole batches from position `start` to at most `limit`.

        The end is `start` if not even one batch fits. Also return an offset that all of the batches
        are below, None if the index has none.
        """
        offsets, _ = self.indexes.loaded or await self.indexes.load()
        # An index entry is a boundary that costs no read. The answer may be index.interval.bytes
        # shorter for it.
        entry = offsets.before_position(limit)
        if entry is not None and entry[1] > start:
            return entry[1], entry[0]
        position = start
        # The loop reads one header more than it needs: that header proves the length before it.
        while position < self.size_bytes:
            end = await self.batch_end(position, chain)
            if end > limit:
                break
            position = end
        return position, None

    async def read(self, start: int, end: int) -> bytes | bytearray:
        """Return the bytes between two positions. Raises OSError and DamagedSegment."""
        data = await self.file.pread(start, end - start)
        if len(data) < end - start:
            raise DamagedSegment(f"{self.path()} is shorter than it was")
        return data
