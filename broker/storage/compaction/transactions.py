"""Transactions and producers during a pass of compaction.

- Records of an aborted transaction are removed.
- A marker stays as long as the log has a batch of its transaction, even an empty one. Compaction
  then sets the marker's delete horizon and removes the marker after it. If this pass removes the
  last batch of the transaction, the marker still stays until the next pass (KAFKA-8351,
  KAFKA-13727).
- The last batch of every known producer stays, without records if necessary. If the checkpoint is
  lost, recovery finds the producer's epoch and sequence there. If the producer's last entry in the
  log is a marker (TV2 bumps the epoch there), the marker stays.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from odradek.broker.storage.aborted import AbortedEntry
from odradek.broker.storage.producer_entry import NO_OFFSET, ProducerEntry
from odradek.protocol.batch import BatchHeader


class LastBatch(NamedTuple):
    """The offsets of a producer's last batch and of its last marker."""

    last_offset: int
    marker_offset: int


class Transactions:
    """The transactions of a log, to be asked in the order of the log.

    `aborted` must have every aborted transaction with records in the compacted segments.
    """

    def __init__(self, aborted: Iterable[AbortedEntry], producers: Iterable[ProducerEntry]) -> None:
        # Per producer: the first offsets of its aborted transactions and their markers' offsets.
        # Both ascend, because a producer has one transaction at a time.
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
        """Return True if a batch belongs to an aborted transaction."""
        known = self._aborted.get(header.producer_id)
        if known is None or not header.is_transactional:
            return False
        firsts, lasts = known
        number = bisect_left(lasts, header.base_offset)
        return number < len(lasts) and firsts[number] <= header.base_offset

    def see(self, header: BatchHeader) -> None:
        """Note a batch of a transaction, with or without records."""
        if header.is_transactional:
            # invariant disk 7
            self._seen.add(header.producer_id)

    def ends_nothing(self, header: BatchHeader) -> bool:
        """Return True if the log has no batch of the transaction that this marker ended."""
        if header.producer_id in self._seen:
            self._seen.remove(header.producer_id)
            return False
        return True

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return True if the batch is the last one of a known producer."""
        last = self._active.get(header.producer_id)
        if last is None:
            return False
        if header.is_control:
            return last.last_offset == NO_OFFSET and last.marker_offset == header.base_offset
        return last.last_offset == header.last_offset
