"""The decoder of record batches to Arrow columns, almost without a Python loop over rows.

The start of a record is known only from the length of the record before it. Records of one size are
common, and are found all at once: assume that the next thousand records have the length of this
one, and check that each length field agrees. If sizes vary, a small loop reads only the lengths.
All further steps work on columns, over all batches of a fetch together, so many small batches cost
little more than a large one.

The broker does not check records, and a producer may have written anything. So each size is checked
before it is used, and an inconsistent batch raises `KafkaError(CORRUPT_MESSAGE)`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.client.spark import varints
from odradek.client.spark.varints import VARINT_MAX_BYTES, Bytes, Int64s
from odradek.late import dataclass
from odradek.protocol.batch import HEADER_BYTES, BatchHeader, Codec, TimestampType
from odradek.protocol.compression import Decompressed, decompress, release
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import Buffer

Batch = tuple[BatchHeader, Buffer | Decompressed]
"""A batch's header and its records section, decompressed (`records_section`)."""

PADDING: Final = bytes(2 * VARINT_MAX_BYTES)
"""The bytes behind the last record, so a varint that is cut off there can be read and refused."""

RECORD_MIN_BYTES: Final = 7
"""Length, attributes, two deltas, two lengths of null, no headers."""

LENGTH_MAX_BYTES: Final = 5
"""The bytes of a length, which has 32 bits. Without a limit the time grows with their square."""

FIRST_STRIDE: Final = 8
STRIDE_GROWTH: Final = 4
STRIDE_MAX: Final = 1 << 20
ROWS_MAX: Final = 250_000
"""The records that are decoded at once. Their columns take about 50 MB, besides their bytes."""
WALKED_AT_ONCE: Final = 100_000
BROKEN_STRIDES_MAX: Final = 8
"""The failed strides in a row after which the decoder walks, because the sizes vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecords:
    """Records as columns: numpy for numbers, Arrow for bytes.

    `headers` is a `pa.ListArray` of `struct<key: string, value: binary>`, null for a record without
    any, or None if it was not asked for.
    """

    offsets: Int64s
    timestamps_ms: Int64s
    timestamp_types: Int64s
    keys: Any
    values: Any
    headers: Any

    def __len__(self) -> int:
        return len(self.offsets)


class _Blobs(NamedTuple):
    """The places of a column of byte strings: [start, end) of each, empty for a null."""

    starts: Int64s
    ends: Int64s
    is_null: Any


def records_section(header: BatchHeader, batch: Buffer) -> Buffer | Decompressed:
    """Return the records section of a batch, decompressed. Raises `KafkaError` if that fails."""
    section = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    return decompress(header.codec, section) if header.codec != Codec.NONE else section


def decode(
    batches: Sequence[Batch], *, start_offset: int, end_offset: int, with_headers: bool
) -> Iterator[DecodedRecords]:
    """Yield the records of `batches` with offsets in [start_offset, end_offset), in pieces.

    The CRCs must have been checked, and no batch is a control batch. The sections are released, so
    they can be read only once. A batch of 6 KB may have 9 million records, and each column of them
    takes 72 MB, so at most `ROWS_MAX` are decoded at once. Raises `KafkaError(CORRUPT_MESSAGE)`.
    """
    columns = _BatchColumns.of([header for header, _ in batches])
    data, heads = _find_records(batches)
    for first in range(0, max(len(heads), 1), ROWS_MAX):
        owners = columns.owners(first, min(first + ROWS_MAX, len(heads)))
        rows = _decode_rows(data, heads[first : first + ROWS_MAX], columns, owners)
        yield _wanted(data, rows, start_offset, end_offset, with_headers=with_headers)


class _BatchColumns(NamedTuple):
    """The header fields of batches as columns, with one row for each batch."""

    ends: Int64s
    """The number of records up to and with each batch."""
    types: Int64s
    base_offsets: Int64s
    last_offset_deltas: Int64s
    base_timestamps: Int64s

    @classmethod
    def of(cls, headers: Sequence[BatchHeader]) -> "_BatchColumns":
        return cls(
            np.cumsum(_int64s([header.record_count for header in headers])),
            _int64s([header.timestamp_type for header in headers]),
            _int64s([header.base_offset for header in headers]),
            _int64s([header.last_offset_delta for header in headers]),
            _int64s([_base_timestamp(header) for header in headers]),
        )

    def owners(self, first: int, end: int) -> Int64s:
        """Return the index of the batch of each of the records [first, end)."""
        return np.searchsorted(self.ends, np.arange(first, end), side="right")


class _Rows(NamedTuple):
    """Records whose numbers are read. Keys begin at `positions`, records end at `ends`."""

    offsets: Int64s
    timestamps: Int64s
    types: Int64s
    positions: Int64s
    ends: Int64s


def _decode_rows(data: bytes, heads: Int64s, columns: _BatchColumns, owners: Int64s) -> _Rows:
    view = np.frombuffer(data, dtype=np.uint8)
    sizes, positions = varints.read(view, heads)
    ends = positions + sizes
    time_deltas, positions = varints.read(view, positions + 1)  # 1: the attributes, unused
    offset_deltas, positions = varints.read(view, positions)
    # With another offset a record would be left out as one of another range, or read twice.
    if not ((offset_deltas >= 0) & (offset_deltas <= columns.last_offset_deltas[owners])).all():
        raise _corrupt("a record has an offset that is not in the range of its header")
    types = columns.types[owners]
    return _Rows(
        offsets=columns.base_offsets[owners] + offset_deltas,
        timestamps=columns.base_timestamps[owners]
        + time_deltas * (types == TimestampType.CREATE_TIME),
        types=types,
        positions=positions,
        ends=ends,
    )


def _wanted(
    data: bytes, rows: _Rows, start_offset: int, end_offset: int, *, with_headers: bool
) -> DecodedRecords:
    """Return the rows with offsets in [start_offset, end_offset) as records."""
    is_wanted = (rows.offsets >= start_offset) & (rows.offsets < end_offset)
    if not is_wanted.all():
        rows = _Rows(*(column[is_wanted] for column in rows))
    view = np.frombuffer(data, dtype=np.uint8)
    keys = _read_blobs(view, rows.positions, rows.ends)
    values = _read_blobs(view, keys.ends, rows.ends)
    key_column, value_column = _gather(data, keys, values)
    return DecodedRecords(
        offsets=rows.offsets,
        timestamps_ms=rows.timestamps,
        timestamp_types=rows.types,
        keys=key_column,
        values=value_column,
        headers=_decode_headers(data, view, values.ends, rows.ends) if with_headers else None,
    )


def _int64s(numbers: list[Any]) -> Int64s:
    return np.array(numbers, dtype=np.int64)


def _base_timestamp(header: BatchHeader) -> int:
    is_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    return header.max_timestamp if is_append_time else header.base_timestamp


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record batch contradicts itself: {why}")


def _find_records(batches: Sequence[Batch]) -> tuple[bytes, Int64s]:
    """Return all records in one buffer, and the position of each record's length in it."""
    data = b"".join([*(section for _, section in batches), PADDING])
    heads = [np.zeros(0, dtype=np.int64)]
    position = 0
    for header, section in batches:
        size_bytes = len(section)
        if isinstance(section, Decompressed):
            release(section)
        if not 0 <= header.record_count <= size_bytes // RECORD_MIN_BYTES:
            raise _corrupt(f"{header.record_count} records in {size_bytes} bytes")
        heads.append(_find_heads(data, position, position + size_bytes, header.record_count))
        position += size_bytes
    return data, np.concatenate(heads)


