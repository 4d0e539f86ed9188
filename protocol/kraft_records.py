"""The records of `__cluster_metadata`, the log in which Apache Kafka (KRaft) keeps its metadata.

Only the import of Kafka's directories reads them (`broker/inspect/importing/`). The value of a
record is the version of this frame (1), the kind and the version of the record, all unsigned
varints, and then the message, which is flexible in every version. A record has no key.

Declared is what an import needs: the topics, and by name what it cannot take over. Other kinds are
read as `OtherRecord`.
"""

from typing import Any, Final
from uuid import UUID

from odradek.late import dataclass
from odradek.protocol import wire
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.schema import (
    Buffer,
    array,
    blob,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uint16,
    uuid,
)
from odradek.protocol.varint import decode_zigzag

FRAME_VERSION: Final = 1
SAME_LEADER: Final = -2
"""The leader in a change that leaves it as it is."""


@message
class BrokerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@message
class BrokerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message
class RegisterBrokerRecord:
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(default=False, since=2)
    incarnation_id: UUID = uuid()
    broker_epoch: int = int64()
    end_points: tuple[BrokerEndpoint, ...] = array(BrokerEndpoint)
    features: tuple[BrokerFeature, ...] = array(BrokerFeature)
    rack: str | None = string(nullable=0)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(default=False, since=1)
    log_dirs: tuple[UUID, ...] = array("uuid", default=(), since=3, tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(
        "uuid", default=None, since=4, nullable=4, tag=1
    )


@message
class UnregisterBrokerRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()


@message
class TopicRecord:
    name: str = string()
    topic_id: UUID = uuid()


@message
class PartitionRecord:
    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    replicas: tuple[int, ...] = array("int32")
    isr: tuple[int, ...] = array("int32")
    removing_replicas: tuple[int, ...] = array("int32")
    adding_replicas: tuple[int, ...] = array("int32")
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(default=0, tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: tuple[UUID, ...] = array("uuid", default=(), since=1)
    eligible_leader_replicas: tuple[int, ...] | None = array(
        "int32", default=None, since=2, nullable=2, tag=1
    )
    last_known_elr: tuple[int, ...] | None = array(
        "int32", default=None, since=2, nullable=2, tag=2
    )


@message
class PartitionChangeRecord:
    """A change of a partition. None, or -2 as the leader, stands for what is as it was."""

    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    isr: tuple[int, ...] | None = array("int32", default=None, nullable=0, tag=0)
    leader: int = int32(default=SAME_LEADER, tag=1)
    replicas: tuple[int, ...] | None = array("int32", default=None, nullable=0, tag=2)
    removing_replicas: tuple[int, ...] | None = array("int32", default=None, nullable=0, tag=3)
    adding_replicas: tuple[int, ...] | None = array("int32", default=None, nullable=0, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: tuple[UUID, ...] | None = array("uuid", default=None, since=1, nullable=1, tag=8)
    eligible_leader_replicas: tuple[int, ...] | None = array(
        "int32", default=None, since=2, nullable=2, tag=6
    )
    last_known_elr: tuple[int, ...] | None = array(
        "int32", default=None, since=2, nullable=2, tag=7
    )


@message
class RemoveTopicRecord:
    topic_id: UUID = uuid()


@message
class ConfigRecord:
    """A setting of a resource; a value of None removes it."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=0)


@message
class ProducerIdsRecord:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


@message
class UserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()
    salt: bytes = blob()
    stored_key: bytes = blob()
    server_key: bytes = blob()
    iterations: int = int32()


@message
class RemoveUserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()


@message
class AccessControlEntryRecord:
    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class RemoveAccessControlEntryRecord:
    id: UUID = uuid()


@message
class QuotaEntity:
    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


@message
class ClientQuotaRecord:
    entity: tuple[QuotaEntity, ...] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message
class DelegationTokenRecord:
    owner: str = string()
    requester: str = string()
    renewers: tuple[str, ...] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@message
class RemoveDelegationTokenRecord:
    token_id: str = string()


@message
class BeginTransactionRecord:
    """The records up to the end of this transaction count together."""

    name: str | None = string(default=None, nullable=0, tag=0)


@message
class EndTransactionRecord:
    pass


@message
class AbortTransactionRecord:
    reason: str | None = string(default=None, nullable=0, tag=0)


@dataclass(frozen=True, slots=True)
class OtherRecord:
    """A record of a kind that an import does not need."""

    kind: int


KINDS: Final[dict[int, tuple[type[Any], int]]] = {
    0: (RegisterBrokerRecord, 4),
    1: (UnregisterBrokerRecord, 0),
    2: (TopicRecord, 0),
    3: (PartitionRecord, 2),
    4: (ConfigRecord, 0),
    5: (PartitionChangeRecord, 2),
    9: (RemoveTopicRecord, 0),
    10: (DelegationTokenRecord, 0),
    11: (UserScramCredentialRecord, 0),
    14: (ClientQuotaRecord, 0),
    15: (ProducerIdsRecord, 0),
    18: (AccessControlEntryRecord, 0),
    19: (RemoveAccessControlEntryRecord, 0),
    22: (RemoveUserScramCredentialRecord, 0),
    23: (BeginTransactionRecord, 0),
    24: (EndTransactionRecord, 0),
    25: (AbortTransactionRecord, 0),
    26: (RemoveDelegationTokenRecord, 0),
}
"""By the number of the kind: the message, and its last version in Kafka 4.3."""

OTHER_KINDS: Final = frozenset(
    {
        7,  # a broker is fenced
        8,  # or not any more
        12,  # the level of a feature
        17,  # a change of a broker's registration
        20,  # nothing
        21,  # the state of the migration from ZooKeeper
        27,  # a controller registers
        28,  # eligible leader replicas are cleared
    }
)


def decode_kraft_record(value: Buffer | None) -> Any:
    """Decode the value of a record. Raises `ProtocolError` for a kind or version after Kafka 4.3.

    A newer kind could be a topic's: what is not known is not skipped.
    """
    if value is None:
        raise ProtocolError("a record of the metadata log has no value")
    data = memoryview(value)
    try:
        frame, at = decode_zigzag(data, 0)  # unsigned varints are what is left undecoded there
        kind, at = decode_zigzag(data, at)
        version, at = decode_zigzag(data, at)
    except (IndexError, KafkaError):
        raise ProtocolError("a record of the metadata log ends inside a number") from None
    if frame != FRAME_VERSION:
        raise ProtocolError(f"a record of the metadata log has the unknown frame {frame}")
    if kind in OTHER_KINDS:
        return OtherRecord(kind)
    message_class, last = KINDS.get(kind, (None, -1))
    if message_class is None or version > last:
        raise ProtocolError(f"a record of the metadata log is of kind {kind}, version {version}")
    return wire.parse(message_class, version, True, wire.Cursor(data[at:]))
