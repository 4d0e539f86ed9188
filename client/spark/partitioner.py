"""The choice of each row's partition, as in Kafka's clients, a column at a time.

A row's own partition column comes first. A key is hashed with murmur2 as in every Kafka client, so
rows with one key go to one partition, whichever client writes them. Rows with neither go to one
partition for a while, which makes few large batches instead of many small ones (KIP-794).
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from odradek.client.spark.batch_encoder import binary_sizes
from odradek.client.spark.varints import Int64s

UInt32s = npt.NDArray[np.uint32]

STICKY_BYTES: Final = 256 * 1024
"""The bytes after which rows without a key go to the next partition."""

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(keys: Any) -> UInt32s:
    """Return Kafka's 32-bit murmur2 of each key of a `pa.BinaryArray`; a null counts as empty."""
    sizes = np.maximum(binary_sizes(keys), 0)
    _, offsets, content = keys.buffers()
    boundaries = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys)]
    starts = boundaries.astype(np.int64)
    data = np.frombuffer(content, dtype=np.uint8) if content is not None else _no_bytes()
    with np.errstate(over="ignore"):
        hashes = np.full(len(keys), _SEED, dtype=np.uint32) ^ sizes.astype(np.uint32)
        rows = np.flatnonzero(sizes >= 4)
        block = 0
        while len(rows):
            hashes[rows] = _mix(hashes[rows], _word(data, starts[rows] + 4 * block))
            block += 1
            rows = rows[sizes[rows] >= 4 * (block + 1)]
        return _finish(_mix_tail(hashes, data, starts + (sizes & ~3), sizes & 3))


def murmur2_positive(keys: Any) -> Int64s:
    """Return the hash of Kafka's default partitioner, before the modulo of the partition count."""
    return (murmur2(keys) & np.uint32(_POSITIVE)).astype(np.int64)


def sticky_partitions(sizes_bytes: Int64s, partition_counts: int | Int64s, first: int) -> Int64s:
    """Return partitions for rows without keys: runs of `STICKY_BYTES`, beginning with `first`."""
    before = np.cumsum(sizes_bytes) - sizes_bytes
    return (before // STICKY_BYTES + first) % partition_counts


def _no_bytes() -> npt.NDArray[np.uint8]:
    return np.zeros(0, dtype=np.uint8)


def _word(data: npt.NDArray[np.uint8], positions: Int64s) -> UInt32s:
    word = data[positions].astype(np.uint32)
    for place in (1, 2, 3):
        word |= data[positions + place].astype(np.uint32) << np.uint32(8 * place)
    return word


def _mix(hashes: UInt32s, words: UInt32s) -> UInt32s:
    words = words * _M
    words ^= words >> _R
    return (hashes * _M) ^ (words * _M)


def _mix_tail(
    hashes: UInt32s, data: npt.NDArray[np.uint8], starts: Int64s, sizes: Int64s
) -> UInt32s:
    """Mix in the 1 to 3 bytes behind the last whole word."""
    for place in (2, 1, 0):
        rows = np.flatnonzero(sizes > place)
        hashes[rows] ^= data[starts[rows] + place].astype(np.uint32) << np.uint32(8 * place)
    rows = np.flatnonzero(sizes)
    hashes[rows] *= _M
    return hashes


def _finish(hashes: UInt32s) -> UInt32s:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes
