"""One segment of a log: a file of record batches and its three indexes.

The last segment of a log is *active*: the log appends to it, and its indexes are in memory. The
other segments are *sealed*: their indexes are loaded for a read. Offsets ascend. In a compacted log
some are missing, but each segment ends where the next one begins. A segment does not know of
producers, transactions or the high watermark.
"""

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from odradek.broker.env import Buffer, File, FsyncEnded
from odradek.broker.storage.aborted import ENTRY as ABORTED_ENTRY
from odradek.broker.storage.aborted import AbortedIndex
from odradek.broker.storage.chain import BrokenChain, Chain, ChainRules
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    OpenFiles,
    file_path,
)
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.protocol.batch import HEADER_BYTES

INT32_MAX: Final = 2**31 - 1
LANDMARKS_MAX: Final = 128
WALK_BYTES: Final = 8 * 1024
NO_TIMESTAMP: Final = -1

Indexes = tuple[OffsetIndex, TimeIndex]

_BASE_OFFSET: Final = struct.Struct(">q")


class DamagedSegment(Exception):
    """A segment's file does not have the batches that were written to it."""


class DamagedIndex(DamagedSegment):
    """An index file does not have what was written to it. The batches suffice to rebuild it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """A segment as a checkpoint describes it, so that opening the log need not read it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    largest_timestamp_offset: int
    first_timestamp: int
    first_append_ms: int
    bytes_since_entry: int
    index_bytes: int
    time_index_bytes: int
    aborted_bytes: int
    # CRC-32C of those bytes of each index, because Kafka's index formats have no checksum. The
    # checkpoint of an older version has none either: then it is None.
    index_crc: int | None = None
    time_index_crc: int | None = None
    aborted_crc: int | None = None
    end_crc: int | None = None
    """CRC-32C of the last bytes of the segment; None if it is empty, or of an older version."""


