"""What compaction must know of transactions and producers while it goes through a log.

- Records of an aborted transaction go.
- A marker is needed as long as a batch of its transaction is there, be it an empty one; then its
  delete horizon is set, and after that it goes. Seen is seen: a marker that comes after data which
  this pass removes stays until the next pass finds nothing (KAFKA-8351, KAFKA-13727).
- The last batch of every producer that is known stays, if need be without records: after a loss of
  the checkpoint it says which epoch and sequence the producer had. Where a marker is the last that
  is known of it (TV2 bumps the epoch there), the marker stays.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from odradek.broker.storage.aborted import AbortedEntry
from odradek.broker.storage.producers import NO_OFFSET, ProducerEntry
from odradek.protocol.batch import BatchHeader


class LastBatch(NamedTuple):
    """The last that is known of a producer: its last records, and its last marker."""

    last_offset: int
    marker_offset: int


class Transactions:
    """Ask in the order of the log. `aborted` are all whose data may be in what is compacted."""

    def __init__(self, aborted: Iterable[AbortedEntry], producers: Iterable[ProducerEntry]) -> None:
        # per producer: where its aborted transactions begin, and their markers; both ascend
        self._aborted: dict[int, tuple[list[int], list[int]]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.last_offset):
            firsts, lasts = self._aborted.setdefault(entry.producer_id, ([], []))
            firsts.append(entry.first_offset)
            lasts.append(entry.last_offset)
        self._active = {
            entry.producer_id: LastBatch(entry.last_offset, entry.last_marker_offset)
            for entry in producers
        }
        self._seen: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch were not meant."""
        known = self._aborted.get(header.producer_id)
        if known is None or not header.is_transactional:
            return False
        firsts, lasts = known
        number = bisect_left(lasts, header.base_offset)
        return number < len(lasts) and firsts[number] <= header.base_offset

    def see(self, header: BatchHeader) -> None:
        """A batch with records, or what is left of one, is part of its transaction."""
        if header.is_transactional:
            self._seen.add(header.producer_id)

    def ends_nothing(self, header: BatchHeader) -> bool:
        """Whether there is no batch any more of the transaction that this marker ends."""
        if header.producer_id in self._seen:
            self._seen.remove(header.producer_id)
            return False
        return True

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch is the last that says what is known of an active producer."""
        last = self._active.get(header.producer_id)
        if last is None:
            return False
        if header.is_control:
            return last.last_offset == NO_OFFSET and last.marker_offset == header.base_offset
        return last.last_offset == header.last_offset
