"""A batch that gets another codec: what stays, what is refused."""

import struct

import pytest

from odradek.broker.environment.env import inline
from odradek.broker.storage.config import MIB, Compression
from odradek.broker.storage.decompressor import INLINE_MAX_BYTES, Decompressor
from odradek.broker.storage.recompression import recompressed
from odradek.protocol.batch import Codec, crc_is_good, read_header, set_crc
from odradek.protocol.compression import DECOMPRESSED_MAX_BYTES, compress
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch, encode_batch
from tests.drawing import given, st

pytestmark = pytest.mark.slow

FIELDS = (
    "base_offset",
    "partition_leader_epoch",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
    "is_transactional",
    "timestamp_type",
)
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        timestamp_ms=st.integers(0, 2**40),
        headers=st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=20,
)
LEVELS = {Codec.GZIP: 9, Codec.LZ4: 12, Codec.ZSTD: 19}


async def made(batch: bytearray, wanted: Compression, max_message_bytes: int = MIB) -> bytearray:
    return await recompressed(
        read_header(batch),
        memoryview(batch),
        wanted,
        Decompressor(inline),
        max_message_bytes=max_message_bytes,
    )


@pytest.mark.parametrize("to", list(Codec))
@pytest.mark.parametrize("from_", list(Codec))
@given(
    records=RECORDS,
    producer=st.tuples(st.integers(0, 2**62), st.integers(0, 32_767)),
    sequence=st.integers(0, 2**31 - 1),
    is_transactional=st.booleans(),
    with_level=st.booleans(),
)
async def test_everything_but_the_codec_stays(
    from_: Codec,
    to: Codec,
    records: list[Record],
    producer: tuple[int, int],
    sequence: int,
    is_transactional: bool,
    with_level: bool,
) -> None:
    before = encode_batch(
        records,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=is_transactional,
        codec=from_,
    )
    after = await made(before, Compression(to, LEVELS.get(to) if with_level else None))
    old, new = read_header(before), read_header(after)
    assert {name: getattr(new, name) for name in FIELDS} == {
        name: getattr(old, name) for name in FIELDS
    }
    assert new.codec == to
    assert new.size_bytes == len(after)
    assert crc_is_good(after, new)
    assert list(decode_batch(memoryview(after))) == list(decode_batch(memoryview(before)))


async def refusal(batch: bytearray, wanted: Compression, max_message_bytes: int = MIB) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await made(batch, wanted, max_message_bytes)
    return refused.value.code


def bomb(size_bytes: int) -> bytearray:
    """A small batch with one large record."""
    return encode_batch([Record(None, bytes(size_bytes))], codec=Codec.ZSTD)


async def test_a_small_batch_that_is_large_without_compression_is_refused() -> None:
    batch = bomb(2 * MIB)
    assert len(batch) < 1000
    plain = Compression(Codec.NONE)
    assert await refusal(batch, plain) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(await made(batch, plain, 4 * MIB)) > 2 * MIB
    assert len(await made(batch, Compression(Codec.GZIP))) < 10_000, "as in Kafka"
    small = bomb(INLINE_MAX_BYTES // 2)
    assert await refusal(small, plain, 1000) is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_bomb_is_refused_whatever_the_codec() -> None:
    batch = bomb(DECOMPRESSED_MAX_BYTES + 1)
    assert await refusal(batch, Compression(Codec.LZ4)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_records_that_cannot_be_decompressed_are_corrupt(codec: Codec) -> None:
    batch = encode_batch([Record(None, b"value" * 100)], codec=codec)
    batch[70:] = b"\xff" * (len(batch) - 70)
    set_crc(batch)
    to = Codec.NONE if codec is not Codec.GZIP else Codec.ZSTD
    assert await refusal(batch, Compression(to)) is ErrorCode.CORRUPT_MESSAGE


async def test_a_number_of_records_that_cannot_be_there_is_corrupt() -> None:
    batch = encode_batch([Record(None, b"value")], codec=Codec.GZIP)
    struct.pack_into(">i", batch, 57, 1_000_000)
    set_crc(batch)
    assert await refusal(batch, Compression(Codec.NONE)) is ErrorCode.CORRUPT_MESSAGE


def test_levels_matter() -> None:
    text = b"".join(b"%d " % (number * number) for number in range(20_000))
    assert len(compress(Codec.GZIP, text, 9)) < len(compress(Codec.GZIP, text, 1))
    assert len(compress(Codec.ZSTD, text, 19)) < len(compress(Codec.ZSTD, text, -5))
    assert len(compress(Codec.LZ4, text, 12)) < len(compress(Codec.LZ4, text))
