"""Compression compatible with Kafka's clients, with bounded memory.

The bombs are measured in a separate process, because only the kernel sees the allocations of a Rust
library; tracemalloc does not.
"""

import gzip
import os
import struct
import subprocess
import sys
import textwrap

import aiokafka.codec
import cramjam
import pytest

from odradek.protocol.batch import Codec
from odradek.protocol.compression import XERIAL_HEADER, XERIAL_MAGIC, compress, decompress
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.drawing import given, settings, st
from tests.protocol.messages import quick

pytestmark = pytest.mark.slow

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
every_compression = pytest.mark.parametrize("codec", COMPRESSED)

some_data = st.binary(max_size=200) | st.builds(
    lambda piece, count: piece * count, st.binary(min_size=1, max_size=9), st.integers(1, 30_000)
)


@given(data=some_data)
@settings(quick, max_examples=40)
@every_compression
def test_what_is_compressed_is_decompressed(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), max_bytes=len(data))[:] == data
    assert decompress(codec, compress(codec, memoryview(bytearray(data))))[:] == data


@pytest.mark.parametrize(
    ("codec", "decode"),
    [
        (Codec.GZIP, gzip.decompress),
        (Codec.SNAPPY, aiokafka.codec.snappy_decode),
        (Codec.LZ4, aiokafka.codec.lz4_decode),
        (Codec.ZSTD, aiokafka.codec.zstd_decode),
    ],
)
def test_others_read_what_we_compress(codec: Codec, decode: object) -> None:
    data = b"some words, " * 20_000 + os.urandom(100_000)
    assert callable(decode)
    assert bytes(decode(compress(codec, data))) == data


@pytest.mark.parametrize(
    ("codec", "encode"),
    [
        (Codec.GZIP, gzip.compress),
        (Codec.SNAPPY, aiokafka.codec.snappy_encode),
        (Codec.SNAPPY, cramjam.snappy.compress_raw),  # as librdkafka writes it
        (Codec.LZ4, aiokafka.codec.lz4_encode),
        (Codec.LZ4, cramjam.lz4.compress),  # with dependent blocks, size and checksum
        (Codec.ZSTD, aiokafka.codec.zstd_encode),
    ],
)
def test_we_read_what_others_compress(codec: Codec, encode: object) -> None:
    data = b"some words, " * 20_000 + os.urandom(100_000)
    assert callable(encode)
    assert decompress(codec, bytes(encode(data)), max_bytes=len(data)) == data


def test_snappy_is_written_in_the_framing_of_java() -> None:
    compressed = compress(Codec.SNAPPY, bytes(100_000))
    assert compressed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert aiokafka.codec.snappy_encode(bytes(100_000)) == compressed


def test_blocks_of_lz4_are_independent_because_java_reads_no_others() -> None:
    magic, flags = struct.unpack_from("<IB", compress(Codec.LZ4, b"words " * 100_000))
    assert magic == 0x184D2204
    assert flags & 0x20


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_several_streams_in_a_row_are_one(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two")) == b"one two"


@every_compression
def test_the_limit_is_exact(codec: Codec) -> None:
    for size_bytes in (1, 32 * 1024, 64 * 1024, 1_000_000):
        compressed = compress(codec, bytes(size_bytes))
        assert len(decompress(codec, compressed, max_bytes=size_bytes)) == size_bytes
        with pytest.raises(KafkaError, match="more than") as refusal:
            decompress(codec, compressed, max_bytes=size_bytes - 1)
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


@every_compression
def test_a_stream_cut_off_anywhere_is_corrupt(codec: Codec) -> None:
    compressed = compress(codec, b"some words " * 40)
    # A stream that ends inside the magic of Java's snappy is raw. One that ends behind the header,
    # or between two blocks, is complete, because the framing has no number of blocks.
    first = len(XERIAL_MAGIC) if codec is Codec.SNAPPY else 0
    whole = {len(XERIAL_HEADER)} if codec is Codec.SNAPPY else set()
    for end in sorted(set(range(first, len(compressed))) - whole):
        with pytest.raises(KafkaError) as refusal:
            decompress(codec, compressed[:end], max_bytes=10_000)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE, end


@given(data=st.binary(max_size=60), position=st.integers(0, 2**16), change=st.binary(max_size=9))
@settings(quick, max_examples=150)
@every_compression
def test_changed_streams_are_read_or_refused_and_nothing_else(
    codec: Codec, data: bytes, position: int, change: bytes
) -> None:
    compressed = bytearray(compress(codec, data))
    start = position % (len(compressed) + 1)
    compressed[start : start + len(change)] = change
    try:
        assert len(decompress(codec, compressed, max_bytes=100_000)) <= 100_000
    except KafkaError as refusal:
        if refusal.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE):
            raise


