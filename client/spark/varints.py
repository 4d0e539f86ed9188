"""Kafka's varints (zigzag, base 128), a whole column at a time.

A record is mostly varints, and a Python loop over records takes longer than all other work of Spark
and this data source. So a column of numbers becomes a matrix with a row for each record and a
column for each byte that the largest number needs. A mask drops the bytes that smaller numbers do
not have.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

VARINT_MAX_BYTES: Final = 10
"""64 bits in groups of 7."""

_SIZE_LIMITS: Final = np.array([1 << 7 * size for size in range(1, 10)], dtype=np.uint64)
_SEVEN_BITS: Final = np.uint64(0x7F)
_CONTINUES: Final = 0x80


class Varints(NamedTuple):
    """A column of zigzagged numbers, with the number of bytes that each takes."""

    zigzagged: UInt64s
    sizes: Int64s

    @classmethod
    def of(cls, values: Int64s) -> "Varints":
        zigzagged = ((values << 1) ^ (values >> 63)).view(np.uint64)
        if len(values) == 0 or zigzagged.max() < 1 << 7:
            return cls(zigzagged, np.ones(len(values), dtype=np.int64))
        return cls(zigzagged, np.searchsorted(_SIZE_LIMITS, zigzagged, side="right") + 1)


def write(fields: list[Varints]) -> Any:
    """Return a `pa.BinaryArray` whose row i has the i-th varints of all fields, joined."""
    widths = [int(field.sizes.max(initial=1)) for field in fields]
    matrix = np.empty((len(fields[0].sizes), sum(widths)), dtype=np.uint8)
    used = np.ones(matrix.shape, dtype=np.bool_)
    column = 0
    for (zigzagged, sizes), width in zip(fields, widths, strict=True):
        for place in range(width):
            seven_bits = (zigzagged >> np.uint64(7 * place)) & _SEVEN_BITS
            continues = (sizes > place + 1).astype(np.uint8) * np.uint8(_CONTINUES)
            matrix[:, column + place] = seven_bits.astype(np.uint8) | continues
        if int(sizes.min(initial=width)) < width:
            used[:, column : column + width] = np.arange(width) < sizes[:, None]
        column += width
    written = matrix.reshape(-1) if used.all() else matrix[used]
    return binary_array(written, np.sum([field.sizes for field in fields], axis=0))


def binary_array(data: Bytes, sizes: Int64s) -> Any:
    """Return a `pa.BinaryArray` over `data` whose rows have `sizes` bytes, without a copy."""
    boundaries = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=boundaries[1:])
    offsets = int32_offsets(boundaries)
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def int32_offsets(boundaries: Int64s) -> npt.NDArray[np.int32]:
    """Return ascending positions as Arrow's 32-bit offsets. Raises `OverflowError` from 2 GiB."""
    if len(boundaries) and boundaries[-1] > np.iinfo(np.int32).max:
        raise OverflowError(
            f"{boundaries[-1]} bytes are too many for one Arrow column, which holds less than 2 GiB"
        )
    return boundaries.astype(np.int32)


def read(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Return the varints that begin at `positions`, and the positions behind them.

    `data` must have `VARINT_MAX_BYTES` more behind the last position. Of a varint that never ends,
    only `VARINT_MAX_BYTES` are read, and its value has no meaning.
    """
    byte = data[positions]
    value = (byte & 0x7F).astype(np.uint64)
    positions = positions + 1
    unfinished = np.flatnonzero(byte >= _CONTINUES)
    place = 1
    while len(unfinished) == len(positions) and len(positions) and place < VARINT_MAX_BYTES:
        byte = data[positions]
        value |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        positions += 1
        unfinished = np.flatnonzero(byte >= _CONTINUES)
        place += 1
    while len(unfinished) and place < VARINT_MAX_BYTES:
        byte = data[positions[unfinished]]
        value[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        positions[unfinished] += 1
        unfinished = unfinished[byte >= _CONTINUES]
        place += 1
    halved = (value >> np.uint64(1)).view(np.int64)
    return halved ^ -(value & np.uint64(1)).view(np.int64), positions
