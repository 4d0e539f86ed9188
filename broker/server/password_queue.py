"""The order in which passwords are hashed: one at a time, and a turn for each address.

A hash takes a tenth of a second and 32 MiB, so strangers could keep everybody else waiting. Clients
that are known, and authenticate again, go first. Of the others each address has a turn after the
other, and some places only. When all places are taken, the address with most of them loses one to
an address with fewer.

A client without a place is disconnected without an answer, before anything is looked up. Clients
come again after that; a refusal in words would end them, though their password is right.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from odradek.protocol.errors import ProtocolError

PLACES_OF_ADDRESS: Final = 8
PLACES: Final = 64
"""The clients that wait for their turn: the last one has it before its 10 seconds are over."""


class _Waiter:
    """A client that waits for its turn, or for the loss of its place."""

    def __init__(self) -> None:
        self.called = trio.Event()
        self.has_lost = False


class PasswordQueue:
    """The clients of one listener whose passwords are to be hashed."""

    def __init__(self) -> None:
        self._is_busy = False
        self._known: deque[_Waiter] = deque()
        self._strangers: dict[str, deque[_Waiter]] = {}
        """By address, in the order of their turns. None is empty."""
        self._count = 0

    @property
    def waiting(self) -> int:
        """The number of strangers that wait."""
        return self._count

    @asynccontextmanager
    async def turn(self, address: str, *, is_known: bool) -> AsyncIterator[None]:
        """Wait for the turn of a client, and have it inside.

        Raises ProtocolError if there is no place for it.
        """
        if self._is_busy:
            await (self._wait_known() if is_known else self._wait(address))
        self._is_busy = True
        try:
            yield
        finally:
            self._call_next()

    def _call_next(self) -> None:
        self._is_busy = bool(self._known or self._strangers)
        if self._known:
            self._known.popleft().called.set()
        elif self._strangers:
            address, waiters = next(iter(self._strangers.items()))
            del self._strangers[address]
            waiters.popleft().called.set()
            self._count -= 1
            if waiters:
                self._strangers[address] = waiters  # behind all other addresses

    async def _wait_known(self) -> None:
        waiter = _Waiter()
        self._known.append(waiter)
        try:
            await waiter.called.wait()
        except trio.Cancelled:
            if waiter in self._known:
                self._known.remove(waiter)
            else:
                self._call_next()  # its turn came before it could leave
            raise

    async def _wait(self, address: str) -> None:
        waiter = self._enter(address)
        try:
            await waiter.called.wait()
        except trio.Cancelled:
            if waiter in self._strangers.get(address, ()):
                self._leave(address, waiter)
            elif not waiter.has_lost:
                self._call_next()  # its turn came before it could leave
            raise
        if waiter.has_lost:
            raise _no_place()

    def _enter(self, address: str) -> _Waiter:
        own = len(self._strangers.get(address, ()))
        if own >= PLACES_OF_ADDRESS:
            raise _no_place()
        if self._count >= PLACES:
            crowd, waiters = max(self._strangers.items(), key=lambda each: len(each[1]))
            if len(waiters) <= own + 1:
                raise _no_place()
            displaced = waiters[-1]
            self._leave(crowd, displaced)
            displaced.has_lost = True
            displaced.called.set()
        waiter = _Waiter()
        self._strangers.setdefault(address, deque()).append(waiter)
        self._count += 1
        return waiter

    def _leave(self, address: str, waiter: _Waiter) -> None:
        waiters = self._strangers[address]
        waiters.remove(waiter)
        self._count -= 1
        if not waiters:
            del self._strangers[address]


def _no_place() -> ProtocolError:
    return ProtocolError("too many passwords wait to be hashed")