def raw_block(declared_bytes: bytes) -> bytes:
    return declared_bytes + b"\x00a"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (raw_block(b"\xff\xff\xff\xff\x07"), ErrorCode.MESSAGE_TOO_LARGE),  # 2 GiB in seven bytes
        (raw_block(b"\xff\xff\xff\xff\x0f"), ErrorCode.MESSAGE_TOO_LARGE),  # read as signed: -1
        (XERIAL_HEADER + b"\xff\xff\xff\xff", ErrorCode.CORRUPT_MESSAGE),
        (XERIAL_HEADER + b"\x7f\xff\xff\xff" + b"a", ErrorCode.CORRUPT_MESSAGE),
        (XERIAL_HEADER + b"\x00\x00\x00", ErrorCode.CORRUPT_MESSAGE),
        (XERIAL_HEADER[:12], ErrorCode.CORRUPT_MESSAGE),
        (
            XERIAL_HEADER + b"\x00\x00\x00\x07" + raw_block(b"\xff\xff\xff\xff\x07"),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
def test_lengths_in_snappy_are_not_believed(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        decompress(Codec.SNAPPY, data)
    assert refusal.value.code is code


def test_the_blocks_of_snappy_are_bounded_together() -> None:
    block = cramjam.snappy.compress_raw(bytes(600_000))
    framed = struct.pack(">i", len(block)) + bytes(block)
    with pytest.raises(KafkaError, match="more than 1000000 bytes"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + framed * 2, max_bytes=1_000_000)


BOMB = """
    import resource, sys
    import cramjam
    from odradek.protocol.batch import Codec
    from odradek.protocol.compression import compress, decompress
    from odradek.protocol.errors import KafkaError

    def peak_kib():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    codec = Codec[sys.argv[1]]
    piece = compress(codec, bytes(8 * 1024 * 1024))
    blocks = piece[16:] if codec is Codec.SNAPPY else piece
    bomb = piece + blocks * 63  # 512 MiB of zeros
    before = peak_kib()
    try:
        decompress(codec, bomb, max_bytes=4 * 1024 * 1024)
    except KafkaError as error:
        print(error.code.name, peak_kib() - before)
"""


@every_compression
def test_a_bomb_is_refused_with_memory_flat(codec: Codec) -> None:
    script = textwrap.dedent(BOMB)
    done = subprocess.run(
        [sys.executable, "-c", script, codec.name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, grown_kib = done.stdout.split()
    assert code == "MESSAGE_TOO_LARGE"
    assert int(grown_kib) < 24 * 1024


KEPT_ERRORS = """
    import os, resource, sys
    from odradek.protocol.batch import Codec
    from odradek.protocol.compression import compress, decompress
    from odradek.protocol.errors import KafkaError

    def peak_kib():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    codec = Codec[sys.argv[1]]
    damaged = bytearray(compress(codec, bytes(16 * 1024 * 1024)))
    damaged[-20:] = b"\\xff" * 20
    errors = []
    before = peak_kib()
    for data in [damaged, b"garbage" * 20] * 10:
        try:
            decompress(codec, data)
        except KafkaError as error:
            errors.append(error)
    print(len(errors), peak_kib() - before)
"""


@every_compression
def test_an_error_that_is_kept_does_not_keep_the_buffer_of_what_was_decompressed(
    codec: Codec,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KEPT_ERRORS), codec.name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    count, grown_kib = map(int, done.stdout.split())
    assert count == 20
    assert grown_kib < 100 * 1024
