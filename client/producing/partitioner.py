"""The choice of a record's partition: by key as in every Kafka client, without a key in runs.

A key's partition is `murmur2(key) & 0x7fffffff % count`, so all clients agree. Records without a
key go to one partition until it has received a batch's worth, and then to another one, chosen at
random (KIP-794). That makes large batches, and fills the partitions evenly over time.
"""

import random
import struct
from typing import Final

from odradek.client.config import Partitioner
from odradek.client.errors import Refused
from odradek.protocol.errors import ErrorCode

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
HASHES_KEPT: Final = 10_000
"""Hashes that are kept: keys repeat, and hashing a key takes longer than encoding its record."""


def murmur2(key: bytes) -> int:
    """Return Kafka's variant of MurmurHash2 as an unsigned 32-bit number."""
    size = len(key)
    value = (_SEED ^ size) & _MASK
    words = size >> 2
    for word in struct.unpack_from(f"<{words}I", key):
        word = word * _M & _MASK
        value = (value * _M & _MASK) ^ ((word ^ word >> 24) * _M & _MASK)
    rest = size & 3
    if rest:
        value ^= int.from_bytes(key[size - rest :], "little")
        value = value * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


class DefaultPartitioner:
    """Kafka's default partitioner. Each producer has its own, with the runs of its topics."""

    def __init__(self, rng: random.Random, run_bytes: int) -> None:
        self._rng = rng
        self._run_bytes = run_bytes
        self._hashes: dict[bytes, int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}

    def of_key(self, key: bytes, partition_count: int) -> int:
        hashed = self._hashes.get(key)
        if hashed is None:
            if len(self._hashes) >= HASHES_KEPT:
                self._hashes.clear()
            hashed = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return hashed % partition_count

    def without_key(self, topic: str, size_bytes: int, partition_count: int) -> int:
        """Return the partition of the run that a record of this size joins."""
        partition, left = self._sticky.get(topic, (-1, 0))
        if left <= 0 or partition >= partition_count:
            partition = self._next(partition, partition_count)
            left = self._run_bytes
        self._sticky[topic] = (partition, left - size_bytes)
        return partition

    def _next(self, before: int, partition_count: int) -> int:
        """Return a random partition other than `before`, if there is another."""
        if not 0 <= before < partition_count or partition_count == 1:
            return self._rng.randrange(partition_count)
        chosen = self._rng.randrange(partition_count - 1)
        return chosen + 1 if chosen >= before else chosen


class RecordPartitioner:
    """The choice of a record's partition by the program's partitioner, or else by the default."""

    def __init__(self, custom: Partitioner | None, rng: random.Random, run_bytes: int) -> None:
        self._custom = custom
        self._default = DefaultPartitioner(rng, run_bytes)

    def choose(
        self,
        topic: str,
        key: bytes | None,
        size_bytes: int,
        count: int,
        led: tuple[int, ...],
    ) -> int:
        """Choose the partition of a record, as Kafka's clients do.

        `led` has the partitions with a leader, or nothing if all have one. A record without a key
        goes to one of them. Raises `Refused` if the program's partitioner chooses another number.
        """
        if self._custom is not None:
            chosen = self._custom(topic, key, count)
            if not 0 <= chosen < count:
                raise Refused(
                    f"the partitioner chose partition {chosen} of {topic!r}, which has 0 to "
                    f"{count - 1}",
                    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            return chosen
        if key is not None:
            return self._default.of_key(key, count)
        if led:  # records of a partition without a leader would wait
            return led[self._default.without_key(topic, size_bytes, len(led))]
        return self._default.without_key(topic, size_bytes, count)
