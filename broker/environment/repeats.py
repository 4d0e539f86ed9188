"""Repeated lines: the first ones are written, the others are counted.

A client, a full disk or a lack of file descriptors can cause the same line a thousand times a
second. So lines are counted by their cause. The first lines of a cause are written at once. Those
that follow within `seconds` are withheld; at the end of that time the last of them is written with
the number of the others. That repeats while more lines come. A cause without withheld lines for
`seconds` starts anew.

The number of causes is bounded: beyond it the one that was quiet for longest is forgotten, after
its withheld lines are reported.
"""

from collections.abc import Callable, Hashable
from math import inf
from typing import Final, Generic, TypeVar

from odradek.late import dataclass

Line = TypeVar("Line")

CAUSES_MAX: Final = 1_000


@dataclass(slots=True)
class _Cause(Generic[Line]):
    until: float
    left: int
    """The number of lines that may still be written before `until`."""
    withheld: int = 0
    last: Line | None = None


class Repeats(Generic[Line]):
    """Calls `write` with the last withheld line of a cause and the number of withheld lines."""

    def __init__(self, write: Callable[[Line, int], None], *, first: int, seconds: float) -> None:
        self._write = write
        self._first = first
        self._seconds = seconds
        self._causes: dict[Hashable, _Cause[Line]] = {}

    def __len__(self) -> int:
        return len(self._causes)

    @property
    def next_due(self) -> float:
        """Return when `write_due` has a line to write; infinity if nothing is withheld."""
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

    def write_due(self, now: float) -> None:
        """Write the withheld lines whose time is over."""
        for cause, known in list(self._causes.items()):
            if now >= known.until:
                renewed = self._renewed(known, now)
                if renewed is None:
                    del self._causes[cause]
                else:
                    self._causes[cause] = renewed

    def write_all(self) -> None:
        """Write the withheld lines, due or not, and forget every cause."""
        self.write_due(inf)
        self._causes.clear()

    def _renewed(self, known: _Cause[Line], now: float) -> _Cause[Line] | None:
        """Write the withheld line of a cause and start its next interval; None without a line."""
        if known.last is None:
            return None
        self._write(known.last, known.withheld)
        return _Cause(now + self._seconds, left=0)
