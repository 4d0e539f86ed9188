"""Turns: other tasks run while one works through something whose length a client chose.

Trio switches tasks only at checkpoints. A loop over 200,000 items without one stops every other
client until it ends. Such a loop counts its steps here:

    turns = Turns()
    for topic in request.topics:
        await turns.take(1 + len(topic.partitions))
        ...

A pure function yields the number of its steps (`work.py`), and `Turns.do` takes the turns.

Work that cannot be cut into steps (parsing, decompression) goes through `Env.offload` instead.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import trio

from odradek.broker.environment.work import Work

T = TypeVar("T")
R = TypeVar("R")
H = TypeVar("H", bound=Hashable)

STEPS_PER_TURN: Final = 500
"""Steps between two checkpoints. A step is a few microseconds of Python: what one item costs."""

STEPS_PER_TAKE: Final = 100
"""Items that `Turns.map` takes at once."""


# invariant bounds 3: A request of many items does not hold up other clients: handlers take turns.
# Nor does a large consumer group.
# tests/broker/environment/test_turns.py
# tests/broker/group/test_large_groups.py
# plant members that are late are removed in one piece
class Turns:
    """Counts the steps of one piece of work. Each piece has its own counter."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_PER_TURN

    async def take(self, steps: int = 1) -> None:
        """Count `steps`; execute a checkpoint if STEPS_PER_TURN have been counted since the last.

        Call it before the work that it counts. It may be cancelled there, and any state may change
        meanwhile: read again what must still hold.
        """
        self._left -= steps
        if self._left <= 0:
            self._left = STEPS_PER_TURN
            await trio.lowlevel.checkpoint()

    async def do(self, work: Work[R]) -> R:
        """Return the result of `work`, whose steps are taken in turns, as `take` describes."""
        while True:
            left = self._left
            try:
                while left > 0:
                    left -= next(work)
            except StopIteration as done:
                result: R = done.value
                return result
            finally:
                self._left = left
            self._left = STEPS_PER_TURN
            await trio.lowlevel.checkpoint()

    async def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return `work(item)` for every item; each item is one step."""
        made: list[R] = []
        for start in range(0, len(items), STEPS_PER_TAKE):
            some = items[start : start + STEPS_PER_TAKE]
            await self.take(len(some))
            made += map(work, some)
        return made

    async def repeated(self, counts: dict[H, int]) -> list[H]:
        """Return what is there several times, of what `distinct` has counted."""
        found = []
        for item, count in counts.items():
            await self.take()
            if count > 1:
                found.append(item)
        return found

    async def distinct(self, items: Iterable[H]) -> dict[H, int]:
        """Return how often each item is there, in the order of the first of them."""
        counts: dict[H, int] = {}
        for item in items:
            await self.take()
            counts[item] = counts.get(item, 0) + 1
        return counts


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut `items` into parts of `size`. Without items there is one empty part."""
    for start in range(0, max(len(items), 1), size):
        yield items[start : start + size]
