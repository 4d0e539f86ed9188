"""The header of a record batch: reading, changes in place, CRC and sequences."""

import struct
from typing import Final

import construct as c
import pytest
from kafka.record.default_records import DefaultRecordBatch

from odradek.protocol.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    TimestampType,
    add_sequence,
    crc_is_good,
    is_next_sequence,
    iter_batches,
    last_header,
    read_header,
    set_append_time,
    set_base_offset,
    set_crc,
    set_producer,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import Record, decode_batch, encode_batch
from tests.drawing import given, st
from tests.protocol.messages import quick

LAST_SEQUENCE = 2**31 - 1


def some_batch(count: int = 3, base_offset: int = 0, **options: int) -> bytearray:
    records = [
        Record(key=b"key", value=b"value %d" % number, timestamp_ms=1000 + number)
        for number in range(count)
    ]
    return encode_batch(records, base_offset=base_offset, **options)  # type: ignore[arg-type]


def test_a_header_is_what_kafka_python_reads() -> None:
    batch = encode_batch(
        [
            Record(key=None, value=b"a", timestamp_ms=5),
            Record(key=b"b", value=None, timestamp_ms=9),
        ],
        base_offset=70,
        leader_epoch=3,
        producer_id=12,
        producer_epoch=2,
        base_sequence=40,
        codec=Codec.GZIP,
        is_transactional=True,
    )
    header, theirs = read_header(batch), DefaultRecordBatch(bytes(batch))
    assert header.base_offset == theirs.base_offset == 70
    assert header.size_bytes == theirs.size_in_bytes == len(batch)
    assert header.partition_leader_epoch == theirs.leader_epoch == 3
    assert header.magic == theirs.magic == 2
    assert header.crc == theirs.crc
    assert header.codec == theirs.compression_type == Codec.GZIP
    assert header.timestamp_type == theirs.timestamp_type == TimestampType.CREATE_TIME
    assert header.is_transactional is theirs.is_transactional is True
    assert header.is_control is theirs.is_control_batch is False
    assert header.last_offset == theirs.last_offset == 71
    assert header.next_offset == theirs.next_offset == 72
    assert header.base_timestamp == theirs.first_timestamp == 5
    assert header.max_timestamp == theirs.max_timestamp == 9
    assert header.producer_id == theirs.producer_id == 12
    assert header.producer_epoch == theirs.producer_epoch == 2
    assert header.base_sequence == theirs.base_sequence == 40
    assert header.last_sequence == theirs.last_sequence == 41
    assert header.record_count == theirs.records_count == 2
    assert header.has_producer
    assert theirs.validate_crc()
    assert crc_is_good(batch, header)


DECLARED: Final = c.Struct(
    "base_offset" / c.Int64sb,
    "batch_length" / c.Int32sb,
    "partition_leader_epoch" / c.Int32sb,
    "magic" / c.Int8sb,
    "crc" / c.Int32ub,
    "attributes" / c.Int16sb,
    "last_offset_delta" / c.Int32sb,
    "base_timestamp" / c.Int64sb,
    "max_timestamp" / c.Int64sb,
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "base_sequence" / c.Int32sb,
    "record_count" / c.Int32sb,
)


