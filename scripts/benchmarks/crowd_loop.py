"""Many connections on one thread: requests go out when they are due, answers come in any order.

A `Link` is one connection. A `Loop` waits for the answers of all of them, and for what is to be
called at a later time. So a thousand members of groups cost the measuring process little.
"""

import heapq
import selectors
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from odradek.protocol.api import Api
from odradek.protocol.connection import FrameReader
from scripts.benchmarks.many import Where
from tests.broker.raw import RawClient

GIVE_UP_SECONDS: Final = 120.0

Then = Callable[[Any], None]


class Loop:
    """The clock and the sockets of everything that takes part."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at a moment of `time.perf_counter`."""
        heapq.heappush(self._later, (moment, next(self._numbers), action))

    def add(self, link: "Link") -> None:
        self._selector.register(link.client.socket, selectors.EVENT_READ, link)

    def remove(self, link: "Link") -> None:
        self._selector.unregister(link.client.socket)

    def run_until(self, is_reached: Callable[[], bool], what: str) -> float:
        """Return the moment at which `is_reached` became true. Raises TimeoutError."""
        give_up_at = time.perf_counter() + GIVE_UP_SECONDS
        while not is_reached():
            now = time.perf_counter()
            if now > give_up_at:
                raise TimeoutError(f"{what}: not in {GIVE_UP_SECONDS:g} s")
            self._turn(now, give_up_at)
        return time.perf_counter()

    def run_for(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            self._turn(now, until)

    def _turn(self, now: float, until: float) -> None:
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        next_at = min(until, self._later[0][0]) if self._later else until
        for key, _ in self._selector.select(max(0.0, next_at - time.perf_counter())):
            key.data.receive()


class Link:
    """One connection, whose answers arrive in the order of its requests."""

    def __init__(self, loop: Loop, address: str, client_id: str) -> None:
        host, _, port = address.rpartition(":")
        self.client = RawClient(Where(host, int(port)), client_id)
        self._loop = loop
        self._frames = FrameReader()
        self._then: list[Then] = []
        self.is_closed = False
        loop.add(self)

    def ask(self, api: Api[Any, Any], version: int, message: object, then: Then) -> None:
        """Send a request. `then` is called with its answer."""
        self._then.append(then)
        self.client.request(api, version, message)

    def receive(self) -> None:
        """Take what has arrived, without waiting for more than that."""
        received = self.client.socket.recv_into(self._frames.buffer())
        if not received:
            raise ConnectionError("the broker closed a connection")
        self._frames.note_received(received)
        while (frame := self._frames.next_frame()) is not None:
            then = self._then.pop(0)
            then(self.client.answer_to(bytes(frame)))
            if self.is_closed:
                return

    def close(self) -> None:
        """Close without any goodbye, as the system of a killed process does."""
        self.is_closed = True
        self._loop.remove(self)
        self.client.socket.close()
