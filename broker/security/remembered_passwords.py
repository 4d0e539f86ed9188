"""Passwords that were right, so that a client that comes again costs no second hash.

Kept is only an HMAC of the name, the password and the hash that it was compared with, under a key
that no one outside the process has. A user with another hash is therefore not remembered any more.
"""

import hmac
from typing import Final

PASSWORDS_MAX: Final = 10_000
"""The number of passwords that are remembered. The one that was not used for the longest goes."""


class RememberedPasswords:
    """The right passwords of one listener, the least recently used first."""

    def __init__(self, key: bytes) -> None:
        assert key, "anybody could make the HMAC"
        self._key = key
        self._seen: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def has(self, name: str, password: str, kept: str) -> bool:
        """Return True if a user has shown this password, and `kept` is still its hash."""
        mark = self._mark(name, password, kept)
        if mark not in self._seen:
            return False
        del self._seen[mark]
        self._seen[mark] = None
        return True

    def add(self, name: str, password: str, kept: str) -> None:
        """Remember a right password."""
        self._seen[self._mark(name, password, kept)] = None
        if len(self._seen) > PASSWORDS_MAX:
            del self._seen[next(iter(self._seen))]

    def _mark(self, name: str, password: str, kept: str) -> bytes:
        # Neither a name nor a password of PLAIN has a byte 0: no two users have the same text.
        text = "\0".join((name, password, kept))
        return hmac.digest(self._key, text.encode(errors="replace"), "sha256")
