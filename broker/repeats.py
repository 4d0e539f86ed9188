"""Lines that repeat: the first ones are written, the others are counted.

A client, a full disk or a lack of file descriptors can cause the same line a thousand times a
second, and no log may fill a disk for that. So lines are counted by their cause. The first lines of
a cause are written at once. Those that follow within `seconds` are withheld, and when that time is
over the last of them is written with the number of the others, again and again while more come. A
cause that had nothing withheld for so long starts anew.

What is remembered is bounded: of very many causes the one that was quiet for longest is forgotten,
after what it withheld was told.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

Line = TypeVar("Line")

CAUSES_MAX: Final = 1_000


@dataclass(slots=True)
class _Cause(Generic[Line]):
    until: float
    left: int
    """How many more lines are written before `until`."""
    withheld: int = 0
    last: Line | None = None


class Repeats(Generic[Line]):
    """`tell` is called with the last line that was withheld, and how many were."""

    def __init__(self, tell: Callable[[Line, int], None], *, first: int, seconds: float) -> None:
        self._tell = tell
        self._first = first
        self._seconds = seconds
        self._causes: dict[Hashable, _Cause[Line]] = {}

    def __len__(self) -> int:
        return len(self._causes)

    @property
    def next_due(self) -> float:
        """When `tell_due` will have something to tell; infinity if nothing is withheld."""
        return min((each.until for each in self._causes.values() if each.withheld), default=inf)

    def admits(self, cause: Hashable, line: Line, now: float) -> bool:
        """Return True if `line` is to be written now; otherwise it is counted."""
        known = self._causes.pop(cause, None)
        if known is not None and now >= known.until:
            known = self._renewed(known, now)
        if known is None:
            known = _Cause(now + self._seconds, self._first)
        self._causes[cause] = known
        if len(self._causes) > CAUSES_MAX:
            self._renewed(self._causes.pop(next(iter(self._causes))), now)
        if known.left:
            known.left -= 1
            return True
        known.withheld += 1
        known.last = line
        return False

    def tell_due(self, now: float) -> None:
        """Tell what was withheld and whose time is over."""
        for cause, known in list(self._causes.items()):
            if now >= known.until:
                renewed = self._renewed(known, now)
                if renewed is None:
                    del self._causes[cause]
                else:
                    self._causes[cause] = renewed

    def tell_all(self) -> None:
        """Tell what was withheld, due or not, and forget every cause."""
        self.tell_due(inf)
        self._causes.clear()

    def _renewed(self, known: _Cause[Line], now: float) -> _Cause[Line] | None:
        """Tell what a cause withheld. It stays quiet if that was anything, and is over if not."""
        if known.last is None:
            return None
        self._tell(known.last, known.withheld)
        return _Cause(now + self._seconds, left=0)
