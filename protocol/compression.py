"""Compression of a batch's records, bounded: a peer's 1 MiB of zstd may stand for 32 GiB.

No decompressor is ever asked for "everything": each gets a buffer that is the limit. cramjam's
`Decompressor` objects and its one-shot `decompress` inflate without bound and are not used.

- gzip: one or several members, as Java's GZIPInputStream reads them.
- snappy: Kafka's is raw blocks in the framing of Java's xerial library; librdkafka and others
  write one raw block. Both are read, the framing is written. (The framing format of snappy's own
  specification is a third one that Kafka never uses.)
- lz4: the frame format. Blocks must be independent, or Kafka's Java reader refuses the batch.
- zstd: at level 3 as Kafka's default; cramjam's would be 11.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam

from odradek.protocol.batch import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import Buffer

DECOMPRESSED_MAX_BYTES: Final = 64 * 1024 * 1024
"""How large the records of one batch may become, unless the caller says otherwise."""

GZIP_WINDOW_BITS: Final = 31
"""zlib's way to say: the largest window, in gzip's container."""

LZ4_LEVEL: Final = 1
ZSTD_LEVEL: Final = 3

XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

FIRST_GUESS_BYTES: Final = 64 * 1024
GROWTH: Final = 8

_INT32: Final = struct.Struct(">i")


def compress(codec: Codec, data: Buffer) -> bytes:
    """`data` compressed as Kafka's clients do; unchanged for `Codec.NONE`."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, wbits=GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, block_linked=False)
            compressor.compress(bytes(data))  # it takes nothing else
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: int, data: Buffer, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes:
    """What `data` stands for, at most `max_bytes` of it.

    Raises `KafkaError`: MESSAGE_TOO_LARGE beyond `max_bytes`, CORRUPT_MESSAGE for a broken stream,
    UNSUPPORTED_COMPRESSION_TYPE for a codec that Kafka does not have.
    """
    match codec:
        case Codec.NONE:
            return bytes(_bounded(data, max_bytes))
        case Codec.GZIP:
            return _decompress_into(cramjam.gzip.decompress_into, "gzip", data, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Codec.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, "lz4", data, max_bytes)
        case Codec.ZSTD:
            return _decompress_into(cramjam.zstd.decompress_into, "zstd", data, max_bytes)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {codec}")


def _too_large(max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch decompresses to more than {max_bytes} bytes"
    )


def _corrupt(codec: str, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch is not valid {codec}: {why}")


def _bounded(data: Buffer, max_bytes: int) -> Buffer:
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def _decompress_into(
    into: Callable[[Any, Any], int], codec: str, data: Buffer, max_bytes: int
) -> bytes:
    """Decompress into a buffer that bounds the result and grows only if it did not do."""
    size_bytes = min(max(FIRST_GUESS_BYTES, GROWTH * len(data)), max_bytes)
    while True:
        buffer = bytearray(size_bytes)
        try:
            count = into(data, buffer)
        except cramjam.DecompressionError as error:
            # Whether the buffer was too small or the stream is broken, only the text tells: it
            # decides about the words, not about the bound.
            if size_bytes < max_bytes:
                size_bytes = min(GROWTH * size_bytes, max_bytes)
                continue
            if "whole buffer" in str(error):
                raise _too_large(max_bytes) from None
            raise _corrupt(codec, error) from None
        with memoryview(buffer) as view:
            return bytes(view[:count])


def _compress_snappy(data: Buffer) -> bytes:
    pieces: list[bytes] = [XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
            pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    with memoryview(data) as view:
        if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            return _decompress_snappy_block(view, max_bytes, max_bytes)
        if len(view) < len(XERIAL_HEADER):
            raise _corrupt("snappy", "it ends inside its header")
        blocks: list[bytes] = []
        left = max_bytes
        position, end = len(XERIAL_HEADER), len(view)
        while position < end:
            start = position + _INT32.size
            size_bytes = _INT32.unpack_from(view, position)[0] if start <= end else -1
            if not 0 <= size_bytes <= end - start:
                raise _corrupt("snappy", f"a block of {size_bytes} bytes at byte {position}")
            position = start + size_bytes
            block = _decompress_snappy_block(view[start:position], left, max_bytes)
            left -= len(block)
            blocks.append(block)
        return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    try:
        # What the block says of itself is what the decompressor allocates (CVE-2023-34455).
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise _too_large(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", error) from None
