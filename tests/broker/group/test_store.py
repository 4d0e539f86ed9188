"""Records of `__consumer_offsets`, byte for byte as Kafka writes them where it matters."""

import sys
from types import FrameType
from uuid import UUID

import pytest

from odradek.broker.environment.work import whole
from odradek.broker.group.classic_group import ClassicGroup, Member, MemberProtocol
from odradek.broker.group.state import GroupState
from odradek.broker.group.store import (
    Entry,
    GroupEntry,
    OffsetEntry,
    PartitionOffset,
    StoredOffset,
    add_entries,
    add_offsets,
    read_entry,
    subscribed_topics,
    write_entry,
    write_entry_in_steps,
)
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import BatchBuilder, Record, decode_batch
from odradek.protocol.state_topics import GroupMetadataValue, MemberMetadata, encode_value
from tests.drawing import given, st

P0 = TopicPartition("departures", 0)


def member(member_id: str, metadata: bytes = b"\1\2", **options: object) -> Member:
    fields: dict[str, object] = {
        "member_id": member_id,
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 300_000,
        "session_timeout_ms": 45_000,
        "protocols": (MemberProtocol("range", metadata),),
        "assignment": b"\3",
    }
    return Member(**fields | options)  # type: ignore[arg-type]


def group(*members: Member, protocol_type: str | None = "consumer") -> ClassicGroup:
    return ClassicGroup(
        group_id="g",
        state=GroupState.STABLE if members else GroupState.EMPTY,
        state_since_ms=12,
        generation_id=3,
        protocol_type=protocol_type,
        protocol_name="range" if members else None,
        leader_id=members[0].member_id if members else None,
        members={each.member_id: each for each in members},
    )


OFFSET = OffsetEntry(
    "g", P0, StoredOffset(offset=5, leader_epoch=2, metadata="é", topic_id=UUID(int=7))
)
THAT_EXPIRES = OffsetEntry(
    "g", P0, StoredOffset(offset=0, commit_timestamp_ms=1, expire_timestamp_ms=2)
)
ENTRIES: list[Entry] = [
    OFFSET,
    THAT_EXPIRES,
    OffsetEntry("", TopicPartition("", 2**31 - 1), None),
    GroupEntry("g", group(member("a", group_instance_id="i"), member("b"))),
    GroupEntry("g", group()),
    GroupEntry("g", group(protocol_type=None)),
    GroupEntry("g", None),
]


def partition_offsets() -> st.SearchStrategy[PartitionOffset]:
    stored = st.builds(
        StoredOffset,
        offset=st.integers(0, 2**63 - 1),
        leader_epoch=st.integers(-1, 1),
        metadata=st.sampled_from(["", "m", "é" * 100]),
        commit_timestamp_ms=st.sampled_from([1, 2]),
        expire_timestamp_ms=st.sampled_from([-1, 7]),
        topic_id=st.sampled_from([UUID(int=0), UUID(int=5)]),
    )
    places = st.builds(TopicPartition, st.sampled_from(["t", "ü"]), st.integers(0, 3))
    return st.tuples(places, stored)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_written_is_read(entry: Entry) -> None:
    assert read_entry(write_entry(entry, 99)) == entry
    assert whole(write_entry_in_steps(entry, 99)) == write_entry(entry, 99)


def records_of(batch: BatchBuilder) -> list[Record]:
    return [each._replace(offset=-1) for each in decode_batch(batch.build())]


@given(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=20))
def test_many_entries_are_written_as_each_of_them(entries: list[Entry]) -> None:
    batch = BatchBuilder()
    assert add_entries(batch, entries, 99) == len(entries)
    assert records_of(batch) == [write_entry(each, 99) for each in entries]


@given(st.lists(partition_offsets(), min_size=1, max_size=20))
def test_many_offsets_are_written_as_each_of_them(offsets: list[PartitionOffset]) -> None:
    batch = BatchBuilder()
    assert add_offsets(batch, offsets, 99, group_id="g") == len(offsets)
    assert records_of(batch) == [write_entry(OffsetEntry("g", *each), 99) for each in offsets]


def test_what_the_offsets_of_a_request_have_in_common_is_encoded_once() -> None:
    offsets = [
        (TopicPartition("t", index), StoredOffset(offset=index, metadata="m"))
        for index in range(1_000)
    ]
    encoded = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal encoded
        encoded += event == "call" and frame.f_code is write_entry.__code__

    sys.setprofile(count)
    try:
        add_offsets(BatchBuilder(), offsets, 99, group_id="g")
    finally:
        sys.setprofile(None)
    assert encoded == 1


def test_offsets_are_written_in_the_version_of_kafka_4_3() -> None:
    kept = write_entry(OFFSET, 99)
    assert kept.key == b"\0\1\0\1g\0\x0adepartures\0\0\0\0"
    assert kept.value == (
        b"\0\4"  # version
        + (5).to_bytes(8, "big")
        + (2).to_bytes(4, "big")
        + b"\3\xc3\xa9"  # compact string
        + b"\xff" * 8  # commit timestamp
        + b"\1\0\x10"  # one tag, number 0, 16 bytes
        + UUID(int=7).bytes
    )
    assert kept.timestamp_ms == 99


def test_only_an_offset_with_an_expiry_time_is_written_in_version_1() -> None:
    kept = write_entry(THAT_EXPIRES, 99)
    assert kept.value is not None
    assert kept.value[:2] == b"\0\1"
    assert kept.value[-8:] == (2).to_bytes(8, "big")


def test_groups_are_written_in_version_3() -> None:
    kept = write_entry(GroupEntry("g", group(member("a"))), 99)
    assert kept.key == b"\0\2\0\1g"
    assert kept.value is not None
    assert kept.value[:2] == b"\0\3"


def test_a_group_of_version_0_had_one_timeout() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="a",
        members=(
            MemberMetadata(
                member_id="a",
                client_id="c",
                client_host="/h",
                session_timeout=9,
                subscription=b"",
                assignment=b"",
            ),
        ),
    )
    kept = Record(key=b"\0\2\0\1g", value=encode_value(value, 0))
    entry = read_entry(kept)
    assert isinstance(entry, GroupEntry)
    assert entry.group is not None
    assert entry.group.members["a"].rebalance_timeout_ms == 9


def test_other_kinds_of_records_are_passed_over() -> None:
    assert read_entry(Record(key=b"\0\x14\0\1g", value=b"")) is None


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\1"])
def test_a_damaged_key_is_an_error(key: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        read_entry(Record(key=key, value=None))


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff rest"


def test_the_topics_of_a_consumer_group_are_those_of_all_its_members() -> None:
    both = group(member("a", subscription("x", "y")), member("b", subscription("y", "z")))
    assert subscribed_topics(both) == frozenset("xyz")


def test_what_members_that_are_no_consumers_read_is_not_known() -> None:
    assert subscribed_topics(group(member("a", b"\0"))) is None
    assert subscribed_topics(group(member("a"), protocol_type="connect")) is None