def _find_heads(data: bytes, position: int, end: int, count: int) -> Int64s:
    """Return the positions of the lengths of `count` records that fill [position, end) exactly."""
    heads = np.empty(count, dtype=np.int64)
    try:
        found, position = _stride(data, position, end, heads)
        for first in range(found, count, WALKED_AT_ONCE):
            some = heads[first : first + WALKED_AT_ONCE]
            some[:], position = _walk(data, position, len(some))
    except IndexError:
        raise _corrupt("its records go on behind its end") from None
    if position != end:
        raise _corrupt(f"its records end {position - end:+} bytes from its end")
    return heads


def _stride(data: bytes, position: int, end: int, heads: Int64s) -> tuple[int, int]:
    """Fill `heads` from runs of records of one size. Return their number, and the next position.

    Each length is read at the end of the record before it, so a run whose lengths all agree is
    correct and no longer an assumption.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    found, guess, broken = 0, FIRST_STRIDE, 0
    while found < len(heads) and broken < BROKEN_STRIDES_MAX:
        size, body = _read_length(data, position)
        stride = body + size - position
        possible = min(len(heads) - found, guess, (end - position) // stride)
        if possible < 1:
            raise _corrupt("its records go on behind its end")
        candidates = position + stride * np.arange(possible)
        same = np.ones(possible, dtype=np.bool_)
        for place in range(body - position):
            same &= view[candidates + place] == data[position + place]
        run = possible if same.all() else int(np.argmin(same))
        heads[found : found + run] = candidates[:run]
        found, position = found + run, position + run * stride
        broken = broken + 1 if run < min(possible, FIRST_STRIDE) else 0
        guess = min(guess * STRIDE_GROWTH, STRIDE_MAX) if run == possible else FIRST_STRIDE
    return found, position


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return a record's length, and the position behind it. Raises `KafkaError`, `IndexError`."""
    byte = data[position]
    position += 1
    zigzagged, place = byte & 0x7F, 7
    while byte >= 0x80:
        if place == 7 * LENGTH_MAX_BYTES:
            raise _corrupt(f"a length has more than {LENGTH_MAX_BYTES} bytes")
        byte = data[position]
        position += 1
        zigzagged |= (byte & 0x7F) << place
        place += 7
    if zigzagged & 1:
        raise _corrupt("a record has a negative length")
    return zigzagged >> 1, position


