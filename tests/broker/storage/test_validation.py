"""The batches of clients that are accepted, and the error codes of all others."""

from collections.abc import Callable

import pytest

from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.validation import check_client_batch
from odradek.protocol.batch import (
    CONTROL_BIT,
    HEADER,
    TRANSACTIONAL_BIT,
    TimestampType,
    read_header,
    set_crc,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.samples import batch
from tests.fakes.clock import START_MS

CONFIG = LogConfig(max_message_bytes=1000, segment_bytes=500)
HOUR_MS = 3_600_000


def changed(**fields: int) -> memoryview:
    """Return a good batch with other header fields and a matching CRC."""
    data = batch("one", "two", producer_id=1, producer_epoch=0, base_sequence=0)
    header = read_header(data)._replace(**fields)
    HEADER.pack_into(data, 0, *header)
    if header.size_bytes == len(data):
        set_crc(data)
    return data


def joined(*parts: bytes | memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def with_bad_crc() -> memoryview:
    data = batch()
    data[-1] ^= 1
    return data


GOOD = batch("one", "two")

REFUSED: list[tuple[str, Callable[[], memoryview], ErrorCode]] = [
    ("nothing", lambda: joined(), ErrorCode.INVALID_RECORD),
    ("less than a length", lambda: joined(GOOD[:11]), ErrorCode.INVALID_RECORD),
    ("a cut-off header", lambda: joined(GOOD[:40]), ErrorCode.INVALID_RECORD),
    ("a cut-off batch", lambda: joined(GOOD[:-1]), ErrorCode.INVALID_RECORD),
    ("zeros", lambda: joined(bytes(100)), ErrorCode.CORRUPT_MESSAGE),
    ("a length of -1", lambda: changed(batch_length=-1), ErrorCode.CORRUPT_MESSAGE),
    ("a length less than a header", lambda: changed(batch_length=40), ErrorCode.CORRUPT_MESSAGE),
    ("magic 3", lambda: changed(magic=3), ErrorCode.CORRUPT_MESSAGE),
    ("magic 1", lambda: changed(magic=1), ErrorCode.INVALID_RECORD),
    ("magic 0", lambda: changed(magic=0), ErrorCode.INVALID_RECORD),
    ("a bad CRC", with_bad_crc, ErrorCode.CORRUPT_MESSAGE),
    ("two batches", lambda: joined(GOOD, GOOD), ErrorCode.INVALID_RECORD),
    ("a batch and a half", lambda: joined(GOOD, GOOD[:30]), ErrorCode.INVALID_RECORD),
    ("a base offset", lambda: changed(base_offset=5), ErrorCode.INVALID_RECORD),
    ("too few records", lambda: changed(record_count=1), ErrorCode.INVALID_RECORD),
    ("no records", lambda: changed(record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    ("a negative count", lambda: changed(record_count=-1), ErrorCode.INVALID_RECORD),
    ("another last delta", lambda: changed(last_offset_delta=7), ErrorCode.INVALID_RECORD),
    ("a control batch", lambda: changed(attributes=CONTROL_BIT), ErrorCode.INVALID_RECORD),
    ("a producer without sequence", lambda: changed(base_sequence=-1), ErrorCode.INVALID_RECORD),
    ("a producer without epoch", lambda: changed(producer_epoch=-1), ErrorCode.INVALID_RECORD),
    (
        "a transaction of nobody",
        lambda: changed(attributes=TRANSACTIONAL_BIT, producer_id=-1),
        ErrorCode.INVALID_RECORD,
    ),
    ("codec 5", lambda: changed(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("codec 7", lambda: changed(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too large a batch", lambda: batch("x" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
    ("more than a segment", lambda: batch("x" * 500), ErrorCode.RECORD_LIST_TOO_LARGE),
    (
        "a time in the future",
        lambda: changed(max_timestamp=START_MS + HOUR_MS + 1),
        ErrorCode.INVALID_TIMESTAMP,
    ),
]


@pytest.mark.parametrize(("data", "code"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_bad_batch_is_refused_with_its_code(
    data: Callable[[], memoryview], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        check_client_batch(data(), CONFIG, START_MS)
    assert caught.value.code is code
    assert caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        batch("one", "two"),
        batch(producer_id=1, producer_epoch=0, base_sequence=7, is_transactional=True),
        changed(attributes=4),
        changed(base_timestamp=-1, max_timestamp=-1),
        changed(max_timestamp=START_MS + HOUR_MS),
        changed(base_timestamp=0),
    ],
)
def test_a_good_batch_is_taken(data: memoryview) -> None:
    header = check_client_batch(data, CONFIG, START_MS)
    assert header == read_header(data)


def test_every_cut_of_a_batch_is_refused() -> None:
    for size in range(len(GOOD)):
        with pytest.raises(KafkaError):
            check_client_batch(joined(GOOD[:size]), CONFIG, START_MS)


def test_every_flipped_byte_of_a_batch_is_refused_or_outside_of_the_crc() -> None:
    for position in range(len(GOOD)):
        data = joined(GOOD)
        data[position] ^= 0xFF
        if 12 <= position < 16:  # the leader epoch, which the broker sets
            check_client_batch(data, CONFIG, START_MS)
            continue
        with pytest.raises(KafkaError):
            check_client_batch(data, CONFIG, START_MS)


def test_where_the_brokers_time_counts_a_clients_is_not_looked_at() -> None:
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    check_client_batch(changed(max_timestamp=START_MS + 10 * HOUR_MS), config, START_MS)


def test_a_record_may_be_too_old() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    check_client_batch(batch(timestamp_ms=START_MS - 1000), config, START_MS)
    with pytest.raises(KafkaError) as caught:
        check_client_batch(batch(timestamp_ms=START_MS - 1001), config, START_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
