"""Waiting for several disks at once: one flush after the other would add up."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

T = TypeVar("T")


async def for_each(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do `work` for every item at the same time. The usual single one costs no task."""
    if len(items) == 1:
        await work(items[0])
        return
    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(work, item)