def _walk(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return the positions of `count` lengths, read one by one. Most lengths have 2 bytes."""
    heads = [0] * count
    for number in range(count):
        heads[number] = position
        byte = data[position]
        if byte < 0x80:
            zigzagged = byte
            position += 1
        else:
            second = data[position + 1]
            if second < 0x80:
                zigzagged = (byte & 0x7F) | second << 7
                position += 2
            else:
                size, position = _read_length(data, position)
                zigzagged = size << 1
        if zigzagged & 1:
            raise _corrupt("a record has a negative length")
        position += zigzagged >> 1
    return heads, position


def _read_blobs(view: Bytes, positions: Int64s, ends: Int64s) -> _Blobs:
    """Return the byte strings with their lengths at `positions`. None may reach behind `ends`."""
    _check(positions <= ends)
    sizes, starts = varints.read(view, positions)
    is_null = sizes < 0
    _check((sizes >= -1) & (sizes <= ends - starts))
    return _Blobs(starts, starts + np.maximum(sizes, 0), is_null)


def _check(is_inside: Any) -> None:
    if not is_inside.all():
        raise _corrupt("something in a record reaches behind the record's end")


def _gather(data: bytes, *columns: _Blobs) -> list[Any]:
    """Return each column as a `pa.BinaryArray`.

    One array covers the buffer without a copy. Its boundaries are start and end of the first
    column's row, then of the second column's row, and so on, so every second element is a gap.
    `take` then collects the elements of a column in C++.
    """
    rows = len(columns[0].starts)
    step = 2 * len(columns)
    boundaries = np.zeros(step * rows + 1, dtype=np.int64)
    for number, blobs in enumerate(columns):
        boundaries[2 * number : -1 : step] = blobs.starts
        boundaries[2 * number + 1 : -1 : step] = blobs.ends
    boundaries[-1] = boundaries[-2] if rows else 0
    offsets = pa.py_buffer(varints.int32_offsets(boundaries))
    whole = pa.Array.from_buffers(pa.binary(), step * rows, [None, offsets, pa.py_buffer(data)])
    return [
        whole.take(_rows(np.arange(2 * number, step * rows, step), blobs.is_null))
        for number, blobs in enumerate(columns)
    ]


def _rows(rows: Int64s, is_null: Any) -> Any:
    return pa.array(rows, mask=is_null) if is_null.any() else pa.array(rows)


def _decode_headers(data: bytes, view: Bytes, positions: Int64s, ends: Int64s) -> Any:
    """Return the headers of all records, with a loop over the first, second, ... header."""
    _check(positions < ends)
    counts, positions = varints.read(view, positions)
    # A header has at least two lengths.
    _check((counts >= 0) & (2 * counts <= ends - positions))
    rows = np.flatnonzero(counts)
    owners, keys, values = [], [], []
    number = 0
    positions = positions[rows]
    while len(rows):
        key = _read_blobs(view, positions, ends[rows])
        value = _read_blobs(view, key.ends, ends[rows])
        if key.is_null.any():
            raise _corrupt("a header has no key")
        owners.append(rows)
        keys.append(key)
        values.append(value)
        number += 1
        more = counts[rows] > number
        rows, positions = rows[more], value.ends[more]
    if not owners:
        entries = pa.array([], HEADER_TYPE)
    else:
        order = np.argsort(np.concatenate(owners), kind="stable")
        key_column, value_column = _gather(
            data, _concatenate(keys, order), _concatenate(values, order)
        )
        entries = pa.StructArray.from_arrays(
            [_as_text(key_column), value_column], fields=list(HEADER_TYPE)
        )
    boundaries = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=boundaries[1:])
    return pa.ListArray.from_arrays(
        pa.array(varints.int32_offsets(boundaries)),
        entries,
        type=pa.list_(HEADER_TYPE),
        mask=pa.array(counts == 0),
    )


HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])


def _concatenate(blobs: list[_Blobs], order: Int64s) -> _Blobs:
    return _Blobs(*(np.concatenate(field)[order] for field in zip(*blobs, strict=True)))


def _as_text(column: Any) -> Any:
    """Return a binary column as text. Bytes that are not UTF-8 are replaced, as in Java."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in column.to_pylist()])
