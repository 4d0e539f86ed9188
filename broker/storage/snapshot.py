"""Kafka's producer snapshots: `<offset>.snapshot` has the producer state just before `offset`.

version 1 (2), CRC-32C of what follows (4), number of producers (4), and for each: producer id (8),
epoch (2), last sequence (4), last offset (8), offset delta (4), timestamp (8), coordinator epoch
(4), first offset of its open transaction or -1 (8).

A snapshot has only the last batch of each producer. After a crash, a client that retries five
batches in flight would get OUT_OF_ORDER_SEQUENCE_NUMBER for four of them, so the checkpoint keeps
all five (`checkpoint.py`). Snapshots serve Kafka's tools, and recovery without a checkpoint.
"""

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from odradek.broker.storage.producer_entry import NO_OFFSET, BatchMetadata, ProducerEntry

VERSION: Final = 1
HEADER: Final = struct.Struct(">hI")
COUNT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = [
        ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.batches[-1].offset_delta if entry.batches else 0,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.first_offset,
        )
        for entry in entries
    ]
    assert all(len(each) == ENTRY.size for each in packed), len(packed)
    content = COUNT.pack(len(packed)) + b"".join(packed)
    return HEADER.pack(VERSION, crc32c(content)) + content


def decode_snapshot(data: bytes | bytearray, now_ms: int) -> list[ProducerEntry] | None:
    """Return the producers of a snapshot, None if it is truncated or damaged.

    The format has no time of the last append for expiry, so `now_ms` takes its place.
    """
    start = HEADER.size + COUNT.size
    if len(data) < start:
        return None
    version, crc = HEADER.unpack_from(data)
    (count,) = COUNT.unpack_from(data, HEADER.size)
    if version != VERSION or len(data) != start + count * ENTRY.size:
        return None
    if crc32c(memoryview(data)[HEADER.size :]) != crc:
        return None
    return [_entry(fields, now_ms) for fields in ENTRY.iter_unpack(memoryview(data)[start:])]


def _entry(fields: tuple[int, ...], now_ms: int) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
    entry = ProducerEntry(
        producer_id,
        epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        first_offset=first,
        last_timestamp_ms=timestamp,
        updated_ms=now_ms,
    )
    if offset != NO_OFFSET:
        entry.batches = (BatchMetadata(sequence, offset, delta, timestamp),)
    return entry
