"""The records of consumer groups (KIP-848): read back as written, and as Kafka writes them."""

from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.broker.environment.work import whole
from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.consumer.consumer_group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberProgress,
    ResolvedPattern,
)
from odradek.broker.group.consumer.consumer_group_records import (
    ConsumerEntry,
    GroupBeingRead,
    difference,
    tombstones,
)
from odradek.broker.group.consumer.reconcile import without_conflicts
from odradek.broker.group.store import read_entry, write_entry, write_entry_in_steps
from odradek.protocol.record import Record
from odradek.protocol.state_topics import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    CurrentTopicPartitions,
    decode_value,
    encode_key,
    encode_value,
)
from tests.drawing import given, st

T: Final = UUID(int=1)
U: Final = UUID(int=2)
CLASSIC: Final = ClassicSide(
    session_timeout_ms=9, protocols=(MemberProtocol("range", b"\0\1"), MemberProtocol("x", b""))
)
topic_ids = st.sampled_from([T, U])
epochs = st.dictionaries(
    topic_ids, st.dictionaries(st.integers(0, 3), st.integers(0, 9), min_size=1)
)
targets = st.dictionaries(topic_ids, st.frozensets(st.integers(0, 3), min_size=1))
patterns = st.builds(
    ResolvedPattern,
    topics=st.frozensets(st.sampled_from("tu")),
    version=st.integers(0, 9),
    resolved_ms=st.integers(0, 9),
)


@st.composite
def members(draw: st.DrawFn, member_id: str) -> ConsumerMember:
    return ConsumerMember(
        member_id=member_id,
        instance_id=draw(st.sampled_from([None, "i"])),
        rack_id=draw(st.sampled_from([None, "r"])),
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=draw(st.integers(-1, 9)),
        topics=draw(st.frozensets(st.sampled_from(["t", "u"]))),
        regex=draw(st.sampled_from(["", "t.*"])),
        classic=draw(st.sampled_from([None, CLASSIC])),
        assignor=draw(st.sampled_from([None, "range"])),
        epoch=draw(st.integers(-2, 9)),
        previous_epoch=draw(st.integers(-1, 9)),
        progress=draw(st.sampled_from(MemberProgress)),
        assigned=draw(epochs),
        revoking=draw(epochs),
    )


@st.composite
def groups(draw: st.DrawFn) -> ConsumerGroup:
    names = draw(st.lists(st.sampled_from("abc"), unique=True))
    return ConsumerGroup(
        group_id="g",
        epoch=draw(st.integers(1, 9)),
        metadata_hash=draw(st.integers(-(2**63), 2**63 - 1)),
        assignment_epoch=draw(st.integers(0, 9)),
        assigned_ms=1,
        members=without_conflicts(draw(members(name)) for name in names),
        targets={name: draw(targets) for name in names},
        patterns=draw(st.dictionaries(st.sampled_from(["t.*", "u"]), patterns)),
    )


def stored(entries: list[ConsumerEntry]) -> list[ConsumerEntry]:
    """Return entries as they are read from their records."""
    records = [write_entry(entry, 0) for entry in entries]
    assert [whole(write_entry_in_steps(entry, 0)) for entry in entries] == records
    found = [read_entry(record) for record in records]
    assert all(isinstance(entry, ConsumerEntry) for entry in found)
    return found  # type: ignore[return-value]


@given(lives=st.lists(groups(), min_size=1, max_size=4))
def test_a_group_is_read_as_it_was_written_change_by_change(lives: list[ConsumerGroup]) -> None:
    being_read = GroupBeingRead("g")
    before = ConsumerGroup(group_id="g")
    for group in lives:
        for entry in stored(whole(difference(before, group))):
            being_read.apply(entry)
        assert being_read.is_there
        assert being_read.group() == group
        before = group
    assert whole(difference(before, before)) == []
    for entry in stored(whole(tombstones(before))):
        being_read.apply(entry)
    assert not being_read.is_there
    assert being_read.group() == ConsumerGroup(group_id="g")


@given(group=groups())
def test_compaction_may_leave_the_newest_record_of_each_key_in_any_order(
    group: ConsumerGroup,
) -> None:
    being_read = GroupBeingRead("g")
    for entry in reversed(stored(whole(difference(ConsumerGroup(group_id="g"), group)))):
        being_read.apply(entry)
    assert being_read.group() == group


