"""Columns become batches that other clients read, and other clients' batches become columns."""

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from odradek.client.spark import batch_decoder, partitioner, varints
from odradek.client.spark.batch_decoder import DecodedRecords, decode, records_section
from odradek.client.spark.batch_encoder import (
    EncodedBatch,
    HeaderWithoutKey,
    RecordColumns,
    RecordTooLarge,
    encode,
    encode_headers,
)
from odradek.client.spark.columns import arrow_schema, to_arrow
from odradek.client.spark.offsets import OffsetRange
from odradek.client.spark.varints import Varints
from odradek.protocol.batch import HEADER_BYTES, Codec, crc_is_good, read_header, set_crc
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.varint import encode_varint
from tests.broker.poison import WITH_KEY, WITHOUT_KEY, crowd
from tests.drawing import given, st

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

blobs = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=140)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3
)
rows_of_any_kind = st.lists(st.tuples(blobs, blobs, headers), min_size=1, max_size=90)
codecs = st.sampled_from(list(Codec))


def columns_of(rows: list[Row]) -> RecordColumns:
    return RecordColumns(
        key=pa.array([row[0] for row in rows], pa.binary()),
        value=pa.array([row[1] for row in rows], pa.binary()),
        headers=encode_headers(
            pa.array([_header_dicts(row[2]) for row in rows], type=HEADERS_TYPE)
        ),
    )


def _header_dicts(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


def decode_all(batches: list[EncodedBatch] | list[bytes], **wanted: Any) -> DecodedRecords:
    given = [batch.data if isinstance(batch, EncodedBatch) else batch for batch in batches]
    wanted = {"start_offset": 0, "end_offset": 1 << 62, "with_headers": True} | wanted
    parsed = [(read_header(batch), batch) for batch in given]
    sections = [(header, records_section(header, batch)) for header, batch in parsed]
    (found,) = decode(sections, **wanted)
    return found


def with_base_offset(batch: bytes, base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + batch[8:]


@given(rows_of_any_kind, codecs)
def test_two_other_parsers_read_what_is_encoded(rows: list[Row], codec: Codec) -> None:
    [batch] = encode(columns_of(rows), timestamp_ms=1234, batch_max_bytes=1 << 20, codec=codec)
    assert batch.record_count == len(rows)
    assert crc_is_good(batch.data, read_header(batch.data))
    parsers = [DefaultRecordBatch]
    if codec in (Codec.NONE, Codec.GZIP):  # kafka-python needs more packages for the others
        parsers.append(KafkaPythonBatch)
    for parser in parsers:
        parsed = parser(batch.data)
        assert parsed.validate_crc()
        assert [
            (record.offset, record.timestamp, record.key, record.value, list(record.headers))
            for record in parsed
        ] == [
            (offset, 1234, key, value, list(headers or []))
            for offset, (key, value, headers) in enumerate(rows)
        ]


@given(rows_of_any_kind, codecs, st.integers(min_value=HEADER_BYTES + 400, max_value=4000))
def test_what_is_encoded_is_decoded_again(rows: list[Row], codec: Codec, max_bytes: int) -> None:
    batches = encode(columns_of(rows), timestamp_ms=7, batch_max_bytes=max_bytes, codec=codec)
    assert codec or all(len(batch.data) <= max_bytes for batch in batches)
    placed, offset = [], 100
    for batch in batches:
        placed.append(with_base_offset(batch.data, offset))
        offset += batch.record_count
    decoded = decode_all(placed)
    assert decoded.offsets.tolist() == list(range(100, 100 + len(rows)))
    assert set(decoded.timestamps_ms.tolist()) == {7}
    assert decoded.keys.to_pylist() == [row[0] for row in rows]
    assert decoded.values.to_pylist() == [row[1] for row in rows]
    assert decoded.headers.to_pylist() == [_header_dicts(row[2]) or None for row in rows]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 41), blobs, blobs, st.lists(st.tuples(st.text(max_size=3), blobs))
        ),
        min_size=1,
        max_size=40,
    ),
    codecs,
)
def test_another_clients_batch_is_decoded(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: Codec
) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, headers)
    decoded = decode_all([bytes(builder.build())])
    assert decoded.timestamps_ms.tolist() == [row[0] for row in rows]
    assert decoded.keys.to_pylist() == [row[1] for row in rows]
    assert decoded.values.to_pylist() == [row[2] for row in rows]
    assert decoded.headers.to_pylist() == [_header_dicts(row[3]) or None for row in rows]


@pytest.mark.parametrize("sizes", [[100] * 9000, list(range(1, 400)) * 3, [5, 5, 9] * 700])
def test_records_are_found_whether_their_sizes_repeat_or_not(sizes: list[int]) -> None:
    values = pa.array([bytes([size % 251]) * size for size in sizes], pa.binary())
    batches = encode(RecordColumns(value=values), timestamp_ms=0, batch_max_bytes=1 << 20)
    decoded = decode_all(batches, with_headers=False)
    assert decoded.values.equals(values)
    assert decoded.keys.null_count == len(sizes)
    assert decoded.headers is None


