"""The aborted transactions of a segment: the `.txnindex` file, in Kafka's format.

An entry is in the segment of its abort marker and has 34 bytes: version 0 (2), producer id (8),
first offset of the transaction (8), offset of the marker (8), last stable offset after this marker
(8). Entries are in the order of their markers.

A reader of [from, to) needs every aborted transaction that touches the range, and its marker may be
in a later segment. The search ends at an entry whose last stable offset is at or above `to`: all
transactions with a later marker started there or later.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """An entry of a Fetch response: this producer's records from `first_offset` on are aborted.

    A reader skips them up to the producer's next abort marker.
    """

    producer_id: int
    first_offset: int


class AbortedEntry(NamedTuple):
    """One entry of the index, with its fields in the order of the file."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    """The entries of one segment, ascending by `last_offset`, in memory as the bytes of the file.

    A producer that aborts again and again adds entries for as long as the records are kept.
    """

    __slots__ = ("_data",)

    def __init__(self, entries: Iterable[AbortedEntry] = ()) -> None:
        self._data = bytearray()
        for entry in entries:
            self.append(entry)

    @property
    def entries(self) -> list[AbortedEntry]:
        """All entries, as a list of their own."""
        return [AbortedEntry(*fields) for _, *fields in ENTRY.iter_unpack(self._data)]

    def _entry_at(self, position: int) -> AbortedEntry:
        _, *fields = ENTRY.unpack_from(self._data, position)
        return AbortedEntry(*fields)

    def _first_ending_at(self, offset: int) -> int:
        """Return the number of the first entry whose marker is at `offset` or later."""
        unpack, data = ENTRY.unpack_from, self._data
        numbers = range(len(data) // ENTRY.size)
        return bisect_left(numbers, offset, key=lambda number: unpack(data, number * ENTRY.size)[3])

    def append(self, entry: AbortedEntry) -> None:
        if self._data:
            last = self._entry_at(len(self._data) - ENTRY.size)
            assert entry.last_offset > last.last_offset, entry
        self._data += ENTRY.pack(VERSION, *entry)

    def find(self, marker_offset: int) -> AbortedEntry | None:
        """Return the entry of a marker, None if it has none."""
        at = self._first_ending_at(marker_offset) * ENTRY.size
        found = self._entry_at(at) if at < len(self._data) else None
        return found if found is not None and found.last_offset == marker_offset else None

    def truncate(self, offset: int) -> None:
        """Remove every entry whose marker is at `offset` or later."""
        del self._data[self._first_ending_at(offset) * ENTRY.size :]

    def encode(self, start: int = 0) -> bytes:
        """Return the file's bytes from entry number `start` on."""
        return bytes(self._data[start * ENTRY.size :])

    @classmethod
    def decode(cls, data: bytes | bytearray) -> "AbortedIndex | None":
        """Return the index in a file's bytes, None if they are not valid entries."""
        if len(data) % ENTRY.size:
            return None
        last_offset = -1
        for version, _, _, offset, _ in ENTRY.iter_unpack(data):
            if version != VERSION or offset <= last_offset:
                return None
            last_offset = offset
        index = cls()
        index._data += data
        return index

    def collect(self, from_offset: int, to_offset: int, found: list[AbortedTxn]) -> bool:
        """Add transactions that touch [from, to) to `found`. Return True if the search is over."""
        start = self._first_ending_at(from_offset) * ENTRY.size
        for at in range(start, len(self._data), ENTRY.size):
            _, producer_id, first_offset, _, last_stable_offset = ENTRY.unpack_from(self._data, at)
            if first_offset < to_offset:
                found.append(AbortedTxn(producer_id, first_offset))
            if last_stable_offset >= to_offset:
                return True
        return False
