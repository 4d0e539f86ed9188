"""The places of clients that are not known yet, and who goes when there are too many.

Two crowds share the places: clients whose handshake the broker has not answered yet, and those that
have made that progress. A whole ClientHello, or a whole handshake, is progress, and so is a
SaslHandshake or a challenge that was answered; a byte is none. Of
the second crowd one goes if it has more than half of the places, of the first one otherwise: the
one that has made no progress for the longest time.

So whoever sends nothing, or a byte a second, displaces only others that have sent no more; such a
flood cannot touch a handshake that is nearly done. A flood of ClientHellos, on the other hand, is
answered by the threads of `handshake_threads.py`, some hundred in a second, and takes that second
to fill half of the places. An honest client needs some milliseconds.
"""

from typing import Final

import trio

SHARE: Final = 2
"""The part of the places that clients which have made progress keep: a half."""


class HandshakePlaces:
    """The handshakes under way, by their cancel scopes, the longest without progress first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._silent: dict[trio.CancelScope, None] = {}
        self._answered: dict[trio.CancelScope, None] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._answered)

    def enter(self, scope: trio.CancelScope) -> None:
        """Take a place, of another client if there is no free one."""
        # invariant bounds 5: A client that is nearly known keeps its place among any number of
        # silent ones.
        # plant the oldest handshake goes
        if len(self) >= self._most:
            is_crowded = len(self._answered) > self._most // SHARE or not self._silent
            crowd = self._answered if is_crowded else self._silent
            displaced = next(iter(crowd))
            del crowd[displaced]  # at once: it ends later, and the next newcomer needs another one
            displaced.cancel()
        self._silent[scope] = None

    def note_progress(self, scope: trio.CancelScope) -> None:
        """Note that a client has sent what cannot be had for a byte."""
        if scope in self:
            self.leave(scope)
            self._answered[scope] = None

    def __contains__(self, scope: trio.CancelScope) -> bool:
        return scope in self._silent or scope in self._answered

    def leave(self, scope: trio.CancelScope) -> None:
        """Free the place of a client, if it still has one."""
        self._silent.pop(scope, None)
        self._answered.pop(scope, None)

    def cancel_all(self) -> None:
        """End all of them: the broker stops."""
        for scope in (*self._silent, *self._answered):
            scope.cancel()
