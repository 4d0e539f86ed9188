"""The places of clients that are not known yet, and who goes when there are too many.

A client is as far as its last progress: it is silent, it has begun (its ClientHello was answered,
or it has chosen a mechanism of SASL), or it has agreed on TLS and is to authenticate. A byte is no
progress. Each crowd may displace those that are no further than itself: one of the furthest crowd
goes if that has more than half of the places, otherwise one of the first crowd that has any.

So whoever sends nothing, or a byte a second, displaces only others that have sent no more, and
ClientHellos, which cost their sender nothing, displace no client that has agreed on TLS. Of a
crowd, one at the address with most places goes, the one that has made no progress for the longest
time. So a flood from a few addresses displaces itself. (An address of version 6 is its network of
64 bits: whoever has one has all of it.)
"""

from enum import IntEnum, auto
from itertools import count
from typing import Final

import trio

SHARE: Final = 2
"""The part of the places that clients which have made progress keep: a half."""


class HandshakeProgress(IntEnum):
    """The progress of a client that is not known yet."""

    SILENT = auto()
    BEGUN = auto()
    """Its ClientHello, or its SaslHandshake, was answered."""
    HAS_TLS = auto()
    """It has agreed on TLS, and authenticates."""


class _Crowd:
    """Clients that are equally far, by their addresses, the longest without progress first."""

    def __init__(self) -> None:
        self._of: dict[str, dict[trio.CancelScope, int]] = {}
        self._count = 0
        self._next_number = count()

    def __len__(self) -> int:
        return self._count

    def add(self, scope: trio.CancelScope, address: str) -> None:
        self._of.setdefault(address, {})[scope] = next(self._next_number)
        self._count += 1

    def remove(self, scope: trio.CancelScope, address: str) -> None:
        scopes = self._of[address]
        del scopes[scope]
        self._count -= 1
        if not scopes:
            del self._of[address]

    def next_to_go(self) -> trio.CancelScope:
        """Return the first client at the address that has most; of equal ones the oldest."""

        def weight(scopes: dict[trio.CancelScope, int]) -> tuple[int, int]:
            return len(scopes), -next(iter(scopes.values()))

        crowd = max(self._of.values(), key=weight)
        return next(iter(crowd))


class HandshakePlaces:
    """The handshakes under way, by their cancel scopes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._crowds = {each: _Crowd() for each in HandshakeProgress}
        self._places: dict[trio.CancelScope, tuple[HandshakeProgress, str]] = {}
        """How far each client is, and its address."""

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, scope: trio.CancelScope, peer: str) -> None:
        """Take a place, of another client if there is no free one. `peer` has the port."""
        # Most brokers have no TLS, and a start is almost only imports.
        from odradek.broker.environment.address_queue import network_of

        # invariant bounds 5: A client that is nearly known keeps its place among any number of
        # silent ones, and of ClientHellos.
        # plant the oldest handshake goes
        if len(self) >= self._most:
            displaced = self._crowd_to_shrink().next_to_go()
            self.leave(displaced)  # at once: it ends later, and the next newcomer needs another one
            displaced.cancel()
        self._add(scope, HandshakeProgress.SILENT, network_of(peer.rpartition(":")[0]))

    def _crowd_to_shrink(self) -> _Crowd:
        for progress in (HandshakeProgress.HAS_TLS, HandshakeProgress.BEGUN):
            if len(self._crowds[progress]) > self._most // SHARE:
                return self._crowds[progress]
        return next(crowd for crowd in self._crowds.values() if crowd)

    def note_progress(
        self, scope: trio.CancelScope, progress: HandshakeProgress = HandshakeProgress.BEGUN
    ) -> None:
        """Note that a client has sent what cannot be had for a byte."""
        if scope in self:
            before, address = self._places[scope]
            self.leave(scope)
            self._add(scope, max(before, progress), address)

    def _add(self, scope: trio.CancelScope, progress: HandshakeProgress, address: str) -> None:
        self._places[scope] = progress, address
        self._crowds[progress].add(scope, address)

    def __contains__(self, scope: trio.CancelScope) -> bool:
        return scope in self._places

    def leave(self, scope: trio.CancelScope) -> None:
        """Free the place of a client, if it still has one."""
        place = self._places.pop(scope, None)
        if place is not None:
            progress, address = place
            self._crowds[progress].remove(scope, address)

    def cancel_all(self) -> None:
        """End all of them: the broker stops."""
        for scope in self._places:
            scope.cancel()
