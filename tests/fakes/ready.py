"""Connections in memory that are ready in the same turn: what `Reactor` is for sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from odradek.broker.environment.env import Take

POISON: Final = b"\xee"


@dataclass(eq=False)
class _Ready:
    received: bytearray
    take: Take
    rest: bytearray = field(default_factory=bytearray)
    served: trio.Event = field(default_factory=trio.Event)


def all_of(count: int) -> int:
    """Return how many of the connections that are ready a turn has: all of them."""
    return count


class ReadyTurns:
    """The turns of one listener. `draw` says how many of those that are ready each one has."""

    def __init__(self, end_turn: Callable[[], None], draw: Callable[[int], int] = all_of) -> None:
        self._end_turn = end_turn
        self._draw = draw
        self._ready: list[_Ready] = []
        self._news = trio.Event()
        self.gate: trio.Event | None = None
        """While it is not set, no turn begins."""

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            if self.gate is not None:
                await self.gate.wait()
            self._turn()

    async def offer(self, received: bytearray, take: Take) -> bytearray:
        """Give `take` what has arrived on a connection. Return what it does not take."""
        ready = _Ready(received, take)
        self._ready.append(ready)
        self._news.set()
        try:
            await ready.served.wait()
        finally:
            if ready in self._ready:
                self._ready.remove(ready)
        return ready.rest

    def _turn(self) -> None:
        count = self._draw(len(self._ready)) if self._ready else 0
        some, self._ready = self._ready[:count], self._ready[count:]
        if self._ready:
            self._news.set()
        for ready in some:
            taken, _ = ready.take(memoryview(ready.received))
            ready.rest = ready.received[taken:]
            ready.served.set()
        self._end_turn()
        for ready in some:  # this memory is another's now
            ready.received[:] = POISON * len(ready.received)
