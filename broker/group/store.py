"""The records of `__consumer_offsets`: offsets and groups in Kafka's format.

Each offset is one record: value version 4, or 1 if the client sent an expiry time (OffsetCommit
2-4). A classic group is one record with all its members: value version 3. Kafka 4.3 writes these
versions; all older ones can be read too. A record without a value removes the offset or the group.
A consumer group of the new protocol is many records (`consumer/consumer_group_records.py`). Records
of share and streams groups are skipped.
"""

import struct
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from odradek.broker.environment.work import Work, whole
from odradek.broker.group.classic_group import ClassicGroup, Member, MemberProtocol
from odradek.broker.group.consumer.consumer_group_records import VALUE_OF, ConsumerEntry
from odradek.broker.group.state import GroupState
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol import wire
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import NO_HEADERS, BatchBuilder, Record, encode_contents
from odradek.protocol.schema import ZERO_UUID, array, int16, message
from odradek.protocol.state_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_consumer_offsets_key,
    decode_value,
    encode_key,
    encode_value,
    encode_value_in_steps,
)
from odradek.protocol.varint import encode_varint

OFFSET_VERSION: Final = 4
OFFSET_VERSION_THAT_EXPIRES: Final = 1
GROUP_VERSION: Final = 3
NO_EXPIRY: Final = -1

_PARTITION_BYTES: Final = 4
_OFFSET_BYTES: Final = 8
_VERSION_BYTES: Final = 2

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members have their topics in their metadata."""


class StoredOffset(NamedTuple):
    """A stored offset. Times are wall-clock milliseconds. Pass the fields by name.

    Like the other values of offsets it is a tuple, because a commit may have thousands of them.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: UUID = ZERO_UUID