def test_only_offsets_of_the_range_are_decoded() -> None:
    values = pa.array([b"%d" % number for number in range(10)], pa.binary())
    [batch] = encode(RecordColumns(value=values), timestamp_ms=0, batch_max_bytes=1 << 20)
    placed = with_base_offset(batch.data, 40)
    decoded = decode_all([placed], start_offset=43, end_offset=46)
    assert decoded.offsets.tolist() == [43, 44, 45]
    assert decoded.values.to_pylist() == [b"3", b"4", b"5"]
    assert len(decode_all([placed], start_offset=50)) == 0


def test_a_batch_with_log_append_time_has_one_time_for_all() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in range(3):
        builder.append(offset, 1000 + offset, b"k", b"v", [])
    batch = bytearray(builder.build())
    batch[22] |= 0x08
    batch[35:43] = (5555).to_bytes(8, "big")
    set_crc(batch)
    decoded = decode_all([bytes(batch)])
    assert decoded.timestamps_ms.tolist() == [5555] * 3
    assert decoded.timestamp_types.tolist() == [1] * 3


def test_a_time_that_spark_cannot_hold_is_null_and_no_other_time() -> None:
    limit_ms = (2**63 - 1) // 1000
    nanoseconds = 1_700_000_000_000_000_000  # as a producer writes them that mistakes the unit
    values = []
    for time_ms in (0, -1, limit_ms, -limit_ms, limit_ms + 1, nanoseconds, -(2**63)):
        columns = RecordColumns(value=pa.array([b"v"]))
        [batch] = encode(columns, timestamp_ms=time_ms, batch_max_bytes=1 << 20)
        place = OffsetRange(topic="t", partition=0, start=0, end=1)
        schema = arrow_schema(include_headers=False)
        decoded = decode_all([batch.data], with_headers=False)
        column = to_arrow(decoded, place, schema).column("timestamp")
        values += column.cast(pa.int64()).to_pylist()
    assert values == [0, -1000, limit_ms * 1000, -limit_ms * 1000, None, None, None]


def test_a_header_key_that_is_not_text_is_read_with_replacements() -> None:
    headers = pa.array([[{"key": "ab", "value": b"x"}]], HEADERS_TYPE)
    columns = RecordColumns(value=pa.array([b"v"]), headers=encode_headers(headers))
    [batch] = encode(columns, timestamp_ms=0, batch_max_bytes=1 << 20)
    damaged = bytearray(batch.data.replace(b"ab", b"a\xff"))
    set_crc(damaged)
    assert decode_all([bytes(damaged)]).headers.to_pylist() == [[{"key": "a�", "value": b"x"}]]


@pytest.mark.parametrize("wrong", [{"key": None, "value": b"x"}, None])
def test_a_header_without_a_key_is_refused_by_its_row(wrong: dict[str, Any] | None) -> None:
    right = {"key": "a", "value": b"x"}
    headers = pa.array([None, [right], [], [right, wrong], [wrong]], HEADERS_TYPE)
    with pytest.raises(HeaderWithoutKey) as caught:
        encode_headers(headers)
    assert caught.value.index == 3


def test_a_record_larger_than_a_batch_is_refused() -> None:
    columns = RecordColumns(value=pa.array([b"small", b"x" * 2000], pa.binary()))
    with pytest.raises(
        RecordTooLarge, match=r"a record takes 20\d\d bytes, and a batch may have 1000"
    ):
        encode(columns, timestamp_ms=0, batch_max_bytes=1000)


def test_a_full_batch_ends_and_a_record_that_is_larger_has_one_of_its_own() -> None:
    values = [b"a" * 300, b"b" * 300, b"c" * 5000, b"d" * 300, b"e" * 300, b"f" * 300]
    columns = RecordColumns(value=pa.array(values, pa.binary()))
    batches = encode(columns, timestamp_ms=0, batch_max_bytes=10_000, batch_full_bytes=800)
    assert [batch.record_count for batch in batches] == [2, 1, 2, 1]
    assert [len(batch.data) <= 800 for batch in batches] == [True, False, True, True]
    whole = encode(columns, timestamp_ms=0, batch_max_bytes=10_000, batch_full_bytes=20_000)
    assert [batch.record_count for batch in whole] == [6]
    with pytest.raises(RecordTooLarge, match="a batch may have 4000"):
        encode(columns, timestamp_ms=0, batch_max_bytes=4000, batch_full_bytes=800)


def test_slices_of_columns_are_encoded_as_what_they_are() -> None:
    rows: list[Row] = [(b"k%d" % n, b"v%d" % n, [("h", b"%d" % n)]) for n in range(20)]
    rows[7] = (None, None, None)
    sliced = columns_of(rows).slice(5, 6)
    decoded = decode_all(encode(sliced, timestamp_ms=0, batch_max_bytes=1 << 20))
    assert decoded.keys.to_pylist() == [row[0] for row in rows[5:11]]
    assert decoded.values.to_pylist() == [row[1] for row in rows[5:11]]
    taken = columns_of(rows).take(np.array([19, 0], dtype=np.int64))
    decoded = decode_all(encode(taken, timestamp_ms=0, batch_max_bytes=1 << 20))
    assert decoded.headers.to_pylist() == [
        [{"key": "h", "value": b"19"}],
        [{"key": "h", "value": b"0"}],
    ]


