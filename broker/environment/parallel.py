"""Wait for several flushes at once, because one after the other would add up."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from odradek.broker.environment.turns import Turns

T = TypeVar("T")

TASKS_MAX: Final = 64
"""The number of items that are worked on at the same time. A client chooses how many there are, and
trio runs all tasks that can run before it looks at the network again."""


async def for_each(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Run `work` for every item, many at the same time. A single item costs no task."""
    if len(items) == 1:
        await work(items[0])
        return
    waiting = iter(items)

    async def work_on_some() -> None:
        turns = Turns()
        for item in waiting:
            await turns.take(TASKS_MAX)  # all of these tasks may run in one pass of the loop
            await work(item)

    async with trio.open_nursery() as nursery:
        for _ in range(min(len(items), TASKS_MAX)):
            nursery.start_soon(work_on_some)
