"""Produce in its plain form, read and written by hand: a request in one pass, an answer of success.

Most requests of producers look alike: no transactional id, no tagged fields, records for one or a
few partitions. `scan` finds what the broker needs in such a frame, in a third of the time that the
generated functions take (`wire.py`). It returns None for everything else, right or wrong: then the
generated functions read the frame, and say what is wrong. `answer` builds byte for byte what they
build. tests/protocol/test_plain_produce.py compares the two over all versions.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    crc_is_good,
    read_header,
)

KEY: Final = PRODUCE.key
VERSIONS: Final = range(PRODUCE.min_version, PRODUCE.max_version + 1)
PARTS_MAX: Final = 16
"""The most partitions of a plain request: the connections of a turn wait for each other."""
CLIENT_ID_MAX_BYTES: Final = 255
"""The longest client id of a plain request, which is kept until the answer."""
NO_APPEND_TIME: Final = -1
ID_BYTES: Final = 16
TOPIC_IDS_FROM: Final = 13
FLEXIBLE_FROM: Final = PRODUCE.flexible_from
VARINT_BYTES: Final = 3
"""The most bytes of a length here: 2 MiB, which is more than a plain request has."""

_HEAD: Final = struct.Struct(">hhih")  # API key, version, correlation id, client id bytes
_ACKS: Final = struct.Struct(">hi")  # acks, timeout
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ANSWER_HEAD: Final = struct.Struct(">ii")  # length, correlation id
_PARTITION: Final = {
    3: struct.Struct(">ihqq"),  # index, error code, base offset, append time
    5: struct.Struct(">ihqqq"),  # and log start offset
    8: struct.Struct(">ihqqqih"),  # and no record errors, no message
    9: struct.Struct(">ihqqqBBB"),  # and no tags
}


Place = tuple[bytes, int]
"""A topic, by its name in UTF-8 or by its id, and a partition."""


class PlainProduce(NamedTuple):
    """A Produce request without a transactional id."""

    version: int
    correlation_id: int
    client_id: bytes | None
    acks: int
    timeout_ms: int
    places: list[Place]
    records: list[memoryview]
    """The records for each place."""
    headers: list[BatchHeader | None]
    """Of the batch that the records are; None if they are not one batch with a good CRC."""


Scan = Callable[[memoryview], PlainProduce | None]
"""`scan`, or its twin in C (`compiled.py`)."""


def scan(frame: memoryview) -> PlainProduce | None:
    """Return the request in a frame (without its length), None if it has not the plain form."""
    try:
        key, version, correlation_id, client_id_bytes = _HEAD.unpack_from(frame)
        if key != KEY or version not in VERSIONS:
            return None
        at = _HEAD.size
        client_id = None
        if client_id_bytes > CLIENT_ID_MAX_BYTES:
            return None
        if client_id_bytes >= 0:
            client_id = bytes(frame[at : at + client_id_bytes])
            at += client_id_bytes
        elif client_id_bytes != -1:
            return None
        if version >= FLEXIBLE_FROM:
            if frame[at] or frame[at + 1]:  # tags of the header, a transactional id
                return None
            at += 2
        else:
            if frame[at] != 0xFF or frame[at + 1] != 0xFF:  # not null
                return None
            at += 2
        acks, timeout_ms = _ACKS.unpack_from(frame, at)
        at += _ACKS.size
        places: list[Place] = []
        records: list[memoryview] = []
        if version < FLEXIBLE_FROM:
            is_plain = _read_old(frame, at, places, records)
        else:
            is_plain = _read_flexible(frame, at, version, places, records)
    except (struct.error, IndexError):
        return None
    if not is_plain:
        return None
    headers = [_header_of(batch) for batch in records]
    return PlainProduce(
        version, correlation_id, client_id, acks, timeout_ms, places, records, headers
    )


def _read_flexible(
    frame: memoryview, at: int, version: int, places: list[Place], records: list[memoryview]
) -> bool:
    """Read places and records from `at` on. Return False if they have not the plain form."""
    has_ids = version >= TOPIC_IDS_FROM
    topics = frame[at] - 1
    at += 1
    if not 0 < topics <= PARTS_MAX:
        return False
    for _ in range(topics):
        size_bytes = ID_BYTES
        if not has_ids:
            size_bytes = frame[at] - 1
            at += 1
            if not 0 <= size_bytes < 0x7F:
                return False
        topic = bytes(frame[at : at + size_bytes])
        at += size_bytes
        count = frame[at] - 1
        at += 1
        if not 0 < count <= PARTS_MAX - len(places):
            return False
        if places and any(topic == before for before, _ in places):
            return False
        for _ in range(count):
            (index,) = _INT32.unpack_from(frame, at)
            at += _INT32.size
            size_bytes, shift = 0, 0
            while True:
                byte = frame[at]
                at += 1
                size_bytes |= (byte & 0x7F) << shift
                if not byte & 0x80:
                    break
                shift += 7
                if shift == 7 * VARINT_BYTES:
                    return False
            end = at + size_bytes - 1
            if end < at or frame[end]:  # null, or tags behind the records
                return False
            places.append((topic, index))
            records.append(frame[at:end])
            at = end + 1
        if frame[at]:
            return False
        at += 1
    return at + 1 == len(frame) and not frame[at]


def _read_old(frame: memoryview, at: int, places: list[Place], records: list[memoryview]) -> bool:
    """As `_read_flexible`, in the versions before."""
    (topics,) = _INT32.unpack_from(frame, at)
    at += _INT32.size
    if not 0 < topics <= PARTS_MAX:
        return False
    for _ in range(topics):
        (size_bytes,) = _INT16.unpack_from(frame, at)
        at += _INT16.size
        if size_bytes < 0:
            return False
        topic = bytes(frame[at : at + size_bytes])
        at += size_bytes
        (count,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        if not 0 < count <= PARTS_MAX - len(places):
            return False
        if any(topic == before for before, _ in places):
            return False
        for _ in range(count):
            (index,) = _INT32.unpack_from(frame, at)
            (size_bytes,) = _INT32.unpack_from(frame, at + 4)
            at += 8
            if size_bytes < 0:
                return False
            places.append((topic, index))
            records.append(frame[at : at + size_bytes])
            at += size_bytes
    return at == len(frame)


def _header_of(records: memoryview) -> BatchHeader | None:
    if len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return None
    header = read_header(records)
    is_good = header.size_bytes == len(records) and crc_is_good(records, header)
    return header if is_good else None


class Stored(NamedTuple):
    """The part of an answer for one place."""

    base_offset: int
    log_start_offset: int
    append_time_ms: int = NO_APPEND_TIME


def answer(
    version: int, correlation_id: int, places: Sequence[Place], stored: Iterable[Stored]
) -> bytearray:
    """Return the frame, with its length, that answers a plain request whose records are stored.

    The places are those of `PlainProduce`, and there is a `Stored` for each.
    """
    is_flexible = version >= FLEXIBLE_FROM
    topics: dict[bytes, list[tuple[int, Stored]]] = {}
    for (topic, partition), each in zip(places, stored, strict=True):
        topics.setdefault(topic, []).append((partition, each))
    out = bytearray(_ANSWER_HEAD.pack(0, correlation_id))
    if is_flexible:
        out.append(0)
        out.append(len(topics) + 1)
    else:
        out += _INT32.pack(len(topics))
    for topic, parts in topics.items():
        if not is_flexible:
            out += _INT16.pack(len(topic))
        elif version < TOPIC_IDS_FROM:
            out.append(len(topic) + 1)
        out += topic
        if is_flexible:
            out.append(len(parts) + 1)
        else:
            out += _INT32.pack(len(parts))
        for partition, each in parts:
            _add_partition(out, version, partition, each)
        if is_flexible:
            out.append(0)
    out += b"\0\0\0\0\0" if is_flexible else b"\0\0\0\0"  # not throttled; no tags
    _INT32.pack_into(out, 0, len(out) - _INT32.size)
    return out


def _add_partition(out: bytearray, version: int, index: int, stored: Stored) -> None:
    base_offset, log_start_offset, time_ms = stored
    if version >= FLEXIBLE_FROM:
        out += _PARTITION[9].pack(index, 0, base_offset, time_ms, log_start_offset, 1, 0, 0)
    elif version >= 8:
        out += _PARTITION[8].pack(index, 0, base_offset, time_ms, log_start_offset, 0, -1)
    elif version >= 5:
        out += _PARTITION[5].pack(index, 0, base_offset, time_ms, log_start_offset)
    else:
        out += _PARTITION[3].pack(index, 0, base_offset, time_ms)
