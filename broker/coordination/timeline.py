"""The changes that are in the log of a coordinator and not in its state yet.

A change enters the timeline when its records are appended, and leaves it by being *replayed*, which
makes the next state. The changes are replayed in log order, and each of them once, whichever of the
tasks that wait for the log wakes first: that task also replays what stands before its own change.

A replay is `Work`, because one batch may change ten thousand things. The tasks share it. Between
two of its steps another task may take the next ones, so the order stays that of the log, and a
change is complete when any of them has passed it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from odradek.broker.environment.work import Work
from odradek.late import dataclass

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class _Uncommitted(Generic[C]):
    change: C
    next_offset: int
    replay: Work[None]


class Timeline(Generic[C]):
    """`replay` applies a change, whose first record has the offset, to the state."""

    def __init__(self, replay: Callable[[C, int], Work[None]]) -> None:
        self._replay = replay
        self._changes: deque[_Uncommitted[C]] = deque()

    def __iter__(self) -> Iterator[C]:
        """Yield the changes in log order, with one that is being replayed."""
        return (each.change for each in self._changes)

    def add(self, change: C, base_offset: int, next_offset: int) -> None:
        """Add the change of records that were appended from `base_offset` to `next_offset`."""
        last = self._changes[-1].next_offset if self._changes else 0
        assert last <= base_offset < next_offset, (last, base_offset, next_offset)
        replay = self._replay(change, base_offset)
        self._changes.append(_Uncommitted(change, next_offset, replay))

    def forget(self, change: C) -> None:
        """Remove a change without replaying it. Changes are compared by identity."""
        self._changes = deque(each for each in self._changes if each.change is not change)

    def clear(self) -> None:
        self._changes.clear()

    def replayed_below(self, next_offset: int) -> Work[None]:
        """Replay the changes whose records stand below `next_offset`."""
        while self._changes and self._changes[0].next_offset <= next_offset:
            first = self._changes[0]
            # Not `yield from`: a task that is cancelled here would close what the others share.
            while (steps := next(first.replay, None)) is not None:
                yield steps
            if self._changes and self._changes[0] is first:
                self._changes.popleft()
