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
from operator import attrgetter
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
    """The entries of one segment, ascending by `last_offset`."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[AbortedEntry] = ()) -> None:
        self.entries = list(entries)

    def append(self, entry: AbortedEntry) -> None:
        assert not self.entries or entry.last_offset > self.entries[-1].last_offset, entry
        self.entries.append(entry)

    def truncate(self, offset: int) -> None:
        """Remove every entry whose marker is at `offset` or later."""
        del self.entries[bisect_left(self.entries, offset, key=attrgetter("last_offset")) :]

    def encode(self, start: int = 0) -> bytes:
        """Return the file's bytes from entry number `start` on."""
        return b"".join([ENTRY.pack(VERSION, *entry) for entry in self.entries[start:]])

    @classmethod
    def decode(cls, data: bytes | bytearray) -> "AbortedIndex | None":
        """Return the index in a file's bytes, None if they are not valid entries."""
        if len(data) % ENTRY.size:
            return None
        index = cls()
        last_offset = -1
        for version, *fields in ENTRY.iter_unpack(data):
            entry = AbortedEntry(*fields)
            if version != VERSION or entry.last_offset <= last_offset:
                return None
            last_offset = entry.last_offset
            index.entries.append(entry)
        return index

    def collect(self, from_offset: int, to_offset: int, found: list[AbortedTxn]) -> bool:
        """Add transactions that touch [from, to) to `found`. Return True if the search is over."""
        entries = self.entries
        start = bisect_left(entries, from_offset, key=attrgetter("last_offset"))
        for producer_id, first_offset, _, last_stable_offset in entries[start:]:
            if first_offset < to_offset:
                found.append(AbortedTxn(producer_id, first_offset))
            if last_stable_offset >= to_offset:
                return True
        return False
