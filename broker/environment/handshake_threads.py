"""The threads in which the steps of TLS handshakes run, and their queue.

The first step of the broker is the dear one: it signs, which takes 2 to 10 ms of a processor. A
ClientHello costs its sender nothing, so there may be more of them than can be served. Then a long
queue helps nobody: whoever is in it waits until its client has gone. So `FIRST_STEPS_WAITING` of
them wait, half a second, with RSA 4096 two, and those that come meanwhile are refused. Honest
clients that all come back at once, after a restart, find room or try again. Addresses take turns,
and when all places are taken the one with most of them loses one: a flood from a few addresses
refuses itself.

The later steps are cheap, and their clients have answered the first one: they are nearly done. So
they have a thread of their own and wait for no first step. (OpenSSL may ask a client for another
ClientHello. Then the broker signs in the second step, for which the client has worked, too.)

All of these threads give way to the loop, and to clients on the same machine (`giving_way.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import trio

from odradek.broker.environment.address_queue import AddressQueue, NoPlace
from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.environment.giving_way import call_yielding, give_way, processor_count
from odradek.broker.environment.threads import Threads

FIRST_STEPS_AT_ONCE: Final = min(2, processor_count())
"""Two threads would sign no more on one processor, and get twice the turns between those of the
loop."""
LATER_STEPS_AT_ONCE: Final = 1
FIRST_STEPS_WAITING: Final = 256
"""Fewer than the half of the places of handshakes, so that none of them is displaced."""


class StepThreads(Protocol):
    """The threads in which the steps of a handshake run."""

    async def run(self, step: Callable[[], bool], *, is_first: bool, peer: str) -> bool:
        """Run a step in a thread and return its result. Raises `HandshakeFailed`, and as `step`.

        `peer` is the address of the other side, with its port.
        """


class OwnHandshakes:
    """The threads of handshakes that this broker begins: they are few, and wait for no stranger."""

    async def run(self, step: Callable[[], bool], *, is_first: bool, peer: str) -> bool:
        try:
            return await trio.to_thread.run_sync(step)
        except RuntimeError as error:
            raise HandshakeFailed(f"the TLS handshake has no thread ({error})") from error


class HandshakeThreads:
    """The threads of one listener."""

    def __init__(self) -> None:
        self._threads = Threads("handshakes", FIRST_STEPS_AT_ONCE + LATER_STEPS_AT_ONCE, give_way)
        self._later = trio.CapacityLimiter(LATER_STEPS_AT_ONCE)
        self._queue = AddressQueue(
            at_once=FIRST_STEPS_AT_ONCE,
            places=FIRST_STEPS_WAITING,
            places_of_address=FIRST_STEPS_WAITING,
        )

    async def run(self, step: Callable[[], bool], *, is_first: bool, peer: str) -> bool:
        if not is_first:
            async with self._later:
                return await self._in_thread(step)
        try:
            async with self._queue.turn(peer.rpartition(":")[0]):
                return await self._in_thread(step)
        except NoPlace:
            raise HandshakeFailed("too many other TLS handshakes have begun") from None

    async def _in_thread(self, step: Callable[[], bool]) -> bool:
        try:
            return await self._threads.run(partial(call_yielding, step))
        except BlockingIOError as error:  # no step raises it: it works in memory
            raise HandshakeFailed(f"its TLS handshake has no thread ({error})") from error
