"""Wait for news of many partitions at once, as a long poll does, without polling them.

A watch is one event, registered with every source that the reader looks at. It is registered before
the reader looks, so that nothing is missed between looking and waiting, and taken away again
however the reader ends, so that a cancelled one leaves nothing behind.
"""

from collections.abc import Iterable
from typing import Protocol

import trio


class Notified(Protocol):
    """A reader that can be registered with a source of news."""

    def notify(self) -> None: ...


class News:
    """A source of news: it wakes what is registered with it."""

    __slots__ = ("watches",)

    def __init__(self) -> None:
        self.watches: dict[Notified, None] = {}

    def notify(self) -> None:
        for watch in self.watches:
            watch.notify()


class Watch:
    """Wakes one reader when any of several sources has news. Enter it before looking."""

    __slots__ = ("_event", "_sources")

    def __init__(self, sources: Iterable[News]) -> None:
        self._sources = tuple(dict.fromkeys(sources))
        self._event = trio.Event()

    def __enter__(self) -> "Watch":
        for source in self._sources:
            source.watches[self] = None
        return self

    def __exit__(self, *exc: object) -> None:
        for source in self._sources:
            del source.watches[self]

    def notify(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait until something has changed since the watch began, or since the last `wait`."""
        await self._event.wait()
        self._event = trio.Event()
