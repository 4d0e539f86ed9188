"""Record batches that are valid, nearly valid, or made to hurt their readers."""

import struct
import zlib
from functools import cache
from random import Random
from typing import Final

import cramjam

from odradek.protocol.batch import CRC_START, HEADER_BYTES, Codec, set_crc
from odradek.protocol.record import Record, encode_batch

RECORD_COUNT_START: Final = 57
MANY_RECORDS: Final = 9_000_000
FIELDS: Final = {
    0: ">q",  # base offset
    8: ">i",  # length
    12: ">i",  # leader epoch
    16: ">b",  # magic
    17: ">I",  # CRC
    21: ">h",  # attributes
    23: ">i",  # last offset delta
    27: ">q",  # base timestamp
    35: ">q",  # max timestamp
    43: ">q",  # producer id
    51: ">h",  # producer epoch
    53: ">i",  # base sequence
    57: ">i",  # record count
}
"""The positions of the fields of a batch header."""


def some_records(rng: Random) -> bytes:
    """Return the bytes of a Produce request for one partition."""
    batch = _batch(rng)
    if rng.random() < 0.5:
        return bytes(batch)
    for _ in range(rng.choice((1, 1, 2))):
        batch = _spoiled(rng, batch)
    return bytes(batch)


def _batch(rng: Random) -> bytearray:
    count = rng.choice((1, 1, 2, 5))
    has_producer = rng.random() < 0.4
    return encode_batch(
        [
            Record(
                key=rng.choice((None, b"k", b"")),
                value=rng.choice((None, b"v", rng.randbytes(50))),
                headers=(("h", b"x"),) if rng.random() < 0.2 else (),
                timestamp_ms=rng.choice((-1, 0, 1_700_000_000_000)),
            )
            for _ in range(count)
        ],
        producer_id=rng.randrange(40) if has_producer else -1,
        producer_epoch=rng.choice((0, 0, 1)) if has_producer else -1,
        base_sequence=rng.choice((0, 0, 1, 2)) if has_producer else -1,
        is_transactional=has_producer and rng.random() < 0.5,
        codec=rng.choice(tuple(Codec)),
    )


def _spoiled(rng: Random, batch: bytearray) -> bytearray:
    way = rng.randrange(7)
    if len(batch) < HEADER_BYTES or way == 0:
        return batch * rng.choice((0, 2, 3))
    if way == 1:
        return batch[: rng.randrange(len(batch))]
    if way == 2:  # a header with another field value
        start, form = rng.choice(tuple(FIELDS.items()))
        bits = 8 * struct.calcsize(form)
        value = rng.choice((0, 1, -1, 7, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))
        struct.pack_into(form, batch, start, value % (1 << bits) if form == ">I" else value)
    elif way == 3:  # garbage that claims to be compressed
        codec = rng.randrange(8)
        batch = batch[:HEADER_BYTES] + bytearray(rng.randbytes(rng.choice((0, 5, 80))))
        struct.pack_into(">h", batch, CRC_START, codec)
    elif way == 4:
        batch = batch[:HEADER_BYTES] + bytearray(rng.choice(_bombs()))
        struct.pack_into(">h", batch, CRC_START, Codec.ZSTD)
        count = rng.choice((1, MANY_RECORDS))
        struct.pack_into(">i", batch, RECORD_COUNT_START, count)
        struct.pack_into(">i", batch, 23, count - 1)
    else:
        batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.8:  # a CRC that covers the damage
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        set_crc(batch)
    return batch


@cache
def _bombs() -> tuple[bytes, ...]:
    """Return a few KiB that decompress to tens of MiB: zeros, or as many records as fit."""
    smallest = b"\x0c\x00\x00\x00\x01\x01\x00"  # a record with neither key nor value
    zeros = bytes(cramjam.zstd.compress(bytes(48 << 20)))
    records = bytes(cramjam.zstd.compress(smallest * MANY_RECORDS))
    return zeros, records, zlib.compress(bytes(1 << 20))
