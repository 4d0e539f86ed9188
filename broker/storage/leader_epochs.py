"""Which leader epoch began at which offset: how replicas and consumers find where logs part."""

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
    """(epoch, start offset), both ascending.

    A change makes a new list, as the scrubber looks at the old one in another thread: were entries
    to move under it, it would find damage where there is none.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self.entries = list(entries)

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else UNKNOWN_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`, unless it is known already or older."""
        if epoch <= self.latest:
            return
        # an epoch in which nothing was appended leaves no trace: the next one begins where it did
        kept = bisect_left(self.entries, start_offset, key=itemgetter(1))
        self.entries = [*self.entries[:kept], EpochStart(epoch, start_offset)]

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch <= `epoch` that is known, and where it ended.

        (-1, -1) if `epoch` is newer than any. Kafka's OffsetForLeaderEpoch (KIP-101, KIP-279).
        """
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        following = bisect_right(self.entries, epoch, key=itemgetter(0))
        if following == len(self.entries):
            return self.entries[-1].epoch, log_end_offset
        end = self.entries[following].start_offset
        return (self.entries[following - 1].epoch if following else epoch), end

    def at(self, offset: int) -> int:
        """The epoch in which `offset` was appended, or -1."""
        following = bisect_right(self.entries, offset, key=itemgetter(1))
        return self.entries[following - 1].epoch if following else UNKNOWN_EPOCH

    def span(self, offset: int) -> tuple[int, int]:
        """The epoch in which `offset` was appended, or -1, and where the next one begins."""
        entries = self.entries
        following = bisect_right(entries, offset, key=itemgetter(1))
        epoch = entries[following - 1].epoch if following else UNKNOWN_EPOCH
        return epoch, OFFSET_MAX if following == len(entries) else entries[following].start_offset

    def truncate_start(self, log_start_offset: int) -> None:
        """Let the epoch that holds `log_start_offset` begin there and forget those before it."""
        first = bisect_right(self.entries, log_start_offset, key=itemgetter(1)) - 1
        if first >= 0:
            begins = EpochStart(self.entries[first].epoch, log_start_offset)
            self.entries = [begins, *self.entries[first + 1 :]]