def test_a_record_of_kafka_before_4_3_has_the_members_epoch_for_every_partition() -> None:
    being_read = GroupBeingRead("g")
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=99,
        assigned_partitions=(CurrentTopicPartitions(topic_id=T, partitions=(1, 2)),),
        partitions_pending_revocation=(),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    being_read.apply(ConsumerEntry(key, value))
    member = being_read.group().members["a"]
    assert member.assigned == {T: {1: 5, 2: 5}}
    assert member.progress is MemberProgress.UNKNOWN


def test_the_topics_that_kafka_4_0_wrote_are_removed_with_the_next_epoch() -> None:
    key = encode_key(ConsumerGroupPartitionMetadataKey(group_id="g"))
    value = encode_value(ConsumerGroupPartitionMetadataValue(topics=()))
    entry = read_entry(Record(key=key, value=value))
    assert isinstance(entry, ConsumerEntry)
    being_read = GroupBeingRead("g")
    being_read.apply(entry)
    group = being_read.group()
    assert group.has_topic_record
    assert ConsumerEntry(ConsumerGroupPartitionMetadataKey(group_id="g"), None) in whole(
        difference(group, ConsumerGroup(group_id="g", epoch=1))
    )


def test_the_bytes_are_those_of_kafkas_serialiser() -> None:
    """Printed by `MessageUtil.toVersionPrefixedBytes` of Kafka 4.3.1."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    assert encode_key(key) == b"\0\x08\0\x01g\0\x01m"
    current = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=1,
        state=0,
        assigned_partitions=(
            CurrentTopicPartitions(topic_id=T, partitions=(7,), assignment_epochs=(2,)),
        ),
        partitions_pending_revocation=(),
    )
    assert encode_value(current).hex() == (
        "00000000000200000001000200000000000000000000000000000001020000000701000502000000020100"
    )
    member = ConsumerGroupMemberMetadataValue(
        instance_id="i",
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=("t",),
        subscribed_topic_regex="",
        rebalance_timeout_ms=9,
        server_assignor="range",
        classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=()),
    )
    assert encode_value(member).hex() == (
        "00000269000263032f6802027401000000090672616e676501000701000000050100"
    )


def test_a_member_of_the_new_protocol_says_so_as_kafka_does() -> None:
    """The bytes are a real Kafka's. It takes a missing tag 0 for a classic member."""
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="judge",
        client_host="/127.0.0.1",
        subscribed_topic_names=("t",),
        subscribed_topic_regex="",
        rebalance_timeout_ms=300_000,
        server_assignor=None,
        classic_member_metadata=None,
    )
    written = b"\0\0\0\0\x06judge\x0b/127.0.0.1\x02\x02t\x01\0\x04\x93\xe0\0\x01\0\x01\0"
    assert encode_value(member) == written
    assert decode_value(ConsumerGroupMemberMetadataValue, written) == member
    earlier = written.removesuffix(b"\x01\0\x01\0") + b"\0"  # what Odradek wrote before
    found = decode_value(ConsumerGroupMemberMetadataValue, earlier)
    assert found == replace(member, classic_member_metadata=ClassicMemberMetadata())


def test_the_partitions_of_a_member_are_in_order_whichever_it_got_first() -> None:
    member = ConsumerMember(member_id="m", epoch=4, assigned={T: {1: 3, 2: 4, 0: 4}})
    after = ConsumerGroup(group_id="g", epoch=4, members={"m": member})
    written = [
        each.value
        for each in whole(difference(ConsumerGroup(group_id="g"), after))
        if isinstance(each.value, ConsumerGroupCurrentMemberAssignmentValue)
    ]
    (listed,) = written[0].assigned_partitions
    assert (listed.partitions, listed.assignment_epochs) == ((0, 1, 2), (4, 3, 4))


def test_the_records_of_a_member_with_many_topics_are_encoded_in_steps() -> None:
    """They were encoded in one step, which took 20 ms for 10,000 topics."""
    names = frozenset(f"t{number}" for number in range(1_000))
    ids = [UUID(int=number) for number in range(1_000)]
    owned = {topic_id: {0: 4, 7: 3} for topic_id in ids}
    group = ConsumerGroup(
        group_id="g",
        members={"m": ConsumerMember(member_id="m", topics=names, regex="t.*", assigned=owned)},
        targets={"m": {topic_id: frozenset({0, 7}) for topic_id in ids}},
        patterns={"t.*": ResolvedPattern(topics=names, version=1, resolved_ms=2)},
    )
    steps = [
        list(write_entry_in_steps(entry, 0))
        for entry in whole(difference(ConsumerGroup(group_id="g"), group))
    ]
    assert [len(each) for each in steps if len(each) > 10] == [1_001] * 4
    assert all(max(each) == 1 for each in steps)
