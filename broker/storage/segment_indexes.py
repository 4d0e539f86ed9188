"""The three indexes of a segment: offsets, times, and aborted transactions.

Those of the active segment are in memory, and their files lack the latest entries until the next
checkpoint. Those of a sealed segment are read from their files when they are needed. A checkpoint
has the size and the CRC of what each file has. A file that differs is damaged, and the index is
rebuilt from the batches (`rebuild.py`).
"""

import errno
from typing import Final

from crc32c import crc32c

from odradek.broker.storage.aborted import ENTRY as ABORTED_ENTRY
from odradek.broker.storage.aborted import AbortedIndex
from odradek.broker.storage.damage import DamagedIndex
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    OFFSET_INDEX,
    TIME_INDEX,
    OpenFiles,
    file_path,
)
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.broker.storage.segment_summary import SegmentSummary

OffsetsAndTimes = tuple[OffsetIndex, TimeIndex]
SavedIndex = tuple[int, int | None]
"""The bytes of an index that its file has, and their CRC; see `SegmentSummary`."""
NOTHING_SAVED: Final[SavedIndex] = (0, 0)


class SegmentIndexes:
    """The indexes of the segment at `base_offset`."""

    __slots__ = (
        "_base_offset",
        "_directory",
        "_files",
        "_saved",
        "aborted",
        "is_deleted",
        "loaded",
    )

    def __init__(self, files: OpenFiles, directory: str, base_offset: int) -> None:
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._saved = dict.fromkeys((OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX), NOTHING_SAVED)
        self.is_deleted = False
        """True if the segment was deleted: another one may have files with these names."""
        # None while they are only in their files.
        self.loaded: OffsetsAndTimes | None = (OffsetIndex(base_offset), TimeIndex(base_offset))
        self.aborted: AbortedIndex | None = AbortedIndex()

    def restore(self, summary: SegmentSummary) -> None:
        """Take what the files have from a checkpoint, and load none of them."""
        self.note_saved(summary)
        self.loaded = None
        if summary.aborted_bytes:
            self.aborted = None

    async def load(self) -> OffsetsAndTimes:
        """Return the offset and time index; read them from their files if necessary.

        Raises OSError and DamagedIndex.
        """
        if self.loaded is None:
            offsets = await self.read(OFFSET_INDEX)
            times = await self.read(TIME_INDEX)
            base_offset = self._base_offset
            self.loaded = OffsetIndex(base_offset, offsets), TimeIndex(base_offset, times)
        return self.loaded

    async def load_aborted(self) -> AbortedIndex:
        """Return the aborted transactions; read them if necessary. Raises as `load`."""
        if self.aborted is None:
            found = AbortedIndex.decode(await self.read(ABORTED_INDEX))
            if found is None:
                raise DamagedIndex(f"{self._path(ABORTED_INDEX)} is damaged")
            self.aborted = found
        return self.aborted

    async def read(self, suffix: str, *, exactly: bool = False) -> bytes | bytearray:
        """Return the saved bytes of an index. With `exactly` the file must have no more bytes.

        Raises OSError and DamagedIndex.
        """
        size_bytes, crc = self._saved[suffix]
        if size_bytes == 0:
            return b""
        path = self._path(suffix)
        if self.is_deleted:
            raise FileNotFoundError(errno.ENOENT, "the segment was deleted", path)
        if crc is None:
            raise DamagedIndex(f"{path} was written by an older version, without a checksum")
        if not self._files.disk.exists(path):
            raise DamagedIndex(f"{path} is missing")
        data = await self._files.get(path).pread(0, size_bytes + exactly)
        self._files.close(path)
        if len(data) != size_bytes or crc32c(data) != crc:
            raise DamagedIndex(f"{path} is damaged")
        return data

    def _path(self, suffix: str) -> str:
        return file_path(self._directory, self._base_offset, suffix)

    def take_rebuilt(self, rebuilt: OffsetsAndTimes) -> None:
        """Replace the indexes by rebuilt ones, which are not in their files yet."""
        self.loaded = rebuilt
        self._saved[OFFSET_INDEX] = self._saved[TIME_INDEX] = NOTHING_SAVED

    def take_rebuilt_aborted(self, aborted: AbortedIndex) -> None:
        """Replace the aborted transactions by rebuilt ones, which are not in their file yet."""
        self.aborted = aborted
        self._saved[ABORTED_INDEX] = NOTHING_SAVED

    # Saving

    def saved_bytes(self, suffix: str) -> int:
        """Return the number of bytes that the file of an index has."""
        return self._saved[suffix][0]

    def unsaved(self) -> list[tuple[str, int, bytes]]:
        """Return what the index files lack, as (suffix, position in the file, bytes)."""
        pieces: list[tuple[str, int, bytes]] = []
        if self.loaded is not None:
            offsets_at, times_at = self.saved_bytes(OFFSET_INDEX), self.saved_bytes(TIME_INDEX)
            offsets = bytes(self.loaded[0].data[offsets_at:])
            times = bytes(self.loaded[1].data[times_at:])
            # Kafka's tools open both files: a time index needs an offset index, even an empty one.
            if offsets or (times and not times_at):
                pieces.append((OFFSET_INDEX, offsets_at, offsets))
            if times:
                pieces.append((TIME_INDEX, times_at, times))
        if self.aborted is not None:
            aborted_at = self.saved_bytes(ABORTED_INDEX)
            aborted = self.aborted.encode(aborted_at // ABORTED_ENTRY.size)
            if aborted:
                pieces.append((ABORTED_INDEX, aborted_at, aborted))
        return pieces

    def to_be_saved(self) -> dict[str, SavedIndex]:
        """Return what each file will have, by suffix, once `unsaved` is in the files."""
        saved = dict(self._saved)
        for suffix, position, piece in self.unsaved():
            _, crc = saved[suffix]
            saved[suffix] = position + len(piece), crc32c(piece, crc or 0)
        return saved

    def note_saved(self, summary: SegmentSummary) -> None:
        """Note that the files have what `summary` describes."""
        self._saved = {
            OFFSET_INDEX: (summary.index_bytes, summary.index_crc),
            TIME_INDEX: (summary.time_index_bytes, summary.time_index_crc),
            ABORTED_INDEX: (summary.aborted_bytes, summary.aborted_crc),
        }

    def unload(self) -> bool:
        """Drop the indexes from memory. Return False if the files lack something of them."""
        if self.unsaved():
            return False
        self.loaded = None
        if self.saved_bytes(ABORTED_INDEX):
            self.aborted = None
        return True
