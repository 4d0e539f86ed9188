"""A queue of clients in which each address has a turn after the other.

What waits here costs the broker much and its clients nothing, so strangers could keep everybody
else waiting. Clients that are known already go first. Of the others each address has a turn after
the other, and some places only. When all places are taken, the address with most of them loses one
to an address with fewer.

An address of version 6 is its network of 64 bits: whoever has one has all of it.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

NETWORK_CHARACTERS: Final = 19
"""The length of the whole text of a network of 64 bits."""


class NoPlace(Exception):
    """Too many wait already."""


def network_of(host: str) -> str:
    """Return the address of a client; of version 6, the network that it is in."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped
    return address.exploded[:NETWORK_CHARACTERS] if mapped is None else str(mapped)


class _Waiter:
    """A client that waits for its turn, or for the loss of its place."""

    def __init__(self) -> None:
        self.called = trio.Event()
        self.has_lost = False


class AddressQueue:
    """Lets `at_once` clients have their turn; `places` wait, `places_of_address` of one address."""

    def __init__(self, *, at_once: int, places: int, places_of_address: int) -> None:
        self._free = at_once
        self._places = places
        self._places_of_address = places_of_address
        self._known: deque[_Waiter] = deque()
        self._strangers: dict[str, deque[_Waiter]] = {}
        """By network, in the order of their turns. None is empty."""
        self._count = 0

    @property
    def waiting(self) -> int:
        """The number of strangers that wait."""
        return self._count

    @asynccontextmanager
    async def turn(self, host: str, *, is_known: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of a client, and have it inside.

        Raises `NoPlace` if there is no place for it, or if another address takes its place.
        """
        if self._free:
            self._free -= 1
        else:
            await (self._wait_known() if is_known else self._wait(network_of(host)))
        try:
            yield
        finally:
            self._call_next()

    def _call_next(self) -> None:
        """Pass a turn on, to a waiter that has it from now on."""
        if self._known:
            self._known.popleft().called.set()
        elif self._strangers:
            network, waiters = next(iter(self._strangers.items()))
            del self._strangers[network]
            waiters.popleft().called.set()
            self._count -= 1
            if waiters:
                self._strangers[network] = waiters  # behind all other networks
        else:
            self._free += 1

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

    async def _wait(self, network: str) -> None:
        waiter = self._enter(network)
        try:
            await waiter.called.wait()
        except trio.Cancelled:
            if waiter in self._strangers.get(network, ()):
                self._leave(network, waiter)
            elif not waiter.has_lost:
                self._call_next()  # its turn came before it could leave
            raise
        if waiter.has_lost:
            raise NoPlace

    def _enter(self, network: str) -> _Waiter:
        own = len(self._strangers.get(network, ()))
        if own >= self._places_of_address:
            raise NoPlace
        if self._count >= self._places:
            crowd, waiters = max(self._strangers.items(), key=lambda each: len(each[1]))
            if len(waiters) <= own + 1:
                raise NoPlace
            displaced = waiters[-1]
            self._leave(crowd, displaced)
            displaced.has_lost = True
            displaced.called.set()
        waiter = _Waiter()
        self._strangers.setdefault(network, deque()).append(waiter)
        self._count += 1
        return waiter

    def _leave(self, network: str, waiter: _Waiter) -> None:
        waiters = self._strangers[network]
        waiters.remove(waiter)
        self._count -= 1
        if not waiters:
            del self._strangers[network]
