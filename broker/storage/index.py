"""The offset index and the time index of a segment, in memory as the bytes of their files.

Both are sparse: they have at most one entry for every index.interval.bytes of batches. Those of the
active segment are only in memory until the next checkpoint or roll, so that an append is one write
to one file. After a crash recovery rebuilds the lost entries, which are all behind the checkpoint.

`.index`     8 bytes an entry: last offset of a batch - base offset (4), position of that batch (4)
`.timeindex` 12 bytes an entry: largest timestamp so far (8), last offset of its batch - base (4)
"""

import struct
from collections.abc import Iterator
from typing import Final

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")


class OffsetIndex:
    """Entries (last offset of a batch, position of the batch), both strictly ascending."""

    __slots__ = ("base_offset", "data")

    ENTRY_BYTES: Final = OFFSET_ENTRY.size

    def __init__(self, base_offset: int, data: bytes | bytearray = b"") -> None:
        self.base_offset = base_offset
        self.data = bytearray(data[: len(data) - len(data) % self.ENTRY_BYTES])

    def __len__(self) -> int:
        return len(self.data) // self.ENTRY_BYTES

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for relative, position in OFFSET_ENTRY.iter_unpack(self.data):
            yield self.base_offset + relative, position

    def append(self, last_offset: int, position: int) -> None:
        assert last_offset >= self.base_offset, (last_offset, self.base_offset)
        self.data += OFFSET_ENTRY.pack(last_offset - self.base_offset, position)

    def before_offset(self, offset: int) -> tuple[int, int] | None:
        """Return the last entry (last offset, position) with a last offset <= `offset`."""
        relative = offset - self.base_offset
        unpack, data = OFFSET_ENTRY.unpack_from, self.data
        low, high = 0, len(data) >> 3
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle << 3)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        found, position = unpack(data, (low - 1) << 3)
        return self.base_offset + found, position

    def before_position(self, position: int) -> tuple[int, int] | None:
        """Return the last entry (last offset, position) with a position <= `position`."""
        unpack, data = OFFSET_ENTRY.unpack_from, self.data
        low, high = 0, len(data) >> 3
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle << 3)[1] <= position:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        relative, found = unpack(data, (low - 1) << 3)
        return self.base_offset + relative, found

    def truncate(self, offset: int) -> None:
        """Remove the entries of all batches that reach to `offset` or further."""
        relative, data = offset - self.base_offset, self.data
        size = len(data)
        while size and OFFSET_ENTRY.unpack_from(data, size - self.ENTRY_BYTES)[0] >= relative:
            size -= self.ENTRY_BYTES
        del data[size:]


class TimeIndex:
    """Entries (largest timestamp so far, last offset of its batch), both ascending."""

    __slots__ = ("base_offset", "data")

    ENTRY_BYTES: Final = TIME_ENTRY.size

    def __init__(self, base_offset: int, data: bytes | bytearray = b"") -> None:
        self.base_offset = base_offset
        self.data = bytearray(data[: len(data) - len(data) % self.ENTRY_BYTES])

    def __len__(self) -> int:
        return len(self.data) // self.ENTRY_BYTES

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for timestamp, relative in TIME_ENTRY.iter_unpack(self.data):
            yield timestamp, self.base_offset + relative

    @property
    def last(self) -> tuple[int, int]:
        """The largest timestamp and its offset; (-1, base offset) in an empty index."""
        if not self.data:
            return -1, self.base_offset
        timestamp, relative = TIME_ENTRY.unpack_from(self.data, len(self.data) - self.ENTRY_BYTES)
        return timestamp, self.base_offset + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the timestamp is no larger than the last one."""
        assert offset >= self.base_offset, (offset, self.base_offset)
        if timestamp > self.last[0]:
            self.data += TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def before(self, timestamp: int) -> int:
        """Return an offset such that every batch below it is older than `timestamp`."""
        unpack, data, size = TIME_ENTRY.unpack_from, self.data, self.ENTRY_BYTES
        low, high = 0, len(data) // size
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * size)[0] < timestamp:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + (0 if low == 0 else int(unpack(data, (low - 1) * size)[1]))

    def truncate(self, offset: int) -> None:
        """Forget every entry of `offset` or later."""
        relative, data = offset - self.base_offset, self.data
        size = len(data)
        while size and TIME_ENTRY.unpack_from(data, size - self.ENTRY_BYTES)[1] >= relative:
            size -= self.ENTRY_BYTES
        del data[size:]
