"""Compact one batch: decide which records stay and build the new batch. Pure functions.

A record that stays keeps its offset, timestamp, key, value and headers. The batch keeps its
offsets, producer, epoch, sequence, leader epoch and codec.

The *delete horizon* (KIP-534) is stored as in Kafka. If bit 6 of the attributes is set, the batch's
base timestamp is the horizon: from that time on the tombstones (records without a value) or the
marker in the batch may be removed. The timestamps of the records are then relative to the horizon.
"""

from collections.abc import Iterable
from typing import Final

from odradek.broker.storage.compaction.key_map import KeyMap
from odradek.broker.storage.compaction.raw_records import RawRecord, records_of, walk
from odradek.broker.storage.config import INT64_MAX
from odradek.late import dataclass
from odradek.protocol.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
    TimestampType,
    set_crc,
)
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES, Decompressed, compress
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.varint import encode_varint

DELETE_HORIZON_BIT: Final = 0x40
_ATTRIBUTES: Final = b"\0"


def delete_horizon(header: BatchHeader) -> int | None:
    """Return the time from which on a batch's tombstones may be removed, None if it is not set."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRules:
    """The rules of one pass: they decide which records stay."""

    keys: KeyMap
    end_offset: int
    """`keys` has all keys below this offset. Records from here on stay."""
    now_ms: int
    delete_retention_ms: int

    def has_passed(self, horizon_ms: int | None) -> bool:
        return horizon_ms is not None and self.now_ms >= horizon_ms

    @property
    def new_horizon_ms(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, INT64_MAX)


def note_keys(header: BatchHeader, batch: memoryview, keys: KeyMap, from_offset: int) -> int | None:
    """Add the keys of a batch to `keys`. Return the first offset without room, None if all fit.

    Raises KafkaError for records that cannot be read. Some keys may have been added then.
    """
    base_offset = header.base_offset
    with records_of(header, batch) as data:
        for record in walk(header, data):
            key, offset = record.key, base_offset + record.offset_delta
            if key is not None and offset >= from_offset and not keys.put(key, offset):
                return offset
    return None


def what_stays(
    header: BatchHeader, batch: memoryview, rules: CompactionRules, *, tombstones_stay: bool
) -> memoryview | bytearray | None:
    """Return the batch with the records that stay: `batch` itself if all do, None if none does.

    Raises KafkaError for records that cannot be read.
    """
    horizon_ms = delete_horizon(header)
    may_forget = rules.has_passed(horizon_ms) and not tombstones_stay
    base_offset, end_offset = header.base_offset, rules.end_offset
    newest = rules.keys.newest
    has_tombstones = False

    def stays(record: RawRecord) -> bool:
        nonlocal has_tombstones
        offset = base_offset + record.offset_delta
        if offset >= end_offset:
            return True
        if record.key is None or offset < newest(record.key):
            return False
        has_tombstones |= not record.has_value
        return record.has_value or not may_forget

    with records_of(header, batch) as data:
        # The records are walked twice, because a list of millions would take gigabytes.
        kept_count = sum(map(stays, walk(header, data)))
        if not kept_count:
            return None
        # Only the first pass that sees a tombstone sets the horizon. If each pass set a new one,
        # the tombstone would never expire.
        if has_tombstones and horizon_ms is None:
            horizon_ms = rules.new_horizon_ms
        elif kept_count == header.record_count:
            return batch
        return _rebuilt(header, data, filter(stays, walk(header, data)), horizon_ms)


def with_horizon(header: BatchHeader, batch: memoryview, horizon_ms: int) -> bytearray:
    """Return the batch with a delete horizon. Raises KafkaError for unreadable records."""
    with records_of(header, batch) as data:
        return _rebuilt(header, data, walk(header, data), horizon_ms)


def emptied(header: BatchHeader) -> bytearray:
    """Return the batch without records. It keeps its producer's epoch and last sequence."""
    return _built(
        header,
        b"",
        attributes=header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_BIT,
        base_timestamp=header.max_timestamp,
        max_timestamp=header.max_timestamp,
        record_count=0,
    )


def _rebuilt(
    header: BatchHeader, data: Decompressed, kept: Iterable[RawRecord], horizon_ms: int | None
) -> bytearray:
    """Return the batch with the records `kept`, at least one. Raises KafkaError MESSAGE_TOO_LARGE.

    The records may grow, because their timestamps are relative to another base. A batch beyond
    DECOMPRESSED_MAX_BYTES could not be read any more.
    """
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    attributes = header.attributes
    added_ms = 0
    if horizon_ms is not None:
        added_ms = base_timestamp - horizon_ms
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_BIT
    records, count, latest = bytearray(), 0, -(2**63)
    for record in kept:
        records += _copied(data, record, added_ms)
        count += 1
        latest = max(latest, _int64(header.base_timestamp + record.timestamp_delta))
        if len(records) > DECOMPRESSED_MAX_BYTES:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"its compacted records have more than {DECOMPRESSED_MAX_BYTES} bytes",
            )
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = latest
    return _built(
        header,
        compress(Codec(header.codec), records),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=count,
    )


def _copied(data: Decompressed, record: RawRecord, added_ms: int) -> bytes:
    """Return a record whose timestamp is relative to a base that is `added_ms` earlier."""
    if added_ms == 0:
        return data[record.start : record.end]
    timestamp = encode_varint(_int64(record.timestamp_delta + added_ms))
    rest = data[record.rest : record.end]
    length = encode_varint(len(_ATTRIBUTES) + len(timestamp) + len(rest))
    return b"".join((length, _ATTRIBUTES, timestamp, rest))


def _int64(number: int) -> int:
    """Wrap a sum of timestamps around as Java does: the largest number is followed by the smallest.

    A client can choose any timestamp, and Kafka's readers add in 64 bits.
    """
    return (number + 2**63) % 2**64 - 2**63


def _built(
    header: BatchHeader,
    records: bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> bytearray:
    out = bytearray(HEADER_BYTES) + records
    made = header._replace(
        batch_length=len(out) - LENGTH_PREFIX_BYTES,
        crc=0,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=record_count,
    )
    HEADER.pack_into(out, 0, *made)
    set_crc(out)
    return out