PartitionOffset = tuple[TopicPartition, StoredOffset]


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """The offset of one partition for one group; None removes it."""

    group_id: str
    partition: TopicPartition
    stored: StoredOffset | None


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group with its members; None removes it."""

    group_id: str
    group: ClassicGroup | None


Entry = OffsetEntry | GroupEntry | ConsumerEntry


def add_entries(batch: BatchBuilder, entries: Iterable[Entry], now_ms: int) -> int:
    """Append the record of each entry until one does not fit. Return the number of them."""
    records = (write_entry(entry, now_ms) for entry in entries)
    return batch.add_encoded((encode_contents(each.key, each.value) for each in records), now_ms)


def add_offsets(
    batch: BatchBuilder, offsets: Iterable[PartitionOffset], now_ms: int, *, group_id: str
) -> int:
    """Append the records of offsets of one group, as `add_entries` does."""
    return batch.add_encoded(_offset_contents(group_id, offsets), now_ms)


def _offset_contents(group_id: str, offsets: Iterable[PartitionOffset]) -> Iterator[bytes]:
    """Yield the encoded key and value of each offset.

    The offsets of a request have most in common. Their keys differ in the partition, which comes
    last. Their values differ in the offset, which follows the version. The rest is encoded once.
    """
    topic_here: str | None = None
    common: tuple[object, ...] = ()
    before_partition = before_offset = after_offset = b""
    pack = struct.Struct("").pack
    for place, stored in offsets:
        topic, partition = place
        if topic != topic_here or stored[1:] != common:
            topic_here, common = topic, stored[1:]
            key, value, *_ = write_entry(OffsetEntry(group_id, place, stored), -1)
            assert key is not None
            assert value is not None
            before_partition = encode_varint(len(key)) + key[:-_PARTITION_BYTES]
            before_offset = encode_varint(len(value)) + value[:_VERSION_BYTES]
            after_offset = value[_VERSION_BYTES + _OFFSET_BYTES :] + NO_HEADERS
            pack = struct.Struct(
                f">{len(before_partition)}si{len(before_offset)}sq{len(after_offset)}s"
            ).pack
        yield pack(before_partition, partition, before_offset, stored[0], after_offset)


def write_entry(entry: Entry, now_ms: int) -> Record:
    """Encode an entry without a pause. A large one is encoded by `write_entry_in_steps`."""
    return whole(write_entry_in_steps(entry, now_ms))


def write_entry_in_steps(entry: Entry, now_ms: int) -> Work[Record]:
    """Return what `write_entry` returns. Each member or topic of a group is a step."""
    value: bytes | None = None
    if isinstance(entry, OffsetEntry):
        yield 2
        topic, partition = entry.partition
        key = encode_key(OffsetCommitKey(group=entry.group_id, topic=topic, partition=partition))
        if entry.stored is not None:
            value = _write_offset(entry.stored)
    elif isinstance(entry, ConsumerEntry):
        key = encode_key(entry.key)
        if entry.value is None:
            yield 2
        else:
            value = yield from encode_value_in_steps(entry.value)
    else:
        key = encode_key(GroupMetadataKey(group=entry.group_id))
        if entry.group is None:
            yield 2
        else:
            yield 1 + len(entry.group.members)
            value = yield from encode_value_in_steps(_group_value(entry.group), GROUP_VERSION)
    return Record(key=key, value=value, timestamp_ms=now_ms)


def read_entry(record: Record) -> Entry | None:
    """Return the entry in `record`; None for a kind of record that this broker does not serve.

    Raises ProtocolError for a damaged record, or for a newer version.
    """
    key = decode_consumer_offsets_key(record.key)
    if isinstance(key, UnknownKey):
        return None
    if isinstance(key, OffsetCommitKey):
        stored = None if record.value is None else _read_offset(record.value)
        return OffsetEntry(key.group, TopicPartition(key.topic, key.partition), stored)
    if isinstance(key, GroupMetadataKey):
        group = None if record.value is None else _read_group(key.group, record.value)
        return GroupEntry(key.group, group)
    value = None if record.value is None else decode_value(VALUE_OF[type(key)], record.value)
    return ConsumerEntry(key, value)


def _write_offset(stored: StoredOffset) -> bytes:
    expires = stored.expire_timestamp_ms != NO_EXPIRY
    return encode_value(
        OffsetCommitValue(
            offset=stored.offset,
            leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            commit_timestamp=stored.commit_timestamp_ms,
            expire_timestamp=stored.expire_timestamp_ms,
            topic_id=stored.topic_id,
        ),
        OFFSET_VERSION_THAT_EXPIRES if expires else OFFSET_VERSION,
    )


def _read_offset(data: bytes) -> StoredOffset:
    value = decode_value(OffsetCommitValue, data)
    return StoredOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )


def _group_value(group: ClassicGroup) -> GroupMetadataValue:
    members = tuple(
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=member.assignment,
        )
        for member in group.members.values()
    )
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )


def _read_group(group_id: str, data: bytes) -> ClassicGroup:
    """Decode a group. Its members have only the selected protocol, because no other is stored."""
    value = decode_value(GroupMetadataValue, data)
    members = {each.member_id: _read_member(each, value.protocol) for each in value.members}
    return ClassicGroup(
        group_id=group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        state_since_ms=value.current_state_timestamp,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
        members=MappingProxyType(members),
    )


def _read_member(value: MemberMetadata, protocol: str | None) -> Member:
    return Member(
        member_id=value.member_id,
        group_instance_id=value.group_instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        # Version 0 has no rebalance timeout.
        rebalance_timeout_ms=value.session_timeout
        if value.rebalance_timeout < 0
        else value.rebalance_timeout,
        session_timeout_ms=value.session_timeout,
        protocols=(MemberProtocol(protocol or "", value.subscription),),
        assignment=value.assignment,
    )


@message
class ConsumerSubscription:
    """The first fields of a consumer's metadata, which are the same in all versions."""

    version: int = int16()
    topics: tuple[str, ...] = array("string")


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that the members read; None if their metadata cannot be read."""
    if group.protocol_type != CONSUMER:
        return None
    try:
        return frozenset(
            topic
            for member in group.members.values()
            for topic in wire.parse(
                ConsumerSubscription, 0, False, member.metadata(group.protocol_name)
            ).topics
        )
    except ProtocolError:
        return None
