"""The encoder of Arrow columns to record batches, without a Python loop over rows.

The parts of every record (varints, key, more varints, value, headers) are columns. One
`binary_join_element_wise` joins the parts of each row, and the data buffer of the resulting column
is the records section of the batch. It encodes 4 million records of 116 bytes a second on one core.
A loop over records encodes 0.7 million.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.spark import varints
from odradek.client.spark.varints import Int64s, Varints
from odradek.late import dataclass
from odradek.protocol.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_SEQUENCE,
    Codec,
    set_crc,
)
from odradek.protocol.compression import compress

NULL_SIZE: Final = -1
"""The length that stands for null."""

RECORD_OVERHEAD_MAX_BYTES: Final = 5 + 1 + 1 + 5
"""The size of the other parts of a record: its length, attributes, a timestamp delta of 0, and an
offset delta."""

NO_HEADERS: Final = b"\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Records to write, as Arrow columns of one length.

    `key` and `value` are `pa.BinaryArray`s; `headers` is one too and has each record's header
    section as it is written (`encode_headers`). Without a key column all keys are null, without a
    headers column there are none.
    """

    value: Any
    key: Any = None
    headers: Any = None

    def __len__(self) -> int:
        return len(self.value)

    def slice(self, start: int, count: int) -> "RecordColumns":
        return self._each(lambda column: column.slice(start, count))

    def take(self, rows: Int64s) -> "RecordColumns":
        wanted = pa.array(rows)
        return self._each(lambda column: column.take(wanted))

    def _each(self, change: Any) -> "RecordColumns":
        return RecordColumns(
            value=change(self.value),
            key=None if self.key is None else change(self.key),
            headers=None if self.headers is None else change(self.headers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A record batch as it is sent, except for producer, sequence and base offset."""

    record_count: int
    data: bytes


class RecordTooLarge(ValueError):
    """A record does not fit into a batch. The message has its size, and `index` its place."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class HeaderWithoutKey(ValueError):
    """A header has no key, which Kafka refuses. `index` is the place of its record."""

    def __init__(self, index: int) -> None:
        super().__init__("a header has no key")
        self.index = index


def encode(
    columns: RecordColumns,
    *,
    timestamp_ms: int,
    batch_max_bytes: int,
    batch_full_bytes: int | None = None,
    codec: Codec = Codec.NONE,
) -> list[EncodedBatch]:
    """Return the records as batches of at most `batch_max_bytes` before compression, in order.

    A batch ends before it has more than `batch_full_bytes`, unless its first record alone has more.
    Every record gets `timestamp_ms`. Raises `RecordTooLarge` for a record larger than a batch.
    """
    upper_bounds = np.cumsum(_record_bounds(columns))
    room = batch_max_bytes - HEADER_BYTES
    full = room if batch_full_bytes is None else min(room, batch_full_bytes - HEADER_BYTES)
    batches = []
    start, used = 0, 0
    while start < len(columns):
        end = max(start + 1, int(np.searchsorted(upper_bounds, used + full, side="right")))
        if int(upper_bounds[end - 1]) - used > room:
            raise RecordTooLarge(
                f"a record takes {int(upper_bounds[start]) - used + HEADER_BYTES} bytes, "
                f"and a batch may have {batch_max_bytes}",
                start,
            )
        batches.append(encode_batch(columns.slice(start, end - start), timestamp_ms, codec))
        start, used = end, int(upper_bounds[end - 1])
    return batches


def encode_batch(columns: RecordColumns, timestamp_ms: int, codec: Codec) -> EncodedBatch:
    """Return one batch with all records of `columns`, which has at least one."""
    count = len(columns)
    assert count > 0
    records = compress(codec, _records(columns)) if codec else _records(columns)
    batch = bytearray(HEADER_BYTES + len(records))
    HEADER.pack_into(
        batch,
        0,
        0,  # base offset
        len(batch) - LENGTH_PREFIX_BYTES,
        -1,  # leader epoch
        MAGIC,
        0,  # CRC, below
        int(codec),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        -1,  # producer id
        -1,  # producer epoch
        NO_SEQUENCE,
        count,
    )
    batch[HEADER_BYTES:] = records
    set_crc(batch)
    return EncodedBatch(record_count=count, data=bytes(batch))


def encode_headers(headers: Any) -> Any:
    """Encode Spark's `array<struct<key string, value binary>>` as a `pa.BinaryArray` of sections.

    A null row has no headers. Raises `HeaderWithoutKey`.
    """
    counts = sizes_of(pc.list_value_length(headers), null=0)
    boundaries = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=boundaries[1:])
    entries = headers.flatten()
    keys, values = entries.field("key").cast(pa.binary()), entries.field("value")
    values = values.cast(pa.binary())
    if entries.null_count or keys.null_count:
        first = int(pc.index(pc.or_(entries.is_null(), keys.is_null()), True).as_py())
        raise HeaderWithoutKey(int(np.searchsorted(boundaries, first, side="right")) - 1)
    key_sizes, value_sizes = binary_sizes(keys), binary_sizes(values)
    pairs = _join(_varint_column(key_sizes), keys, _varint_column(value_sizes), values)
    sections = pa.ListArray.from_arrays(pa.array(varints.int32_offsets(boundaries)), pairs)
    return _join(_varint_column(counts), pc.binary_join(sections, b""))


def binary_sizes(column: Any) -> Int64s:
    """Return the sizes of a binary column's values; -1 for null, as they are written."""
    return sizes_of(pc.binary_length(column), null=NULL_SIZE)


def sizes_of(lengths: Any, *, null: int) -> Int64s:
    sizes: Int64s = pc.fill_null(lengths, null).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _record_bounds(columns: RecordColumns) -> Int64s:
    """Return an upper bound of each record's size in bytes, less than 12 bytes too large."""
    sizes = np.full(len(columns), RECORD_OVERHEAD_MAX_BYTES, dtype=np.int64)
    for column in (columns.key, columns.value):
        if column is None:
            sizes += 1
        else:
            content = binary_sizes(column)
            sizes += np.maximum(content, 0) + Varints.of(content).sizes
    return sizes + (1 if columns.headers is None else binary_sizes(columns.headers))


def _records(columns: RecordColumns) -> memoryview:
    """Return the records section of an uncompressed batch."""
    count = len(columns)
    zeros = np.zeros(count, dtype=np.int64)
    key_sizes = zeros + NULL_SIZE if columns.key is None else binary_sizes(columns.key)
    value_sizes = binary_sizes(columns.value)
    nothing = Varints.of(zeros)  # the attributes, and the timestamp delta
    offset_deltas = Varints.of(np.arange(count, dtype=np.int64))
    key_lengths, value_lengths = Varints.of(key_sizes), Varints.of(value_sizes)
    body = 2 * nothing.sizes + offset_deltas.sizes + key_lengths.sizes + value_lengths.sizes
    body += np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
    body += 1 if columns.headers is None else binary_sizes(columns.headers)
    parts = [
        varints.write([Varints.of(body), nothing, nothing, offset_deltas, key_lengths]),
        columns.key,
        varints.write([value_lengths]),
        columns.value,
        pa.scalar(NO_HEADERS, pa.binary()) if columns.headers is None else columns.headers,
    ]
    joined = _join(*(part for part in parts if part is not None))
    _, offsets, data = joined.buffers()
    end = int(np.frombuffer(offsets, dtype=np.int32)[joined.offset + count])
    return memoryview(data)[:end]


def _varint_column(values: Int64s) -> Any:
    return varints.write([Varints.of(values)])


def _join(*columns: Any) -> Any:
    """Join the values of each row. A null counts as empty."""
    separator = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(
        *columns, separator, null_handling="replace", null_replacement=""
    )
