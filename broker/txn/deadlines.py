"""Which of very many things is due next, without looking at them all.

`Deadlines` keeps a heap of when to look at what next. A thing whose deadline moved *later* (the
usual case: the next transaction of the same id) is not moved in the heap; it is looked at when its
old time comes, found not to be due, and put back. So a thing stands in the heap once, however many
transactions it has, and a transaction costs nothing here as long as an earlier look is planned.
A deadline that moved *sooner* leaves its old place behind; when most places are such, the heap is
made anew.
"""

import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

LEFT_BEHIND_MAX: Final = 32
"""Places that may be left behind beside as many again as are of use."""


class Deadlines(Generic[T]):
    """`due_at` tells a thing's deadline on trio's clock, in seconds; infinity is none.

    Things are told apart by identity, and must be hashable.
    """

    def __init__(self, due_at: Callable[[T], float]) -> None:
        self._due_at = due_at
        self._heap: list[tuple[float, int, T]] = []
        self._planned: dict[T, float] = {}
        self._sequence = count()
        self._sooner = trio.Event()

    def __len__(self) -> int:
        """How many looks are planned."""
        return len(self._heap)

    def watch(self, thing: T) -> None:
        """Call this when the deadline of `thing` has changed."""
        due = self._due_at(thing)
        if due < self._planned.get(thing, inf):
            self._plan(thing, due)
            if self._heap[0][2] is thing:
                self._sooner.set()

    def keep(self, is_kept: Callable[[T], bool]) -> None:
        """Forget everything else."""
        self._heap = [look for look in self._heap if is_kept(look[2])]
        heapq.heapify(self._heap)
        self._planned = {thing: due for thing, due in self._planned.items() if is_kept(thing)}

    async def wait(self) -> list[T]:
        """Everything that is due, as soon as something is. It is not watched any more."""
        while not (due := self._take()):
            self._sooner = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else inf):
                await self._sooner.wait()
        return due

    def _plan(self, thing: T, due: float) -> None:
        self._planned[thing] = due
        heapq.heappush(self._heap, (due, next(self._sequence), thing))
        if len(self._heap) > 2 * len(self._planned) + LEFT_BEHIND_MAX:
            self._heap = [look for look in self._heap if self._planned.get(look[2]) == look[0]]
            heapq.heapify(self._heap)

    def _take(self) -> list[T]:
        now = trio.current_time()
        due: list[T] = []
        while self._heap and self._heap[0][0] <= now:
            look, _, thing = heapq.heappop(self._heap)
            if self._planned.get(thing) != look:
                continue  # an earlier look was planned since
            del self._planned[thing]
            actual = self._due_at(thing)
            if actual <= now:
                due.append(thing)
            elif actual < inf:
                self._plan(thing, actual)
        return due
