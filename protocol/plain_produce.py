"""Produce in its plain form, read and written by hand: a request in one pass, an answer of success.

Most requests of producers look alike: no transactional id, no tagged fields, records for one or a
few partitions. `scan` finds what the broker needs in such a frame, in a third of the time that the
generated functions take (`wire.py`). It returns None for everything else, right or wrong: then the
generated functions read the frame, and say what is wrong. `answer` builds byte for byte what they
build. tests/protocol/test_plain_produce.py compares the two over all versions.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    crc_is_good,
    read_header,
    set_base_offset,
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
NOT_PLAIN_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
CODEC_MAX: Final = max(Codec)
VARINT_BYTES: Final = 3
"""The most bytes of a length here: 2 MiB, which is more than a plain request has."""

_HEAD: Final = struct.Struct(">hhih")  # API key, version, correlation id, client id bytes
_ACKS: Final = struct.Struct(">hi")  # acks, timeout
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_AND_ERROR: Final = struct.Struct(">ih")
_OFFSETS: Final = {
    False: struct.Struct(">qq"),  # base offset, append time
    True: struct.Struct(">qqq"),  # and log start offset
}
LOG_START_OFFSETS_FROM: Final = 5
RECORD_ERRORS_FROM: Final = 8
CORRELATION_ID_AT: Final = 4
ANSWERS_KEPT: Final = 1_000
"""The most requests of different places for which an answer without its numbers is kept."""


Place = tuple[bytes, int]
"""A topic, by its name in UTF-8 or by its id, and a partition."""


class PlainProduce(NamedTuple):
    """A Produce request without a transactional id."""

    version: int
    correlation_id: int
    client_id: str | None
    acks: int
    timeout_ms: int
    places: list[Place]
    records: list[memoryview]
    """The records for each place."""
    headers: list[BatchHeader | None]
    """Of the batch that the records are; None if they are not one batch of the plain form."""


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
            client_id = str(frame[at : at + client_id_bytes], "utf-8")
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
    except (struct.error, IndexError, UnicodeDecodeError):
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
    return header if is_good and _is_plain(header) else None


def _is_plain(header: BatchHeader) -> bool:
    """Return True if a client may send it whatever the log, and not in a transaction."""
    return (
        header.base_offset == 0
        and not header.attributes & NOT_PLAIN_BITS
        and header.codec <= CODEC_MAX
        and header.record_count == header.last_offset_delta + 1 > 0
        and (header.producer_id < 0 or (header.producer_epoch >= 0 and header.base_sequence >= 0))
    )


End = tuple[int, int]
"""The last offset of a batch, and its largest timestamp."""
Join = Callable[[list[memoryview], int, int], tuple[bytes, list[End]]]
"""`join`, or its twin in C (`compiled.py`)."""


def join(batches: list[memoryview], base_offset: int, leader_epoch: int) -> tuple[bytes, list[End]]:
    """Return batches one behind the other as a log has them, and the end of each.

    The first one gets `base_offset`. The batches themselves are not changed.
    """
    joined, ends = bytearray().join(batches), list[End]()
    at, offset = 0, base_offset
    for batch in batches:
        header = read_header(joined, at)
        last_offset = offset + header.last_offset_delta
        with memoryview(joined) as view:
            set_base_offset(view[at:], offset, leader_epoch)
        ends.append((last_offset, header.max_timestamp))
        at, offset = at + len(batch), last_offset + 1
    return bytes(joined), ends


class PlainSteps(NamedTuple):
    """The steps that the lane takes by the bytes alone (`lane.py`): in Python, or in C."""

    scan: Scan
    join: Join


IN_PYTHON: Final = PlainSteps(scan, join)
"""The reference, which also serves in simulations."""


Stored = tuple[int, int, int]
"""The part of an answer for one place: base offset, log start offset, append time."""


def answer(
    version: int, correlation_id: int, places: Sequence[Place], stored: Iterable[Stored]
) -> bytearray:
    """Return the frame, with its length, that answers a plain request whose records are stored.

    The places are those of `PlainProduce`, and there is a `Stored` for each. Its append time is
    NO_APPEND_TIME where the records have their producer's times.
    """
    frame, offsets, at = _empty_answer(version, tuple(places))
    out = bytearray(frame)
    _INT32.pack_into(out, CORRELATION_ID_AT, correlation_id)
    for each, (base_offset, log_start_offset, append_time_ms) in zip(at, stored, strict=True):
        if version >= LOG_START_OFFSETS_FROM:
            offsets.pack_into(out, each, base_offset, append_time_ms, log_start_offset)
        else:
            offsets.pack_into(out, each, base_offset, append_time_ms)
    return out


@lru_cache(maxsize=ANSWERS_KEPT)
def _empty_answer(
    version: int, places: tuple[Place, ...]
) -> tuple[bytes, struct.Struct, tuple[int, ...]]:
    """Return the answer without its numbers, their form, and where those of each place are.

    A producer asks for the same places again and again, and only the numbers differ.
    """
    is_flexible = version >= FLEXIBLE_FROM
    offsets = _OFFSETS[version >= LOG_START_OFFSETS_FROM]
    topics: dict[bytes, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    out, at = bytearray(CORRELATION_ID_AT + _INT32.size), list[int]()
    if is_flexible:
        out += bytes((0, len(topics) + 1))
    else:
        out += _INT32.pack(len(topics))
    for topic, partitions in topics.items():
        if not is_flexible:
            out += _INT16.pack(len(topic))
        elif version < TOPIC_IDS_FROM:
            out.append(len(topic) + 1)
        out += topic
        if is_flexible:
            out.append(len(partitions) + 1)
        else:
            out += _INT32.pack(len(partitions))
        for partition in partitions:
            out += _INDEX_AND_ERROR.pack(partition, 0)
            at.append(len(out))
            out += bytes(offsets.size)
            if is_flexible:
                out += b"\1\0\0"  # no record errors, no message, no tags
            elif version >= RECORD_ERRORS_FROM:
                out += b"\0\0\0\0\xff\xff"
        if is_flexible:
            out.append(0)
    out += b"\0\0\0\0\0" if is_flexible else b"\0\0\0\0"  # not throttled; no tags
    _INT32.pack_into(out, 0, len(out) - _INT32.size)
    return bytes(out), offsets, tuple(at)
