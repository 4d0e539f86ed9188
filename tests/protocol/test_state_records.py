"""The fast reader for a state topic's records returns exactly what the general decoder returns."""

import struct
from typing import Final

import pytest

from odradek.protocol.batch import Codec, iter_batches, set_crc
from odradek.protocol.control import encode_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch, encode_batch
from odradek.protocol.state_records import StateRecord, iter_state_records
from tests.drawing import given, st

# around the sizes at which a length takes one byte more
sizes: Final = st.sampled_from([0, 1, 2, 40, 62, 63, 64, 65, 126, 8190, 8191, 8192, 8193, 20_000])
texts: Final = sizes.flatmap(
    lambda size: st.builds(lambda byte: bytes([byte]) * size, st.integers(0, 255))
)
records: Final = st.builds(
    Record,
    key=st.none() | texts,
    value=st.none() | texts,
    headers=st.sampled_from([(), (), (), (("h", b"v"),)]),
    timestamp_ms=st.integers(0, 2**40),
)
batches: Final = st.builds(
    encode_batch,
    st.lists(records, min_size=1, max_size=3),
    producer_id=st.integers(-1, 2**40),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    is_transactional=st.booleans(),
)


def by_the_general_decoder(data: bytes) -> list[StateRecord]:
    return [
        (record.offset, header.attributes, header.producer_id, record.key, record.value)
        for header, batch in iter_batches(data)
        for record in decode_batch(batch)
    ]


@given(st.lists(batches, max_size=4))
def test_it_finds_what_the_general_decoder_finds(run: list[bytearray]) -> None:
    data = b"".join(run)
    assert list(iter_state_records(data)) == by_the_general_decoder(data)


def test_a_key_that_looks_like_the_end_of_a_record_is_a_key() -> None:
    """Lengths of three bytes: the first two alone would also give a record that ends correctly."""
    for tail in range(256):
        key = bytes(8190) + bytes([tail, 0])
        data = bytes(encode_batch([Record(key=key, value=b"")]))
        assert [found[3] for found in iter_state_records(data)] == [key]


def test_markers_are_told_by_the_attributes_of_their_batch() -> None:
    marker = encode_marker(
        committed=True, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=5
    )
    ((_, attributes, producer_id, _, _),) = iter_state_records(bytes(marker))
    assert (attributes & 0x30, producer_id) == (0x30, 7)


def test_what_compaction_left_of_a_batch_keeps_its_offset() -> None:
    """Two of three records are removed. The batch keeps its base offset."""
    whole = encode_batch([Record(key=key, value=b"v") for key in (b"a", b"b", b"c")], base_offset=9)
    second = bytes(whole)[61 + 9 : 61 + 18]
    left = bytearray(whole[:61] + second)
    struct.pack_into(">i", left, 8, len(left) - 12)
    struct.pack_into(">i", left, 57, 1)
    set_crc(left)
    assert [(r[0], r[3]) for r in iter_state_records(bytes(left))] == [(10, b"b")]


ONE: Final = bytes(encode_batch([Record(key=b"key", value=b"value")]))


@pytest.mark.parametrize("at", [16, 17, 21, 40, 57, 61, 65, len(ONE) - 1])
def test_damage_is_found_wherever_it_is(at: int) -> None:
    damaged = bytearray(ONE)
    damaged[at] ^= 1
    with pytest.raises(KafkaError) as caught:
        list(iter_state_records(ONE + bytes(damaged)))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [0, 48, 49, 50, len(ONE) - 13, len(ONE) - 11, -1, 2**31 - 1])
def test_a_wrong_length_is_damage(length: int) -> None:
    damaged = bytearray(ONE)
    struct.pack_into(">i", damaged, 8, length)
    if 49 <= length <= len(ONE) - 12:
        set_crc(damaged)
    with pytest.raises(KafkaError) as caught:
        list(iter_state_records(bytes(damaged)))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("end", [1, 60, 61, len(ONE) - 1])
def test_a_run_that_is_cut_off_is_damage(end: int) -> None:
    with pytest.raises(KafkaError):
        list(iter_state_records(ONE + ONE[:end]))


@given(st.binary(min_size=1, max_size=24))
def test_a_body_of_any_bytes_is_read_as_the_general_decoder_reads_it(body: bytes) -> None:
    batch = bytearray(ONE[:61] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    set_crc(batch)
    data = bytes(batch)
    try:
        expected: list[StateRecord] | ErrorCode = by_the_general_decoder(data)
    except KafkaError as error:
        expected = error.code
    try:
        found: list[StateRecord] | ErrorCode = list(iter_state_records(data))
    except KafkaError as error:
        found = error.code
    assert found == expected
