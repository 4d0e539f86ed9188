"""The records of the internal topics and which partition keeps what.

`__transaction_state` and `__consumer_offsets` hold Kafka's own record formats: a key and a value,
each an int16 version and then a message. Partitions are chosen as Kafka does, by the hash that Java
gives a string.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.schema import (
    ZERO_UUID,
    array,
    blob,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset({TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC})


@message
class TransactionLogKey:
    transactional_id: str = string()


@message
class PartitionsSchema:
    topic: str = string()
    partition_ids: tuple[int, ...] = array("int32")


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


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def state_partition(identifier: str, partition_count: int) -> int:
    """The partition of a state topic that keeps `identifier`: abs(hash) % count, abs(MIN) = 0."""
    value = java_hash(identifier)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
