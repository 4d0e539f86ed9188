"""The records of the internal topics, and the partition of each group and transactional id.

`__transaction_state` and `__consumer_offsets` have Kafka's record formats, so that Kafka's tools
can read the data directory. Key and value are each an int16 version followed by a message. The
key's version is the kind of the record; the value's version is its format. A key of another kind
(share and streams groups use 9 and more, but 16) is read as `UnknownKey`, because a log that Kafka
wrote may have it. Partitions are chosen as in Kafka, by Java's hash of the string.

Odradek's own fields have tags from `OWN_TAGS_FROM` on. Kafka skips tags that it does not know.
"""

from collections.abc import Generator, Mapping, Sequence
from operator import mul
from struct import Struct, unpack
from typing import Any, Final, TypeVar
from uuid import UUID

from odradek.protocol import wire
from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import (
    ZERO_UUID,
    Buffer,
    array,
    blob,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset({TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC})

OWN_TAGS_FROM: Final = 10_000
"""The first tag of Odradek's own fields, far above those that Kafka defines."""

VERSION: Final = Struct(">h")
"""The version in front of every key and every value."""

Value = TypeVar("Value")


@message
class TransactionLogKey:
    transactional_id: str = string()


@message
class PartitionsSchema:
    """Partitions of one topic. Odradek's `topic_id`: zero if an earlier version wrote this."""

    topic: str = string()
    partition_ids: tuple[int, ...] = array("int32")
    topic_id: UUID = uuid(default=ZERO_UUID, since=1, tag=10_000)


@message
class TransactionLogValue:
    producer_id: int = int64()
    previous_producer_id: int = int64(default=-1, since=1, tag=0)
    next_producer_id: int = int64(default=-1, since=1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(default=-1, since=1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: tuple[PartitionsSchema, ...] | None = array(
        PartitionsSchema, nullable=0
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(default=0, since=1, tag=2)
    epoch_bump_cause: str | None = string(default=None, since=1, nullable=1, tag=10_000)
    client_id: str | None = string(default=None, since=1, nullable=1, tag=10_001)
    client_host: str | None = string(default=None, since=1, nullable=1, tag=10_002)
    epoch_bump_timestamp_ms: int = int64(default=-1, since=1, tag=10_003)
    last_producer_epoch: int = int16(default=-1, since=1, tag=10_004)
    decision_id: UUID = uuid(default=ZERO_UUID, since=1, tag=10_005)


@message
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@message
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32(default=-1, since=3)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(default=-1, since=1, until=1)
    topic_id: UUID = uuid(default=ZERO_UUID, since=4, tag=0)


@message
class GroupMetadataKey:
    group: str = string()


@message
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(default=-1, since=1)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


@message
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(default=-1, since=2)
    members: tuple[MemberMetadata, ...] = array(MemberMetadata)


# The records of a consumer group of the new protocol (KIP-848): one each for the group's epoch,
# each member's subscription, the target assignment, and each member's current assignment.


@message
class ConsumerGroupMetadataKey:
    group_id: str = string()


@message
class ConsumerGroupMetadataValue:
    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


@message
class ConsumerGroupPartitionMetadataKey:
    group_id: str = string()


@message
class PartitionMetadata:
    partition: int = int32()
    racks: tuple[str, ...] = array("string")


@message
class TopicMetadata:
    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: tuple[PartitionMetadata, ...] = array(PartitionMetadata)


@message
class ConsumerGroupPartitionMetadataValue:
    """Kafka 4.0 wrote it. Since 4.1 a hash in the group's record replaces it (KIP-1101)."""

    topics: tuple[TopicMetadata, ...] = array(TopicMetadata)


@message
class ConsumerGroupMemberMetadataKey:
    group_id: str = string()
    member_id: str = string()


@message
class ClassicProtocol:
    name: str = string()
    metadata: bytes = blob()


@message
class ClassicMemberMetadata:
    session_timeout_ms: int = int32(default=0)
    supported_protocols: tuple[ClassicProtocol, ...] = array(ClassicProtocol, default=())


@message
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = string(nullable=0)
    rack_id: str | None = string(nullable=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: tuple[str, ...] = array("string")
    subscribed_topic_regex: str | None = string(nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=0)
    # Kafka's code has an empty struct as the default, although its schema says null. So null is
    # written, and a reader takes a record without the field for one of a classic member.
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, default=ClassicMemberMetadata, nullable=0, tag=0
    )


@message
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = string()


@message
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


@message
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = string()
    member_id: str = string()


@message
class TargetTopicPartition:
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array("int32")


@message
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TargetTopicPartition, ...] = array(TargetTopicPartition)


@message
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = string()
    member_id: str = string()


@message
class CurrentTopicPartitions:
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array("int32")
    assignment_epochs: tuple[int, ...] | None = array("int32", default=(), nullable=0, tag=0)


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: tuple[CurrentTopicPartitions, ...] = array(CurrentTopicPartitions)
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...] = array(
        CurrentTopicPartitions
    )


@message
class ConsumerGroupRegularExpressionKey:
    group_id: str = string()
    regular_expression: str = string()


@message
class ConsumerGroupRegularExpressionValue:
    topics: tuple[str, ...] = array("string")
    version: int = int64()
    timestamp: int = int64()


@message
class UnknownKey:
    """The key of a record of another kind, which `version` gives."""

    version: int = int16()


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
OffsetsKey = OffsetCommitKey | GroupMetadataKey | ConsumerGroupKey
StateKey = TransactionLogKey | OffsetsKey
KEY_VERSIONS: Final[dict[type[StateKey], int]] = {
    TransactionLogKey: 0,
    OffsetCommitKey: 1,
    GroupMetadataKey: 2,
    ConsumerGroupMetadataKey: 3,
    ConsumerGroupPartitionMetadataKey: 4,
    ConsumerGroupMemberMetadataKey: 5,
    ConsumerGroupTargetAssignmentMetadataKey: 6,
    ConsumerGroupTargetAssignmentMemberKey: 7,
    ConsumerGroupCurrentMemberAssignmentKey: 8,
    ConsumerGroupRegularExpressionKey: 16,
}
"""The versions that are written. An OffsetCommitKey of version 0 has the same format."""

VALUE_VERSIONS: Final[dict[type[Any], tuple[int, int, int]]] = {
    TransactionLogValue: (1, 1, 1),
    OffsetCommitValue: (4, 4, 3),
    GroupMetadataValue: (4, 4, 3),
    ConsumerGroupMetadataValue: (0, 0, 0),
    ConsumerGroupPartitionMetadataValue: (0, 0, 0),
    ConsumerGroupMemberMetadataValue: (0, 0, 0),
    ConsumerGroupTargetAssignmentMetadataValue: (0, 0, 0),
    ConsumerGroupTargetAssignmentMemberValue: (0, 0, 0),
    ConsumerGroupCurrentMemberAssignmentValue: (0, 0, 0),
    ConsumerGroupRegularExpressionValue: (0, 0, 0),
}
"""For each value: the last version that is read, the first flexible version, and the version that
is written, which is Kafka 4.3's."""

_TRANSACTION_STATE_KEYS: Final[dict[int, type[TransactionLogKey]]] = {0: TransactionLogKey}
_CONSUMER_OFFSETS_KEYS: Final[dict[int, type[OffsetsKey]]] = {
    0: OffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}


def encode_key(key: StateKey) -> bytes:
    return _encode(key, KEY_VERSIONS[type(key)], is_flexible=False)


def decode_transaction_state_key(data: Buffer | None) -> TransactionLogKey | UnknownKey:
    """Decode the key of a `__transaction_state` record. Raises `ProtocolError` for other bytes."""
    return _decode_key(_TRANSACTION_STATE_KEYS, data)


def decode_consumer_offsets_key(data: Buffer | None) -> OffsetsKey | UnknownKey:
    """Decode the key of a `__consumer_offsets` record. Raises `ProtocolError` for other bytes."""
    return _decode_key(_CONSUMER_OFFSETS_KEYS, data)


def encode_value(value: object, version: int | None = None) -> bytes:
    """Encode a value as Kafka 4.3 writes it, or in another `version` with fewer fields."""
    _, flexible_from, written = VALUE_VERSIONS[type(value)]
    # Only version 4 of an offset has the topic id. Other offsets stay readable for older brokers.
    if version is None:
        has_topic_id = isinstance(value, OffsetCommitValue) and value.topic_id != ZERO_UUID
        version = 4 if has_topic_id else written
    return _encode(value, version, is_flexible=version >= flexible_from)


def encode_value_in_steps(value: object, version: int | None = None) -> Generator[int, None, bytes]:
    """Return the bytes of `encode_value`, and yield the number of the next steps.

    For the values of a group, which may have thousands of members or topics.
    """
    _, flexible_from, written = VALUE_VERSIONS[type(value)]
    version = written if version is None else version
    parts = yield from wire.build_in_steps(value, version, version >= flexible_from)
    return VERSION.pack(version) + b"".join(parts.finish())


def decode_value(kind: type[Value], data: Buffer) -> Value:
    """Decode a value of any version that Kafka 4.3 reads. Raises `ProtocolError` otherwise."""
    last, flexible_from, _ = VALUE_VERSIONS[kind]
    version, content = _split(data)
    if not 0 <= version <= last:
        raise ProtocolError(f"{kind.__name__} has versions up to {last}, but this is {version}")
    return wire.parse(kind, version, version >= flexible_from, content)


def _decode_key(kinds: Mapping[int, type[Value]], data: Buffer | None) -> Value | UnknownKey:
    if data is None:
        raise ProtocolError("a record of a state topic has no key")
    version, content = _split(data)
    kind = kinds.get(version)
    if kind is None:
        return UnknownKey(version=version)
    return wire.parse(kind, version, False, content)


def _encode(message: object, version: int, *, is_flexible: bool) -> bytes:
    return VERSION.pack(version) + b"".join(wire.build(message, version, is_flexible).finish())


def _split(data: Buffer) -> tuple[int, wire.Cursor]:
    cursor = wire.Cursor(data)
    return int(VERSION.unpack(cursor.view(VERSION.size))[0]), cursor


_HASH_POWERS: Final = tuple(31**power & 0xFFFFFFFF for power in range(65))


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit number."""
    units: Sequence[int] = text.encode() if text.isascii() else _utf_16(text)
    value = 0
    for start in range(0, len(units), len(_HASH_POWERS) - 1):
        some = units[start : start + len(_HASH_POWERS) - 1]
        # The sum of unit * 31 ** (number of units behind it), in C: each request needs it.
        value = value * _HASH_POWERS[len(some)] + sum(map(mul, some[::-1], _HASH_POWERS))
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _utf_16(text: str) -> Sequence[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return unpack(f">{len(data) // 2}H", data)


def tag_of(transactional_id: str) -> str | None:
    """Return what stands between the first `{` and the next `}`; None if there is nothing.

    The ids with a tag are the members of a transaction group, which share a coordinator.
    """
    _, opened, rest = transactional_id.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else None


def transaction_partition(transactional_id: str, partition_count: int, *, by_tag: bool) -> int:
    """Return the partition of `__transaction_state` that keeps a transactional id.

    `by_tag`: an id with a tag is kept where its tag hashes to. Whether that is so was stored when
    the topic was made: an id must never get a second owner.
    """
    tag = tag_of(transactional_id) if by_tag else None
    return state_partition(transactional_id if tag is None else tag, partition_count)


def state_partition(identifier: str, partition_count: int) -> int:
    """Return the partition of a state topic for `identifier`: abs(hash) % partition_count."""
    # Java's abs of the smallest number is negative. Kafka's Utils.abs returns 0 for it.
    value = java_hash(identifier)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