@given(st.data())
def test_a_damaged_batch_never_decodes_to_anything_but_rows_or_corrupt_message(
    data: st.DataObject,
) -> None:
    rows: list[Row] = [(b"key%d" % n, b"v" * (n % 5), [("h", None)]) for n in range(12)]
    [batch] = encode(columns_of(rows), timestamp_ms=0, batch_max_bytes=1 << 20)
    damaged = bytearray(batch.data)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(57, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    codes = []
    try:
        decoded = decode_all([bytes(damaged)])
    except KafkaError as error:
        codes.append(error.code)
    else:
        assert len(decoded.keys) == len(decoded.values) == len(decoded.headers) == len(decoded)
    assert set(codes) <= {ErrorCode.CORRUPT_MESSAGE}


@pytest.mark.parametrize("delta", [-1, 2])
def test_an_offset_that_the_header_does_not_announce_is_refused(delta: int) -> None:
    batch = encode_batch([Record(key=None, value=b"v")] * 2, base_offset=7)
    start_of_second = HEADER_BYTES + (len(batch) - HEADER_BYTES) // 2
    assert batch[start_of_second + 3 : start_of_second + 4] == encode_varint(1)
    batch[start_of_second + 3 : start_of_second + 4] = encode_varint(delta)
    set_crc(batch)
    with pytest.raises(KafkaError, match="not in the range of its header") as refusal:
        decode_all([bytes(batch)])
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_length_that_does_not_end_is_not_read_to_the_end_of_its_batch() -> None:
    batch = encode_batch([Record(key=None, value=bytes(100))])
    batch[HEADER_BYTES:] = b"\xff" * (len(batch) - HEADER_BYTES)
    set_crc(batch)
    with pytest.raises(KafkaError, match="a length has more than 5 bytes") as refusal:
        decode_all([bytes(batch)])
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("record", [WITH_KEY, WITHOUT_KEY])
def test_a_small_batch_of_many_records_is_decoded_in_pieces(record: bytes) -> None:
    """All columns of it were in memory at once: of 9 million records, gigabytes."""
    batch = bytes(crowd(1_000_000, record=record))
    header = read_header(batch)
    tracemalloc.start()
    try:
        pieces = decode(
            [(header, records_section(header, batch))],
            start_offset=0,
            end_offset=1 << 62,
            with_headers=True,
        )
        count = sum(len(piece) for piece in pieces)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 1_000_000
    assert peak_bytes < 90_000_000


def test_records_of_many_batches_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [
        bytes(encode_batch([Record(key=b"%d" % n, value=b"v" * n)] * n, base_offset=10 * n))
        for n in range(1, 9)
    ]
    whole = decode_all(batches)
    monkeypatch.setattr(batch_decoder, "ROWS_MAX", 5)
    monkeypatch.setattr(batch_decoder, "WALKED_AT_ONCE", 3)
    sections = [
        (read_header(batch), records_section(read_header(batch), batch)) for batch in batches
    ]
    pieces = list(decode(sections, start_offset=0, end_offset=1 << 62, with_headers=True))
    assert [len(piece) for piece in pieces] == [5] * 7 + [1]
    for name in ("offsets", "timestamps_ms", "keys", "values"):
        found = [value for piece in pieces for value in getattr(piece, name).tolist()]
        assert found == getattr(whole, name).tolist()


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_varints_are_read_as_they_were_written(numbers: list[int]) -> None:
    column = Varints.of(np.array(numbers, dtype=np.int64))
    written = varints.write([column])
    assert [len(value) for value in written.to_pylist()] == column.sizes.tolist()
    data = b"".join(written.to_pylist()) + bytes(varints.VARINT_MAX_BYTES)
    starts = np.cumsum(column.sizes) - column.sizes
    read, following = varints.read(np.frombuffer(data, dtype=np.uint8), starts)
    assert read.tolist() == numbers
    assert following.tolist() == (starts + column.sizes).tolist()


def test_more_than_two_gibibytes_are_refused_by_name() -> None:
    with pytest.raises(OverflowError, match="2147483648 bytes are too many"):
        varints.int32_offsets(np.array([0, 1 << 31], dtype=np.int64))


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1))
def test_keys_go_where_other_clients_send_them(keys: list[bytes | None]) -> None:
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert partitioner.murmur2(column).tolist() == [
        kafka_python_murmur2(key or b"") for key in keys
    ]
    assert partitioner.murmur2_positive(column).tolist() == [
        kafka_python_murmur2(key or b"") & 0x7FFFFFFF for key in keys
    ]


def test_rows_without_keys_stick_to_a_partition_for_a_while() -> None:
    sizes = np.full(10, partitioner.STICKY_BYTES // 2, dtype=np.int64)
    assert partitioner.sticky_partitions(sizes, 3, first=2).tolist() == [
        2,
        2,
        0,
        0,
        1,
        1,
        2,
        2,
        0,
        0,
    ]
