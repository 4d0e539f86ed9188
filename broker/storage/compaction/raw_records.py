"""The records of a batch without decoding values and headers: their bounds and keys.

Compaction copies the bytes of the records that stay. The check that every record of a compacted
topic has a key uses the same walk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from odradek.protocol.batch import HEADER_BYTES, BatchHeader
from odradek.protocol.compression import (
    DECOMPRESSED_MAX_BYTES,
    Decompressed,
    decompress,
    release,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import RECORD_MIN_BYTES
from odradek.protocol.varint import VARLONG_MAX_BYTES, decode_zigzag

_NULL_ZIGZAG: Final = 1


class RawRecord(NamedTuple):
    """One record. It lies from `start` to `end`; `rest` is the position behind its timestamp."""

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


@contextmanager
def records_of(
    header: BatchHeader, batch: memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES
) -> Iterator[Decompressed]:
    """Decompress the records of a batch. The memory is released at the end of the block.

    Raises KafkaError: MESSAGE_TOO_LARGE beyond `max_bytes`, CORRUPT_MESSAGE,
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    data = decompress(header.codec, content_of(header, batch), max_bytes)
    try:
        check_count(header, data)
        yield data
    finally:
        release(data)


def content_of(header: BatchHeader, batch: memoryview) -> memoryview:
    """Return the stored bytes behind the header."""
    return batch[HEADER_BYTES : header.size_bytes]


def check_count(header: BatchHeader, data: Decompressed) -> None:
    """Raise KafkaError CORRUPT_MESSAGE if the header's record count cannot be right."""
    if not 0 <= header.record_count <= len(data) // RECORD_MIN_BYTES:
        raise _corrupt(header, f"{header.record_count} records in {len(data)} bytes")


def walk(header: BatchHeader, data: Decompressed) -> Iterator[RawRecord]:
    """Yield every record of the bytes of `records_of`. Raises KafkaError CORRUPT_MESSAGE."""
    try:
        yield from _walk(header, data)
    except IndexError:
        raise _corrupt(header, "a record ends too early") from None


def _walk(header: BatchHeader, data: Decompressed) -> Iterator[RawRecord]:
    make: type[RawRecord] = RawRecord
    last_delta = header.last_offset_delta
    position = 0
    for _ in range(header.record_count):
        start = position
        number, position = _zigzag(data, position)
        end = position + (number >> 1 ^ -(number & 1))
        number, rest = _zigzag(data, position + 1)  # skip the record attributes, which are unused
        timestamp_delta = number >> 1 ^ -(number & 1)
        number, position = _zigzag(data, rest)
        offset_delta = number >> 1 ^ -(number & 1)
        if not 0 <= offset_delta <= last_delta:
            raise _corrupt(header, f"a record has the offset delta {offset_delta}")
        number, position = _zigzag(data, position)
        key: bytes | None = None
        if not number & 1:
            key = data[position : position + (number >> 1)]
            position += number >> 1
        elif number != _NULL_ZIGZAG:
            raise _corrupt(header, "a key has a negative length")
        number, position = _zigzag(data, position)
        if position > end or end > len(data):
            raise _corrupt(header, f"a record ends behind byte {end}")
        yield make(start, rest, end, timestamp_delta, offset_delta, key, number != _NULL_ZIGZAG)
        position = end
    if position != len(data):
        raise _corrupt(header, f"{len(data) - position} bytes follow the last record")


def _zigzag(data: Decompressed, position: int) -> tuple[int, int]:
    number = data[position]
    if number < 0x80:
        return number, position + 1
    return decode_zigzag(data, position, VARLONG_MAX_BYTES)


def _corrupt(header: BatchHeader, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is corrupt: {why}"
    )
