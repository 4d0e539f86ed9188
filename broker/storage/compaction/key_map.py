"""The newest offset of each key, with bounded memory: Kafka's offset map of one pass."""

from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 160
"""The memory of an entry besides its key: its place in the dictionary and two objects."""
LONGEST_KEY: Final = 40
"""A longer key is stored as its hash, which is one byte longer and so never equals a key."""


class KeyMap:
    """A map of key -> newest offset that takes new keys until it has `max_bytes`."""

    __slots__ = ("_max_bytes", "_offsets", "_size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Set the newest offset of `key`. Return False if there is no room for it.

        The first key always fits, so that each pass makes progress.
        """
        if len(key) > LONGEST_KEY:
            key = _hash(key)
        offsets = self._offsets
        if key not in offsets:
            size_bytes = self._size_bytes + ENTRY_BYTES + len(key)
            if size_bytes > self._max_bytes and offsets:
                return False
            self._size_bytes = size_bytes
        offsets[key] = offset
        return True

    def newest(self, key: bytes) -> int:
        """Return the newest offset of `key`, or -1."""
        return self._offsets.get(_hash(key) if len(key) > LONGEST_KEY else key, -1)


def _hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=LONGEST_KEY + 1).digest()
