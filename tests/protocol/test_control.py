"""Markers, compared with the two Python clients that read them."""

import struct

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from kafka.record.default_records import DefaultRecordBatch

from odradek.protocol.batch import crc_is_good, read_header
from odradek.protocol.control import Marker, encode_marker, read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch, encode_batch


def marker_batch(*, committed: bool) -> bytearray:
    return encode_marker(
        committed=committed,
        producer_id=2**40,
        producer_epoch=7,
        coordinator_epoch=11,
        timestamp_ms=1_234,
        base_offset=99,
        leader_epoch=3,
    )


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_says_how_the_transaction_ended(committed: bool) -> None:
    batch = marker_batch(committed=committed)
    marker = Marker(committed=committed, coordinator_epoch=11)
    assert read_marker(batch) == marker
    assert read_marker(decode_batch(batch)[0]) == marker


def test_a_marker_is_a_transactional_control_batch_without_a_sequence() -> None:
    batch = marker_batch(committed=True)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (2**40, 7)
    assert (header.base_sequence, header.last_sequence, header.record_count) == (-1, -1, 1)
    assert (header.base_offset, header.next_offset) == (99, 100)
    assert header.partition_leader_epoch == 3
    assert header.max_timestamp == 1_234
    assert crc_is_good(batch, header)


@pytest.mark.parametrize("committed", [True, False])
def test_other_clients_read_our_markers(committed: bool) -> None:
    batch = DefaultRecordBatch(bytes(marker_batch(committed=committed)))
    assert batch.is_control_batch
    assert batch.is_transactional
    assert batch.validate_crc()
    [record] = batch
    assert (record.commit, record.abort) == (committed, not committed)
    expected = COMMIT_MARKER if committed else ABORT_MARKER
    assert ControlRecord.parse(record.key) == expected


def test_a_newer_marker_may_have_more_fields() -> None:
    record = Record(key=struct.pack(">hhi", 1, 1, 0), value=struct.pack(">hih", 1, 5, 2))
    assert read_marker(record) == Marker(committed=True, coordinator_epoch=5)


VALUE = struct.pack(">hi", 0, 5)
KEY = struct.pack(">hh", 0, 1)


@pytest.mark.parametrize(
    "record",
    [
        Record(key=None, value=VALUE),
        Record(key=b"\0\0\0", value=VALUE),
        Record(key=KEY, value=None),
        Record(key=KEY, value=b"\0\0\0\0\0"),
        Record(key=struct.pack(">hh", 0, 2), value=VALUE),  # a leader change, in Kafka's own log
        Record(key=struct.pack(">hh", 0, -1), value=VALUE),
    ],
)
def test_what_is_no_marker_is_corrupt(record: Record) -> None:
    with pytest.raises(KafkaError) as refusal:
        read_marker(record)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_of_data_is_no_marker() -> None:
    with pytest.raises(KafkaError, match="not in a control batch"):
        read_marker(encode_batch([Record(key=KEY, value=VALUE)]))


def test_a_control_batch_has_one_record() -> None:
    record = Record(key=KEY, value=VALUE)
    with pytest.raises(KafkaError, match="2 records"):
        read_marker(encode_batch([record, record], is_control=True))
