"""Compression of a batch's records, with bounded decompression.

1 MiB of zstd may decompress to 32 GiB. Every decompressor therefore writes into a buffer that has
the size of the limit. cramjam's `Decompressor` objects and its one-shot `decompress` have no bound
and are not used.

The buffer for a large result is anonymous memory. The kernel allocates its pages as they are
written, so a short stream costs little, whatever size it claims. `release` returns all of the
memory at once, even if a Python object (a traceback, say) still refers to the buffer. A thread that
decompresses does not hold the interpreter's lock.

- gzip: one or several members, as Java's GZIPInputStream reads them.
- snappy: Java's clients write raw blocks in the framing of the xerial library. librdkafka and
  others write one raw block. This module reads both and writes the framing. (The framing format of
  snappy's own specification is a third one, which Kafka never uses.)
- lz4: the frame format. Blocks must be independent, or Kafka's Java reader refuses the batch.
- zstd: level 3, which is Kafka's default. cramjam's default is 11.
"""

import mmap
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import cramjam

from odradek.protocol.batch import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import Buffer

DECOMPRESSED_MAX_BYTES: Final = 64 * 1024 * 1024
"""The default limit for the decompressed records of one batch."""

GZIP_WINDOW_BITS: Final = 31
"""zlib's code for the largest window in a gzip container."""

GZIP_LEVEL: Final = -1
LZ4_LEVEL: Final = 1
ZSTD_LEVEL: Final = 3

XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

FIRST_GUESS_BYTES: Final = 64 * 1024
GROWTH: Final = 8
SMALL_MAX_BYTES: Final = 1024 * 1024
"""The largest first buffer. A result that does not fit in it is a memory mapping."""

Decompressed = bytes | mmap.mmap
"""The result of `decompress`. Both types have a length, and give int and bytes by index."""

_INT32: Final = struct.Struct(">i")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed as Kafka's clients do it, unchanged for `Codec.NONE`.

    None is the default level of the codec. snappy has no levels.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL if level is None else level, GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            compressor = cramjam.lz4.Compressor(
                level=LZ4_LEVEL if level is None else level, block_linked=False
            )
            compressor.compress(bytes(data))  # cramjam accepts only bytes here
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))


def release(data: Decompressed) -> None:
    """Free the memory of a result of `decompress`, even if other references exist."""
    if isinstance(data, mmap.mmap):
        data.close()


def decompress(codec: int, data: Buffer, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Decompressed:
    """Return `data` decompressed. Call `release` on the result after the last use.

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
) -> Decompressed:
    """Decompress into a small buffer, and if that is too small, into one of `max_bytes`."""
    # Errors are raised outside of `except`: as its context, the decompressor's error would keep the
    # buffers alive.
    size_bytes = min(max(FIRST_GUESS_BYTES, GROWTH * len(data)), SMALL_MAX_BYTES, max_bytes)
    small = bytearray(size_bytes)
    try:
        count = into(data, small)
        with memoryview(small) as view:
            return bytes(view[:count])
    except cramjam.DecompressionError as error:
        why = str(error)
    del small
    if size_bytes < max_bytes:
        room = mmap.mmap(-1, max_bytes, flags=mmap.MAP_PRIVATE)
        try:
            return _cut(room, into(data, room))
        except cramjam.DecompressionError as error:
            why = str(error)
        room.close()
    # Only the text of cramjam's error distinguishes a short buffer from a broken stream. It decides
    # the error code; the bound does not depend on it.
    raise _too_large(max_bytes) if "whole buffer" in why else _corrupt(codec, why)


def _cut(room: mmap.mmap, count: int) -> Decompressed:
    """Return the first `count` bytes of `room`, without a copy if the system has mremap."""
    if count:
        try:
            room.resize(count)
            return room
        except SystemError:  # no mremap (macOS)
            pass
    found = room[:count]
    room.close()
    return found


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
        try:
            for block in _snappy_blocks(view, max_bytes):
                blocks.append(block)
            return b"".join(blocks)
        finally:
            blocks.clear()  # the traceback of an error would keep the blocks alive


def _snappy_blocks(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed blocks of Java's framing, together at most `max_bytes`."""
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
        yield block


def _decompress_snappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    try:
        # The decompressor allocates the size that the block declares (CVE-2023-34455).
        if cramjam.snappy.decompress_raw_len(block) <= left:
            return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        why = str(error)
    else:
        raise _too_large(max_bytes)
    raise _corrupt("snappy", why)
