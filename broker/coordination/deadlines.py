"""Deadlines of very many things, of which most move before they are due.

`Deadlines` keeps a heap of times at which it checks a thing. Usually a deadline moves *later*: a
member sends a heartbeat, or an id begins its next transaction. Its place in the heap then stays. At
the old time the thing turns out not to be due, and gets a new place. So a thing has one place in
the heap however often its deadline moves, and moving a deadline later costs nothing. A deadline
that moves *sooner* gets a new place, and the old place is left behind. When most places are left
behind, the heap is rebuilt.
"""

import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

LEFT_BEHIND_MAX: Final = 32
"""The number of places that may be left behind, besides as many as are in use."""

LOOKED_AT_MAX: Final = 1_000
"""The number of places that `take_soonest` looks at."""


class Deadlines(Generic[T]):
    """`due_at` returns a thing's deadline on trio's clock, in seconds; infinity means none.

    Things are compared by identity and must be hashable.
    """

    def __init__(self, due_at: Callable[[T], float]) -> None:
        self._due_at = due_at
        self._heap: list[tuple[float, int, T]] = []
        self._planned: dict[T, float] = {}
        self._sequence = count()
        self._sooner = trio.Event()

    def __len__(self) -> int:
        """Return the number of places in the heap."""
        return len(self._heap)

    def watch(self, thing: T) -> None:
        """Watch `thing`, whose deadline is new or has changed."""
        due = self._due_at(thing)
        if due < self._planned.get(thing, inf):
            self._plan(thing, due)
            if self._heap[0][2] is thing:
                self._sooner.set()

    def forget(self, thing: T) -> None:
        """Stop watching `thing`. The heap drops it later."""
        if self._planned.pop(thing, None) is not None:
            self._drop_what_is_left_behind()

    async def wait(self) -> list[T]:
        """Wait until something is due. Return everything that is, and stop watching it.

        Things come in the order of their deadlines; equal deadlines in the order of `watch`.
        """
        while not (due := self._take()):
            self._sooner = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else inf):
                await self._sooner.wait()
        return due

    def take_soonest(self, count: int) -> list[T]:
        """Stop watching things whose deadlines come next, and return up to `count` of them.

        It looks at no more than LOOKED_AT_MAX places: it may return fewer than there are.
        """
        taken: list[T] = []
        for _ in range(min(LOOKED_AT_MAX, len(self._heap))):
            if len(taken) == count:
                break
            look, _, thing = heapq.heappop(self._heap)
            if self._planned.get(thing) != look:
                continue
            del self._planned[thing]
            actual = self._due_at(thing)
            if actual <= look:
                taken.append(thing)
            elif actual < inf:
                self._plan(thing, actual)
        return taken

    def _plan(self, thing: T, due: float) -> None:
        self._planned[thing] = due
        heapq.heappush(self._heap, (due, next(self._sequence), thing))
        self._drop_what_is_left_behind()

    def _drop_what_is_left_behind(self) -> None:
        if len(self._heap) > 2 * len(self._planned) + LEFT_BEHIND_MAX:
            self._heap = [look for look in self._heap if self._planned.get(look[2]) == look[0]]
            heapq.heapify(self._heap)

    def _take(self) -> list[T]:
        now = trio.current_time()
        due: list[T] = []
        while self._heap and self._heap[0][0] <= now:
            look, _, thing = heapq.heappop(self._heap)
            if self._planned.get(thing) != look:
                continue  # a place that was left behind
            del self._planned[thing]
            actual = self._due_at(thing)
            if actual <= now:
                due.append(thing)
            elif actual < inf:
                self._plan(thing, actual)
        return due