class Segment:
    """The batches of a log from `base_offset` up to `next_offset`."""

    __slots__ = (
        "_bytes_since_entry",
        "_directory",
        "_files",
        "_landmarks",
        "_log_path",
        "aborted",
        "aborted_bytes",
        "aborted_crc",
        "base_offset",
        "end_crc",
        "end_crc_at",
        "first_append_ms",
        "first_timestamp",
        "index_bytes",
        "index_crc",
        "indexes",
        "is_deleted",
        "is_sealed",
        "largest_timestamp",
        "largest_timestamp_offset",
        "next_offset",
        "size_bytes",
        "time_index_bytes",
        "time_index_crc",
    )

    def __init__(self, files: OpenFiles, directory: str, base_offset: int) -> None:
        self._files = files
        self._directory = directory
        self._log_path = file_path(directory, base_offset, LOG)
        self._bytes_since_entry = 0
        # Base offset -> position of the latest batches. A consumer at the end of the log needs no
        # index and no walk over headers.
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
        # None while the indexes are only in their files.
        self.indexes: Indexes | None = (OffsetIndex(base_offset), TimeIndex(base_offset))
        self.aborted: AbortedIndex | None = AbortedIndex()
        # The bytes of each index that its file has, and their CRC.
        self.index_bytes = self.time_index_bytes = self.aborted_bytes = 0
        self.index_crc: int | None = 0
        self.time_index_crc: int | None = 0
        self.aborted_crc: int | None = 0
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
        segment.saved(summary)
        if summary.end_crc is not None:
            segment.has_end(summary.size_bytes, summary.end_crc)
        segment.is_sealed = True
        segment.indexes = None
        if summary.aborted_bytes:
            segment.aborted = None
        return segment

    def summary(self) -> SegmentSummary:
        """Return the summary for a checkpoint that is written after the index files."""
        sizes = {
            OFFSET_INDEX: (self.index_bytes, self.index_crc),
            TIME_INDEX: (self.time_index_bytes, self.time_index_crc),
            ABORTED_INDEX: (self.aborted_bytes, self.aborted_crc),
        }
        for suffix, position, piece in self.unsaved():
            _, crc = sizes[suffix]
            sizes[suffix] = position + len(piece), crc32c(piece, crc or 0)
        return SegmentSummary(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size_bytes=self.size_bytes,
            largest_timestamp=self.largest_timestamp,
            largest_timestamp_offset=self.largest_timestamp_offset,
            first_timestamp=self.first_timestamp,
            first_append_ms=self.first_append_ms,
            bytes_since_entry=self._bytes_since_entry,
            index_bytes=sizes[OFFSET_INDEX][0],
            time_index_bytes=sizes[TIME_INDEX][0],
            aborted_bytes=sizes[ABORTED_INDEX][0],
            index_crc=sizes[OFFSET_INDEX][1],
            time_index_crc=sizes[TIME_INDEX][1],
            aborted_crc=sizes[ABORTED_INDEX][1],
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
        assert self.indexes is not None
        # Index entries have offsets relative to the base offset in 32 bits (KAFKA-5413).
        return (
            self.size_bytes + batch_bytes <= config.segment_bytes
            and last_offset - self.base_offset <= INT32_MAX
            and len(self.indexes[0].data) + OffsetIndex.ENTRY_BYTES <= config.segment_index_bytes
            and (self.first_timestamp < 0 or timestamp - self.first_timestamp <= config.segment_ms)
        )

    def append(
        self, batch: Buffer, base_offset: int, last_offset: int, timestamp: int, config: LogConfig
    ) -> None:
        """Write a batch that has its offsets. Raises OSError; the segment is then unchanged."""
        self._write(batch)
        self._wrote(len(batch), base_offset, last_offset, timestamp, config)

    def append_markers(
        self, batches: Sequence[Buffer], base_offset: int, timestamp: int, config: LogConfig
    ) -> None:
        """Write markers that have their offsets, by one write. Raises as `append`."""
        self._write(b"".join(batches))
        for offset, batch in enumerate(batches, base_offset):
            self._wrote(len(batch), offset, offset, timestamp, config)

    def _write(self, batches: Buffer) -> None:
        file = self._files.get(self._log_path)
        position = self.size_bytes
        # A failed append truncates the file. If that failed too and the file was opened again, its
        # size includes the remains, and recovery could not find a batch behind them.
        if file.size != position:
            raise OSError(errno.EIO, "a failed append left bytes behind the end", self._log_path)
        file.append(batches)

    def _wrote(
        self, size_bytes: int, base_offset: int, last_offset: int, timestamp: int, config: LogConfig
    ) -> None:
        """Note a batch that was written at the end."""
        position = self.size_bytes
        landmarks = self._landmarks
        if len(landmarks) >= LANDMARKS_MAX:
            del landmarks[next(iter(landmarks))]
        landmarks[base_offset] = position
        self.note(position, size_bytes, last_offset, timestamp, config.index_interval_bytes)

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
            assert self.indexes is not None
            offsets, times = self.indexes
            offsets.append(last_offset, position)
            times.append(self.largest_timestamp, self.largest_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes
        self.next_offset = last_offset + 1

    def seal(self) -> None:
        """End the appends, and finish the time index."""
        assert self.indexes is not None
        # Kafka's rule: the last entry of a sealed time index is the segment's largest timestamp.
        if self.largest_timestamp >= 0:
            self.indexes[1].append(self.largest_timestamp, self.largest_timestamp_offset)
        self.is_sealed = True

    def unseal(self) -> None:
        """Make the segment active again. Its indexes must be loaded."""
        assert self.indexes is not None
        self.is_sealed = False

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self._files.close(self._log_path)

    # Indexes

    async def load_indexes(self) -> Indexes:
        """Return the offset and time index; read them from their files if necessary.

        Raises OSError and DamagedIndex.
        """
        if self.indexes is None:
            offsets = await self.read_index(OFFSET_INDEX)
            times = await self.read_index(TIME_INDEX)
            base_offset = self.base_offset
            self.indexes = OffsetIndex(base_offset, offsets), TimeIndex(base_offset, times)
        return self.indexes

    async def load_aborted(self) -> AbortedIndex:
        """Return the aborted transactions; read them if necessary. Raises as `load_indexes`."""
        if self.aborted is None:
            found = AbortedIndex.decode(await self.read_index(ABORTED_INDEX))
            if found is None:
                raise DamagedIndex(f"{self.path(ABORTED_INDEX)} is damaged")
            self.aborted = found
        return self.aborted

    async def read_index(self, suffix: str, *, exactly: bool = False) -> bytes | bytearray:
        """Return the saved bytes of an index. With `exactly` the file must have no more bytes.

        Raises OSError and DamagedIndex.
        """
        size_bytes, crc = {
            OFFSET_INDEX: (self.index_bytes, self.index_crc),
            TIME_INDEX: (self.time_index_bytes, self.time_index_crc),
            ABORTED_INDEX: (self.aborted_bytes, self.aborted_crc),
        }[suffix]
        if size_bytes == 0:
            return b""
        self._check_is_there()
        path = self.path(suffix)
        if crc is None:
            raise DamagedIndex(f"{path} was written by an older version, without a checksum")
        if not self._files.disk.exists(path):
            raise DamagedIndex(f"{path} is missing")
        data = await self._files.get(path).pread(0, size_bytes + exactly)
        self._files.close(path)
        if len(data) != size_bytes or crc32c(data) != crc:
            raise DamagedIndex(f"{path} is damaged")
        return data

    def take_rebuilt(self, indexes: Indexes) -> None:
        """Replace the indexes by rebuilt ones, which are not in their files yet."""
        self.indexes = indexes
        self.index_bytes = self.time_index_bytes = 0
        self.index_crc = self.time_index_crc = 0

    def take_rebuilt_aborted(self, aborted: AbortedIndex) -> None:
        """Replace the aborted transactions by rebuilt ones, which are not in their file yet."""
        self.aborted = aborted
        self.aborted_bytes = self.aborted_crc = 0

    def unload(self) -> None:
        """Drop the indexes from memory if their files have them."""
        assert self.is_sealed
        if not self.unsaved():
            self.indexes = None
            self._landmarks.clear()
            if self.aborted_bytes:
                self.aborted = None

    def unsaved(self) -> list[tuple[str, int, bytes]]:
        """Return what the index files lack, as (suffix, position in the file, bytes)."""
        pieces: list[tuple[str, int, bytes]] = []
        if self.indexes is not None:
            offsets = bytes(self.indexes[0].data[self.index_bytes :])
            times = bytes(self.indexes[1].data[self.time_index_bytes :])
            # Kafka's tools open both files: a time index needs an offset index, even an empty one.
            if offsets or (times and not self.time_index_bytes):
                pieces.append((OFFSET_INDEX, self.index_bytes, offsets))
            if times:
                pieces.append((TIME_INDEX, self.time_index_bytes, times))
        if self.aborted is not None:
            saved = self.aborted_bytes
            piece = self.aborted.encode(saved // ABORTED_ENTRY.size)
            if piece:
                pieces.append((ABORTED_INDEX, saved, piece))
        return pieces

    def saved(self, summary: SegmentSummary) -> None:
        """Note that the index files have what `summary` describes."""
        self.index_bytes = summary.index_bytes
        self.time_index_bytes = summary.time_index_bytes
        self.aborted_bytes = summary.aborted_bytes
        self.index_crc = summary.index_crc
        self.time_index_crc = summary.time_index_crc
        self.aborted_crc = summary.aborted_crc

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
        offsets, _ = self.indexes or await self.load_indexes()
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
        offsets, _ = self.indexes or await self.load_indexes()
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
