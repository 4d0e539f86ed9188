"""The lag of a group over an hour, in records and in seconds. Pure.

The lag in seconds is the time since the ends of the logs were where the group is now. It follows
from the samples, so it is known once the group has come past the end of the first one.
"""

from collections import deque
from typing import Final, NamedTuple

from odradek.client.web.lanes import KEPT_MS

BUCKET_MS: Final = 300_000
"""The samples of this time are one row, which is sent again while it grows."""


class LagSample(NamedTuple):
    at_ms: int
    lag: int
    """The offsets to the ends of the logs."""
    pinned: int
    """Those of them behind the last stable offsets, which committed readers cannot get yet."""
    end: int
    """The sum of the ends."""


class LagHistory:
    def __init__(self) -> None:
        self._samples: deque[LagSample] = deque()

    def add(self, sample: LagSample) -> None:
        self._samples.append(sample)
        while self._samples[0].at_ms < sample.at_ms - KEPT_MS:
            self._samples.popleft()

    def buckets(self) -> dict[int, list[list[int]]]:
        """Return time, lag and pinned part of all samples, by the time at which a row begins."""
        found: dict[int, list[list[int]]] = {}
        for each in self._samples:
            begin_ms = each.at_ms - each.at_ms % BUCKET_MS
            found.setdefault(begin_ms, []).append([each.at_ms, each.lag, each.pinned])
        return found

    def behind_ms(self) -> int | None:
        """Return how long ago the ends were where the group is now; None if that is not known."""
        last = self._samples[-1]
        if last.lag == 0:
            return 0
        place = last.end - last.lag
        later = last
        for each in reversed(self._samples):
            if each.end <= place:
                grown = later.end - each.end
                part = (place - each.end) / grown if grown else 0.0
                return round(last.at_ms - (each.at_ms + part * (later.at_ms - each.at_ms)))
            later = each
        return None
