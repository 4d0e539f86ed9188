"""Records inside a batch, compared with kafka-python and aiokafka."""

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
)
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from odradek.protocol.batch import HEADER_BYTES, Codec, iter_batches, read_header, set_crc
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.record import (
    RECORD_MIN_BYTES,
    BatchBuilder,
    Record,
    RecordReader,
    decode_batch,
    encode_batch,
    encode_contents,
)
from odradek.protocol.varint import VARLONG_MAX_BYTES, decode_zigzag, encode_varint
from tests.drawing import given, settings, st
from tests.protocol.messages import quick

every_codec = pytest.mark.parametrize("codec", Codec)

# Lengths on both sides of the sizes of varints and of our table.
BORDERS = [0, 1, 63, 64, 8191, 8192, 20_000]

some_bytes = st.binary(max_size=20) | st.sampled_from([bytes(size) for size in BORDERS])
some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)
some_records = st.lists(
    st.builds(
        Record,
        key=st.none() | some_bytes,
        value=st.none() | some_bytes,
        headers=some_headers,
        timestamp_ms=st.integers(0, 2**45),
    ),
    min_size=1,
    max_size=4,
)


def placed(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + i) for i, record in enumerate(records)]


def as_tuple(record: Any) -> tuple[Any, ...]:
    """Return a record of kafka-python or aiokafka as a tuple."""
    value = None if record.value is None else bytes(record.value)
    key = None if record.key is None else bytes(record.key)
    headers = tuple(
        (name, None if content is None else bytes(content)) for name, content in record.headers
    )
    return key, value, headers, record.timestamp, record.offset


@given(records=some_records, base_offset=st.integers(0, 2**60))
@settings(quick, max_examples=60)
@every_codec
def test_what_is_encoded_is_decoded(codec: Codec, records: list[Record], base_offset: int) -> None:
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    assert decode_batch(batch) == placed(records, base_offset)
    assert decode_batch(memoryview(bytes(batch) + b"what follows")) == placed(records, base_offset)


@given(records=some_records)
@settings(quick, max_examples=40)
@every_codec
def test_aiokafka_reads_what_we_write(codec: Codec, records: list[Record]) -> None:
    batch = encode_batch(records, base_offset=33, codec=codec)
    theirs = AiokafkaBatch(bytes(batch))
    assert theirs.validate_crc()
    assert [as_tuple(record) for record in theirs] == [tuple(r) for r in placed(records, 33)]


@given(records=some_records)
@settings(quick, max_examples=40)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])  # it has no others by itself
def test_kafka_python_reads_what_we_write(codec: Codec, records: list[Record]) -> None:
    theirs = DefaultRecordBatch(bytes(encode_batch(records, base_offset=33, codec=codec)))
    assert theirs.validate_crc()
    assert [as_tuple(record) for record in theirs] == [tuple(r) for r in placed(records, 33)]


