"""Wait for news of many partitions at once, as a long poll does, without polling them.

A watch is one event, registered with every partition that the reader looks at. It is registered
before the reader looks, so that nothing is missed between looking and waiting, and taken away again
however the reader ends, so that a cancelled one leaves nothing behind.
"""

from collections.abc import Iterable
from typing import Protocol

import trio


class Watched(Protocol):
    """A source of news: it calls `notify` of every watch in `watches`."""

    @property
    def watches(self) -> dict["Watch", None]: ...


class Watch:
    """Wakes one reader when any of several partitions has news. Made by `Partitions.watch`."""

    __slots__ = ("_event", "_partitions")

    def __init__(self, partitions: Iterable[Watched]) -> None:
        self._partitions = tuple(dict.fromkeys(partitions))
        self._event = trio.Event()

    def __enter__(self) -> "Watch":
        for partition in self._partitions:
            partition.watches[self] = None
        return self

    def __exit__(self, *exc: object) -> None:
        for partition in self._partitions:
            del partition.watches[self]

    def notify(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait until something has changed since the watch began, or since the last `wait`."""
        await self._event.wait()
        self._event = trio.Event()
