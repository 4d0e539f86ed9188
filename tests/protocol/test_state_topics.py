"""Records of the state topics, their versions, and the partition of each id."""

import struct
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.protocol.errors import ProtocolError
from odradek.protocol.state_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionsSchema,
    StateKey,
    TransactionLogKey,
    TransactionLogValue,
    UnknownKey,
    decode_consumer_offsets_key,
    decode_transaction_state_key,
    decode_value,
    encode_key,
    encode_value,
    java_hash,
    state_partition,
    tag_of,
    transaction_partition,
)
from tests.drawing import given, st
from tests.protocol.messages import messages, quick

HASHES: Final = {  # String.hashCode of JDK 17, and the partition of fifty
    "": (0, 0),
    "a": (97, 47),
    "txn-1": (110810510, 10),
    "my-transactional-id": (-959806496, 46),
    "group": (98629247, 47),
    "polygenelubricants": (-2147483648, 0),
    "é": (233, 33),
    "\U0001d4b3": (1772318, 18),
    "test-group": (627841412, 12),
    "connect-cluster": (1440343063, 13),
}


@pytest.mark.parametrize(("text", "expected"), HASHES.items())
def test_identifiers_are_hashed_as_in_java(text: str, expected: tuple[int, int]) -> None:
    assert (java_hash(text), state_partition(text, 50)) == expected


@given(st.text(max_size=300))
def test_identifiers_of_any_length_are_hashed_as_java_does_it(text: str) -> None:
    data = text.encode("utf-16-be", "surrogatepass")
    expected = 0
    for start in range(0, len(data), 2):
        expected = (31 * expected + int.from_bytes(data[start : start + 2])) % 2**32
    assert java_hash(text) % 2**32 == expected
    assert -(2**31) <= java_hash(text) < 2**31


@pytest.mark.parametrize(
    ("transactional_id", "tag"),
    [
        ("{orders}.task-7", "orders"),
        ("a{b}c", "b"),
        ("a{b{c}d}", "b{c"),
        ("a}b{c}", "c"),
        ("{a}{b}", "a"),
        ("{}{b}", None),
        ("{a", None),
        ("a}", None),
        ("orders", None),
        ("", None),
    ],
)
def test_a_tag_stands_between_the_first_brace_and_the_next_one_that_closes(
    transactional_id: str, tag: str | None
) -> None:
    assert tag_of(transactional_id) == tag
    by_tag = transaction_partition(transactional_id, 50, by_tag=True)
    assert by_tag == state_partition(transactional_id if tag is None else tag, 50)
    by_name = transaction_partition(transactional_id, 50, by_tag=False)
    assert by_name == state_partition(transactional_id, 50)


def test_keys_of_the_transaction_state() -> None:
    key = TransactionLogKey(transactional_id="refunds-0")
    data = encode_key(key)
    assert data == b"\0\0\0\x09refunds-0"
    assert decode_transaction_state_key(data) == key


def test_keys_of_the_consumer_offsets() -> None:
    offset = OffsetCommitKey(group="g", topic="t", partition=258)
    group = GroupMetadataKey(group="g")
    assert encode_key(offset) == b"\0\1\0\1g\0\1t\0\0\1\2"
    assert encode_key(group) == b"\0\2\0\1g"
    for key in (offset, group):
        assert decode_consumer_offsets_key(encode_key(key)) == key
    assert decode_consumer_offsets_key(b"\0\0\0\1g\0\1t\0\0\1\2") == offset  # version 0


@pytest.mark.parametrize("version", [9, 15, 20, -1])
def test_keys_of_another_kind_are_unknown_and_no_error(version: int) -> None:
    data = struct.pack(">h", version) + b"whatever"
    assert decode_consumer_offsets_key(data) == UnknownKey(version=version)
    assert decode_transaction_state_key(data) == UnknownKey(version=version)


