"""Record batches whose header and CRC are good, and whose records are not what anybody expects."""

import os

from odradek.protocol.batch import HEADER, HEADER_BYTES, Codec, read_header, set_crc
from odradek.protocol.compression import compress
from odradek.protocol.record import Record, encode_batch

WITHOUT_KEY = b"\x0c\x00\x00\x00\x01\x01\x00"
"""The smallest record: no key, no value, no headers."""
WITH_KEY = b"\x0e\x00\x00\x00\x02k\x01\x00"
"""A record whose key is `k`, without a value."""


def made_batch(
    content: bytes,
    codec: Codec,
    *,
    record_count: int = 1,
    base_offset: int = 0,
    times_ms: tuple[int, int] = (-1, -1),
) -> bytearray:
    """A batch that has `content`, already compressed, behind its header.

    `times_ms` are those of its first and, as the header says, of its latest record.
    """
    whole = encode_batch([Record(key=b"k", value=b"v")])[:HEADER_BYTES] + content
    header = read_header(whole)
    HEADER.pack_into(
        whole,
        0,
        *header._replace(
            base_offset=base_offset,
            batch_length=len(whole) - 12,
            attributes=int(codec),
            last_offset_delta=record_count - 1,
            record_count=record_count,
            base_timestamp=times_ms[0],
            max_timestamp=times_ms[1],
        ),
    )
    set_crc(whole)
    return whole


def garbage(codec: Codec, size_bytes: int = 80) -> bytearray:
    """A batch of random bytes."""
    return made_batch(os.urandom(size_bytes), codec)


def crowd(
    count: int,
    codec: Codec = Codec.ZSTD,
    *,
    record: bytes = WITH_KEY,
    times_ms: tuple[int, int] = (-1, -1),
) -> bytearray:
    """A batch of `count` times the same record: 9 million of them take 6 KB."""
    return made_batch(compress(codec, record * count), codec, record_count=count, times_ms=times_ms)