def foreign_batch(builder_class: Any, codec: Codec, records: list[Record]) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        batch_size=1 << 30,
    )
    for index, record in enumerate(records):
        builder.append(
            index,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


@given(records=some_records)
@settings(quick, max_examples=40)
@every_codec
def test_we_read_what_aiokafka_writes(codec: Codec, records: list[Record]) -> None:
    assert decode_batch(foreign_batch(AiokafkaBuilder, codec, records)) == placed(records, 0)


@given(records=some_records)
@settings(quick, max_examples=60)
def test_our_bytes_are_those_of_kafka_python(records: list[Record]) -> None:
    theirs = foreign_batch(DefaultRecordBatchBuilder, Codec.NONE, records)
    ours = encode_batch(
        records, producer_id=9, producer_epoch=1, base_sequence=4, is_transactional=True
    )
    # It writes 0 instead of -1 as leader epoch, which only a broker sets and no CRC covers.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]
    assert decode_batch(theirs) == placed(records, 0)


def test_many_records_have_long_offsets_and_times() -> None:
    records = [
        Record(key=None, value=b"", timestamp_ms=10**12 + number * 97) for number in range(20_000)
    ]
    batch = encode_batch(records, base_offset=5)
    assert decode_batch(batch) == placed(records, 5)
    assert [as_tuple(record) for record in AiokafkaBatch(bytes(batch))][-1][3:] == (
        10**12 + 19_999 * 97,
        20_004,
    )


def test_times_may_go_backwards() -> None:
    records = [Record(key=None, value=b"", timestamp_ms=at) for at in (5000, 1, 2**50, 0)]
    batch = encode_batch(records)
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (5000, 2**50)
    assert decode_batch(batch) == placed(records, 0)


FIRST_MS, LAST_MS = -(2**63), 2**63 - 1
TIMES = [FIRST_MS, FIRST_MS + 1, -(2**62), -1, 0, 2**62, LAST_MS - 1, LAST_MS]


@pytest.mark.parametrize("delta", TIMES)
@pytest.mark.parametrize("base", TIMES)
def test_a_time_is_a_sum_of_64_bits_as_in_java(base: int, delta: int) -> None:
    batch = batch_of(record_of(delta, 0, -1, 1, b"v", 0))
    struct.pack_into(">q", batch, 27, base)
    set_crc(batch)
    (record,) = decode_batch(batch)
    assert FIRST_MS <= record.timestamp_ms <= LAST_MS
    assert (record.timestamp_ms - base - delta) % 2**64 == 0


def test_the_bits_of_a_difference_above_64_are_dropped_as_in_java() -> None:
    for tenth in (b"\x01", b"\x03", b"\x7f"):
        batch = batch_of(record_of(b"\xff" * 9 + tenth, 0, -1, 1, b"v", 0))
        assert read_header(batch).base_timestamp == -1
        assert decode_batch(batch)[0].timestamp_ms == LAST_MS  # -1 and the smallest difference


@pytest.mark.parametrize("second", TIMES)
@pytest.mark.parametrize("first", TIMES)
def test_the_difference_of_any_two_times_has_64_bits(first: int, second: int) -> None:
    plain, encoded = BatchBuilder(), BatchBuilder()
    for time in (first, second):
        plain.add(Record(key=None, value=None, timestamp_ms=time))
        encoded.add_encoded([encode_contents(None, None)], time)
    batch = plain.build()
    assert encoded.build() == batch
    start_of_difference = HEADER_BYTES + RECORD_MIN_BYTES + 2
    assert decode_zigzag(batch, start_of_difference, VARLONG_MAX_BYTES)[0] < 2**64
    assert [record.timestamp_ms for record in decode_batch(batch)] == [first, second]


def test_records_without_a_time_have_none() -> None:
    batch = encode_batch([Record(key=b"k", value=b"v"), Record(key=b"k", value=b"w")])
    assert read_header(batch).max_timestamp == -1
    assert [record.timestamp_ms for record in decode_batch(batch)] == [-1, -1]


def test_a_batch_has_at_least_one_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


# BatchBuilder


def test_a_builder_makes_the_batch_that_encode_batch_makes() -> None:
    records = [Record(key=b"k", value=b"v" * n, timestamp_ms=n) for n in range(100)]
    builder = BatchBuilder()
    assert all(builder.add(record) for record in records)
    assert builder.count == 100
    size_bytes = builder.size_bytes
    batch = builder.build(base_sequence=3, producer_id=1, producer_epoch=0)
    assert len(batch) == size_bytes
    assert batch == encode_batch(records, base_sequence=3, producer_id=1, producer_epoch=0)


@quick
@given(
    contents=st.lists(st.tuples(st.none() | some_bytes, st.none() | some_bytes), max_size=4),
    times=st.lists(st.integers(0, 2**45), min_size=1, max_size=3),
    max_bytes=st.sampled_from([100, 200, 10_000, 100_000]),
)
def test_encoded_records_make_the_batch_of_the_records_themselves(
    contents: list[tuple[bytes | None, bytes | None]], times: list[int], max_bytes: int
) -> None:
    plain, encoded = BatchBuilder(max_bytes), BatchBuilder(max_bytes)
    for time in times:
        fit = 0
        for key, value in contents:
            if not plain.add(Record(key, value, timestamp_ms=time)):
                break
            fit += 1
        assert encoded.add_encoded((encode_contents(*each) for each in contents), time) == fit
    assert encoded.count == plain.count
    assert encoded.size_bytes == plain.size_bytes
    if plain.count:
        assert encoded.build() == plain.build()


def test_encoded_records_have_long_offsets() -> None:
    builder = BatchBuilder()
    assert builder.add_encoded([encode_contents(b"k", None)] * 20_000, 5) == 20_000
    assert [each.offset for each in decode_batch(builder.build())] == list(range(20_000))


def test_a_builder_refuses_what_does_not_fit_and_stays_whole() -> None:
    record = Record(key=None, value=b"x" * 100, timestamp_ms=1)
    builder = BatchBuilder(max_bytes=400)
    taken = [builder.add(record) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    assert builder.size_bytes <= 400
    assert builder.add(Record(key=None, value=b"", timestamp_ms=7))
    assert len(decode_batch(builder.build())) == builder.count == 4


def test_a_record_that_did_not_fit_leaves_no_trace_in_the_times() -> None:
    builder = BatchBuilder(max_bytes=100)
    assert builder.add(Record(key=None, value=b"x", timestamp_ms=1))
    assert not builder.add(Record(key=None, value=b"x" * 100, timestamp_ms=900))
    assert read_header(builder.build()).max_timestamp == 1


def test_a_builder_takes_a_first_record_of_any_size() -> None:
    builder = BatchBuilder(max_bytes=400)
    assert builder.add(Record(key=None, value=b"x" * 1000, timestamp_ms=1))
    assert not builder.add(Record(key=None, value=b"", timestamp_ms=1))
    assert len(decode_batch(builder.build(codec=Codec.ZSTD))) == 1


def test_a_builder_builds_once() -> None:
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="at least one"):
        builder.build()
    builder.add(Record(key=None, value=b""))
    builder.build()
    with pytest.raises(ValueError, match="once"):
        builder.build()


# RecordReader


@every_codec
def test_a_reader_has_no_more_records_when_all_are_taken_or_it_is_closed(codec: Codec) -> None:
    records = [Record(key=None, value=b"%d" % n) for n in range(5)]
    reader = RecordReader(encode_batch(records, codec=codec))
    assert reader.take(2) + reader.take(9) == placed(records, 0)
    assert reader.take(1) == []
    closed = RecordReader(encode_batch(records, codec=codec))
    closed.take(1)
    closed.close()
    assert closed.take(1) == []


# Headers that do not match their batches


def batch_of(content: bytes, count: int = 1) -> bytearray:
    """Return a batch with a good CRC around any bytes."""
    batch = encode_batch([Record(key=None, value=b"")])[:HEADER_BYTES] + content
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    set_crc(batch)
    return batch


def record_of(*fields: int | bytes, size_bytes: int | None = None) -> bytes:
    """Return a record from its fields behind the length. Numbers become varints."""
    body = b"\0" + b"".join(
        field if isinstance(field, bytes) else encode_varint(field) for field in fields
    )
    return encode_varint(len(body) if size_bytes is None else size_bytes) + body


GOOD = record_of(0, 0, -1, 1, b"v", 0)
TOO_LONG_INT = b"\xff\xff\xff\xff\xff\x01"
TOO_LONG_LONG = b"\xff" * 10 + b"\x01"
MALFORMED: dict[str, tuple[bytes, int]] = {
    "no bytes": (b"", 1),
    "fewer records than announced": (GOOD, 2),
    "more records than announced": (GOOD + GOOD, 1),
    "a negative count": (GOOD, -1),
    "no records, but bytes": (GOOD, 0),
    "a count beyond all bounds": (GOOD, 2**31 - 1),
    "a record shorter than it says": (record_of(0, 0, -1, 1, b"v", 0, size_bytes=8), 1),
    "a record longer than it says": (record_of(0, 0, -1, 1, b"v", 0, size_bytes=6), 1),
    "a negative size": (record_of(0, 0, -1, 1, b"v", 0, size_bytes=-8), 1),
    "a key longer than the batch": (record_of(0, 0, 100, 1, b"v", 0), 1),
    "a key of two gigabytes": (record_of(0, 0, 2**31 - 1, 1, b"v", 0), 1),
    "a key of minus two bytes": (record_of(0, 0, -2, 1, b"v", 0), 1),
    "a value of minus two bytes": (record_of(0, 0, -1, -2, b"v", 0), 1),
    "a value longer than the batch": (record_of(0, 0, -1, 100, b"v", 0), 1),
    "a size in six bytes": (TOO_LONG_INT + GOOD[1:], 1),
    "an offset in six bytes": (record_of(0, TOO_LONG_INT, -1, 1, b"v", 0), 1),
    "a time in eleven bytes": (record_of(TOO_LONG_LONG, 0, -1, 1, b"v", 0), 1),
    "a negative number of headers": (record_of(0, 0, -1, 1, b"v", -1), 1),
    "too many headers": (record_of(0, 0, -1, 1, b"v", 1000), 1),
    "a header without a key": (record_of(0, 0, -1, 1, b"v", 1, -1, -1), 1),
    "a header longer than the batch": (record_of(0, 0, -1, 1, b"v", 1, 1, b"h", 50), 1),
    "a header's value of minus two": (record_of(0, 0, -1, 1, b"v", 1, 1, b"h", -2), 1),
}


def test_the_good_record_of_these_tests_is_good() -> None:
    assert decode_batch(batch_of(GOOD)) == [Record(None, b"v", (), -1, 0)]
    assert decode_batch(batch_of(GOOD + GOOD, count=2))[1].value == b"v"


def test_a_header_whose_key_is_not_utf_8_is_read_as_java_reads_it() -> None:
    content = record_of(0, 0, -1, 1, b"v", 2, 4, b"caf\xe9", 1, b"x", 1, b"\xff", -1)
    (record,) = decode_batch(batch_of(content))
    assert record.headers == (("caf\N{REPLACEMENT CHARACTER}", b"x"), ("\ufffd", None))


@pytest.mark.parametrize(("content", "count"), MALFORMED.values(), ids=MALFORMED.keys())
def test_records_that_are_not_what_the_batch_says_are_corrupt(content: bytes, count: int) -> None:
    with pytest.raises(KafkaError) as refusal:
        decode_batch(batch_of(content, count))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@given(
    records=some_records,
    position=st.integers(0, 2**16),
    change=st.binary(min_size=1, max_size=6),
)
@settings(quick, max_examples=300)
def test_changed_records_are_read_or_corrupt_and_nothing_else(
    records: list[Record], position: int, change: bytes
) -> None:
    batch = encode_batch(records)
    start = HEADER_BYTES + position % (len(batch) - HEADER_BYTES)
    content = bytearray(batch)
    content[start : start + len(change)] = change
    struct.pack_into(">i", content, 8, len(content) - 12)
    set_crc(content)
    try:
        assert len(decode_batch(content)) <= len(records)
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.CORRUPT_MESSAGE:
            raise


def test_a_batch_cut_off_anywhere_is_refused() -> None:
    batch = encode_batch([Record(key=b"k", value=b"v", headers=(("h", b"x"),))])
    for end in range(len(batch)):
        with pytest.raises(ProtocolError if end < HEADER_BYTES else KafkaError):
            decode_batch(batch[:end])


def test_a_wrong_crc_is_corrupt_unless_nobody_asks() -> None:
    batch = encode_batch([Record(key=b"k", value=b"v")])
    batch[17] ^= 1
    with pytest.raises(KafkaError, match="CRC") as refusal:
        decode_batch(batch)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert decode_batch(batch, check_crc=False)[0].value == b"v"


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_corrupt(magic: int) -> None:
    batch = encode_batch([Record(key=b"k", value=b"v")])
    batch[16] = magic
    with pytest.raises(KafkaError, match=f"magic {magic}"):
        decode_batch(batch)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_kafka_does_not_have_is_refused(codec: int) -> None:
    batch = encode_batch([Record(key=b"k", value=b"v")])
    batch[22] |= codec
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    with pytest.raises(KafkaError) as refusal:
        decode_batch(batch)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@every_codec
def test_the_records_of_a_batch_are_bounded(codec: Codec) -> None:
    batch = encode_batch([Record(key=None, value=bytes(10_000))], codec=codec)
    assert len(decode_batch(batch, max_bytes=10_020)) == 1
    with pytest.raises(KafkaError) as refusal:
        decode_batch(batch, max_bytes=9_999)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_every_batch_of_a_fetch_is_decoded() -> None:
    data = b"".join(
        encode_batch([Record(key=None, value=b"%d" % i)], base_offset=i, codec=codec)
        for i, codec in enumerate(Codec)
    )
    values = [record.value for _, batch in iter_batches(data) for record in decode_batch(batch)]
    assert values == [b"0", b"1", b"2", b"3", b"4"]