@pytest.mark.parametrize("data", [None, b"", b"\0", b"\0\1\0\5g"])
def test_what_is_no_key_is_refused(data: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_consumer_offsets_key(data)


@pytest.mark.parametrize("data", [None, b"", b"\0", b"\0\0\0\5g"])
def test_what_is_no_key_of_a_transaction_is_refused(data: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_transaction_state_key(data)


TRANSACTION: Final = TransactionLogValue(
    producer_id=4,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema(topic="t", partition_ids=(0, 3)),),
    transaction_last_update_timestamp_ms=20,
    transaction_start_timestamp_ms=10,
)


def test_a_transaction_is_written_in_the_flexible_version_as_kafka_would() -> None:
    expected = (
        struct.pack(">hqhib", 1, 4, 2, 60_000, 1)
        + b"\x02\x02t\x03\0\0\0\0\0\0\0\x03\0"
        + struct.pack(">qq", 20, 10)
        + b"\0"
    )
    assert encode_value(TRANSACTION) == expected
    assert decode_value(TransactionLogValue, expected) == TRANSACTION


def test_a_transaction_of_version_0_is_written_and_read() -> None:
    data = encode_value(TRANSACTION, version=0)
    assert data[:2] == b"\0\0"
    assert decode_value(TransactionLogValue, data) == TRANSACTION


def test_why_an_epoch_was_bumped_and_for_whom_is_kept_in_tags_of_our_own() -> None:
    value = TransactionLogValue(
        producer_id=4,
        previous_producer_id=3,
        next_producer_id=5,
        producer_epoch=2,
        next_producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=0,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=20,
        transaction_start_timestamp_ms=-1,
        client_transaction_version=2,
        epoch_bump_cause="timeout",
        client_id="refunds",
        client_host="10.0.0.7",
    )
    data = encode_value(value)
    assert decode_value(TransactionLogValue, data) == value
    # Kafka's four tags, then Odradek's: 10,000 is 0x90 0x4e as a varint.
    assert data[data.index(b"\x07\x00\x08") :].count(b"\x90\x4e\x08\x08timeout") == 1


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert encode_value(value) == struct.pack(">hqi", 3, 7, 2) + b"\0\1m" + struct.pack(">q", 9)
    with_id = OffsetCommitValue(offset=7, metadata="", commit_timestamp=9, topic_id=UUID(int=5))
    assert encode_value(with_id)[:2] == b"\0\4"
    assert decode_value(OffsetCommitValue, encode_value(with_id)) == with_id


def test_a_group_is_written_as_kafka_writes_it() -> None:
    member = MemberMetadata(
        member_id="m-1",
        group_instance_id="static",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"sub",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m-1",
        current_state_timestamp=5,
        members=(member,),
    )
    data = encode_value(value)
    assert data[:2] == b"\0\3"
    assert decode_value(GroupMetadataValue, data) == value


VALUES: Final = [(TransactionLogValue, 1), (OffsetCommitValue, 4), (GroupMetadataValue, 4)]
KEYS: Final = [TransactionLogKey, OffsetCommitKey, GroupMetadataKey]


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, version) for kind, last in VALUES for version in range(last + 1)]
)
def test_every_version_of_a_value_is_read_back(kind: Any, version: int) -> None:
    @given(value=messages(kind, version))
    @quick
    def check(value: Any) -> None:
        data = encode_value(value, version)
        assert decode_value(kind, data) == value
        for end in range(len(data)):
            with pytest.raises(ProtocolError):
                decode_value(kind, data[:end])

    check()


@pytest.mark.parametrize("kind", KEYS)
def test_every_key_is_read_back(kind: Any) -> None:
    @given(key=messages(kind, 0))
    @quick
    def check(key: StateKey) -> None:
        data = encode_key(key)
        is_transaction = isinstance(key, TransactionLogKey)
        decode = decode_transaction_state_key if is_transaction else decode_consumer_offsets_key
        assert decode(data) == key

    check()


@pytest.mark.parametrize(("kind", "last"), VALUES)
def test_a_value_from_the_future_is_refused_in_words(kind: Any, last: int) -> None:
    for version in (last + 1, -1):
        with pytest.raises(ProtocolError, match=f"versions up to {last}, but this is {version}"):
            decode_value(kind, struct.pack(">h", version) + bytes(100))
