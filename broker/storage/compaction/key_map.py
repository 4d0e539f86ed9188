"""At which offset each key was last seen: the memory of one pass of compaction, bounded."""

from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 160
"""What an entry takes besides its key: its place in the dictionary and two objects."""
LONGEST_KEY: Final = 40
"""A longer key is known by its hash, one byte longer so that it is no key itself."""


class KeyMap:
    """Key -> offset. It takes new keys until it has `max_bytes`."""

    __slots__ = ("_max_bytes", "_offsets", "_size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Note that `key` is at `offset`, later than before; False if there is no room for it.

        The first key is always taken, so that there is some progress.
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
        """The offset at which `key` was seen last, or -1."""
        return self._offsets.get(_hash(key) if len(key) > LONGEST_KEY else key, -1)


def _hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=LONGEST_KEY + 1).digest()