@given(data=st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
@quick
def test_struct_and_construct_read_the_same_header(data: bytes) -> None:
    declared = DECLARED.parse(data)
    assert read_header(data)._asdict() == {name: declared[name] for name in BatchHeader._fields}


def test_a_header_is_found_at_a_position() -> None:
    assert read_header(bytes(7) + some_batch(base_offset=9), 7).base_offset == 9


@pytest.mark.parametrize("size_bytes", [0, 1, 60])
def test_less_than_a_header_is_refused(size_bytes: int) -> None:
    with pytest.raises(ProtocolError, match=f"{size_bytes} are left"):
        read_header(bytes(size_bytes))


def test_every_changed_bit_behind_the_crc_is_noticed() -> None:
    batch = some_batch()
    header = read_header(batch)
    for position in range(CRC_START, len(batch)):
        batch[position] ^= 1
        assert not crc_is_good(batch, header), position
        batch[position] ^= 1
    assert crc_is_good(batch, header)


def test_the_crc_of_a_batch_cut_short_is_not_good() -> None:
    batch = some_batch()
    assert not crc_is_good(batch[:-1], read_header(batch))
    assert not crc_is_good(batch, read_header(batch)._replace(batch_length=-1))


def test_a_batch_is_placed_in_a_log_without_touching_its_crc() -> None:
    batch = some_batch()
    set_base_offset(memoryview(batch), 2**40, 17)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    assert crc_is_good(batch, header)
    assert DefaultRecordBatch(bytes(batch)).validate_crc()
    assert [record.offset for record in decode_batch(batch)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_the_append_time_is_the_time_of_every_record() -> None:
    batch = some_batch()
    set_append_time(batch, 123_456)
    header = read_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert crc_is_good(batch, header)
    assert {record.timestamp_ms for record in decode_batch(batch)} == {123_456}
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert {record.timestamp for record in theirs} == {123_456}


@pytest.mark.parametrize("is_transactional", [True, False])
def test_a_relayed_batch_becomes_another_producers(is_transactional: bool) -> None:
    batch = some_batch()
    set_producer(memoryview(batch), 5, 6, 7, is_transactional=not is_transactional)
    set_producer(memoryview(batch), 77, 3, 900, is_transactional=is_transactional)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 900)
    assert header.is_transactional is is_transactional
    assert crc_is_good(batch, header)
    assert [record.value for record in decode_batch(batch)] == [b"value 0", b"value 1", b"value 2"]


def test_patching_looks_no_further_than_the_batch() -> None:
    batch = some_batch()
    behind = b"the next batch"
    both = batch + behind
    set_append_time(both, 5)
    assert both.endswith(behind)
    assert crc_is_good(both, read_header(both))


def test_the_crc_of_something_shorter_than_its_length_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        set_crc(some_batch()[:-1])


def test_batches_are_found_one_after_the_other_and_a_torn_one_is_left_out() -> None:
    first, second = some_batch(3, 10), some_batch(2, 13)
    data = first + second
    found = list(iter_batches(data))
    assert [header.base_offset for header, _ in found] == [10, 13]
    assert [bytes(view) for _, view in found] == [bytes(first), bytes(second)]
    for end in range(len(first), len(data)):
        assert [header.base_offset for header, _ in iter_batches(data[:end])] == [10]
    for end in range(len(first)):
        assert list(iter_batches(data[:end])) == []


def test_batches_are_views_that_can_be_patched_in_place() -> None:
    data = some_batch(3, 10) + some_batch(2, 13)
    for header, view in iter_batches(data):
        set_base_offset(view, header.base_offset + 100, 1)
    assert [header.base_offset for header, _ in iter_batches(data)] == [110, 113]


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_an_impossible_length_is_refused_and_not_walked_in_circles(length: int) -> None:
    batch = some_batch()
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(ProtocolError, match="length"):
        list(iter_batches(batch))


def test_the_last_of_several_batches_is_found() -> None:
    first, second = some_batch(3, 10), some_batch(2, 13)
    assert last_header(first).base_offset == 10
    assert last_header(first + second).base_offset == 13


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_the_last_batch_is_not_looked_for_behind_an_impossible_length(length: int) -> None:
    batch = some_batch()
    struct.pack_into(">i", batch, 8, length)
    for data in (batch, some_batch() + batch, b""):
        with pytest.raises(ProtocolError, match="length"):
            last_header(data)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_another_format_is_refused(magic: int) -> None:
    batch = some_batch()
    struct.pack_into(">b", batch, 16, magic)
    with pytest.raises(ProtocolError, match=f"magic {magic}"):
        list(iter_batches(batch))


def test_sequences_begin_again_at_zero() -> None:
    assert add_sequence(LAST_SEQUENCE, 1) == 0
    assert add_sequence(LAST_SEQUENCE - 1, 5) == 3
    assert add_sequence(0, 0) == 0
    assert is_next_sequence(LAST_SEQUENCE, 0)
    assert is_next_sequence(4, 5)
    assert is_next_sequence(-1, 0)
    assert not is_next_sequence(4, 4)
    assert not is_next_sequence(4, 6)
    assert not is_next_sequence(LAST_SEQUENCE, 2**31)


def test_a_batch_whose_sequences_wrap_ends_behind_zero() -> None:
    batch = some_batch(producer_id=1, producer_epoch=0, base_sequence=LAST_SEQUENCE)
    assert read_header(batch).last_sequence == 1
    assert DefaultRecordBatch(bytes(batch)).last_sequence == 1


def test_a_batch_without_a_sequence_has_no_last_one() -> None:
    assert read_header(some_batch()).last_sequence == -1
    assert not read_header(some_batch()).has_producer
