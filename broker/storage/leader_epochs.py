"""The leader epochs of a log and their start offsets, as in Kafka's leader epoch cache (KIP-101).

With them replicas and consumers find the offset at which two logs diverge. A follower that
truncated to its high watermark instead would lose acknowledged records.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1
OFFSET_MAX = 2**63 - 1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """A list of (epoch, start offset), both ascending.

    Each change makes a new list, because the scrubber reads the list in another thread. If entries
    moved during a scrub, it would report damage where there is none.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self.entries = list(entries)

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else UNKNOWN_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that starts at `start_offset`; ignore an epoch that is not newer."""
        if epoch <= self.latest:
            return
        # An earlier epoch with the same start has no records: the new one replaces it. Two entries
        # with one offset would give a follower conflicting answers (KAFKA-10706).
        kept = bisect_left(self.entries, start_offset, key=itemgetter(1))
        self.entries = [*self.entries[:kept], EpochStart(epoch, start_offset)]

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch` and its end offset (OffsetForLeaderEpoch).

        Return (-1, -1) if `epoch` is newer than all known epochs.
        """
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        # KIP-279: the answer names the epoch, which may be older than the one asked for. A follower
        # that lacks it too asks again, until both logs have the epoch.
        following = bisect_right(self.entries, epoch, key=itemgetter(0))
        if following == len(self.entries):
            return self.entries[-1].epoch, log_end_offset
        end = self.entries[following].start_offset
        return (self.entries[following - 1].epoch if following else epoch), end

    def at(self, offset: int) -> int:
        """Return the epoch in which `offset` was appended, or -1."""
        following = bisect_right(self.entries, offset, key=itemgetter(1))
        return self.entries[following - 1].epoch if following else UNKNOWN_EPOCH

    def span(self, offset: int) -> tuple[int, int]:
        """Return the epoch in which `offset` was appended, or -1, and the next epoch's start."""
        entries = self.entries
        following = bisect_right(entries, offset, key=itemgetter(1))
        epoch = entries[following - 1].epoch if following else UNKNOWN_EPOCH
        return epoch, OFFSET_MAX if following == len(entries) else entries[following].start_offset

    def truncate_end(self, log_end_offset: int) -> None:
        """Remove the epochs that start at `log_end_offset` or later: they have no records."""
        kept = bisect_left(self.entries, log_end_offset, key=itemgetter(1))
        if kept < len(self.entries):
            self.entries = self.entries[:kept]

    def truncate_start(self, log_start_offset: int) -> None:
        """Remove the epochs below `log_start_offset`; the epoch at that offset starts there."""
        first = bisect_right(self.entries, log_start_offset, key=itemgetter(1)) - 1
        if first >= 0:
            begins = EpochStart(self.entries[first].epoch, log_start_offset)
            self.entries = [begins, *self.entries[first + 1 :]]
