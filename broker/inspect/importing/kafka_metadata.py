"""Kafka's metadata as its log `__cluster_metadata` has it: topics, and what is not taken over.

The log of a single node has only what counts: there is no other voter that could not know it. A
snapshot has everything below the offset in its name; the log goes on from there. The records of a
metadata transaction (KIP-866) count once it has ended. One that is still open at the end of the log
was cut off by a crash, and Kafka aborts it at its next start.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final
from uuid import UUID

from odradek.broker.inspect.inspection import FoundBatch, Rest, batches_in
from odradek.broker.inspect.refusal import CannotCopy
from odradek.broker.quotas.entities import Entity, entity_of
from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import LOG, file_path, offsets_in
from odradek.late import dataclass
from odradek.protocol import kraft_records as kraft
from odradek.protocol.errors import KafkaError, ProtocolError

METADATA: Final = "__cluster_metadata-0"
SNAPSHOT: Final = ".checkpoint"
_OFFSET_DIGITS: Final = 20

# Kinds of resources that have settings.
TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32


@dataclass(slots=True)
class KafkaPartition:
    replicas: tuple[int, ...]
    leader_epoch: int


@dataclass(slots=True)
class KafkaTopic:
    name: str
    topic_id: UUID
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


@dataclass(slots=True)
class KafkaMetadata:
    """The metadata while the records are applied one after another, and in the end."""

    topics: dict[UUID, KafkaTopic] = field(default_factory=dict)
    configs: defaultdict[tuple[int, str], dict[str, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Settings by kind and name of the resource."""
    brokers: dict[int, tuple[UUID, ...]] = field(default_factory=dict)
    """The ids of the log directories of each registered broker."""
    next_producer_id: int = 0
    users: dict[tuple[str, int], kraft.UserScramCredentialRecord] = field(default_factory=dict)
    """Credentials by name and number of the SCRAM mechanism."""
    acls: dict[UUID, kraft.AccessControlEntryRecord] = field(default_factory=dict)
    quotas: defaultdict[Entity, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """Values by the kind of quota, for each user, client id, both, or address."""
    tokens: set[str] = field(default_factory=set)

    def apply(self, record: Any) -> None:
        match record:
            case kraft.TopicRecord():
                self.topics[record.topic_id] = KafkaTopic(record.name, record.topic_id)
            case kraft.RemoveTopicRecord():
                removed = self.topics.pop(record.topic_id)
                self.configs.pop((TOPIC, removed.name), None)
            case kraft.PartitionRecord():
                partition = KafkaPartition(record.replicas, record.leader_epoch)
                self.topics[record.topic_id].partitions[record.partition_id] = partition
            case kraft.PartitionChangeRecord():
                self._change(self.topics[record.topic_id].partitions[record.partition_id], record)
            case kraft.ConfigRecord():
                self._configure(record)
            case kraft.RegisterBrokerRecord():
                self.brokers[record.broker_id] = record.log_dirs
            case kraft.UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)
            case kraft.ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case _:
                self._apply_unserved(record)

    def _change(self, partition: KafkaPartition, record: kraft.PartitionChangeRecord) -> None:
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.leader != kraft.SAME_LEADER:
            partition.leader_epoch += 1  # so does Kafka, and stores no number

    def _configure(self, record: kraft.ConfigRecord) -> None:
        configs = self.configs[record.resource_type, record.resource_name]
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _apply_unserved(self, record: Any) -> None:
        """Note what Odradek does not have, so that it can be named."""
        match record:
            case kraft.UserScramCredentialRecord():
                self.users[record.name, record.mechanism] = record
            case kraft.RemoveUserScramCredentialRecord():
                self.users.pop((record.name, record.mechanism), None)
            case kraft.AccessControlEntryRecord():
                self.acls[record.id] = record
            case kraft.RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
            case kraft.ClientQuotaRecord():
                values = self.quotas[
                    entity_of({each.entity_type: each.entity_name for each in record.entity})
                ]
                if record.remove:
                    values.pop(record.key, None)
                else:
                    values[record.key] = record.value
            case kraft.DelegationTokenRecord():
                self.tokens.add(record.token_id)
            case kraft.RemoveDelegationTokenRecord():
                self.tokens.discard(record.token_id)


def read_metadata(directory: str) -> KafkaMetadata:
    """Read the snapshot and the log in a directory. Raises `CannotCopy`, OSError."""
    metadata = KafkaMetadata()
    pending: list[Any] | None = None
    for path, record in _records_in(directory):
        try:
            if isinstance(record, kraft.BeginTransactionRecord):
                pending = []
            elif isinstance(record, kraft.AbortTransactionRecord):
                pending = None
            elif isinstance(record, kraft.EndTransactionRecord):
                for each in pending or ():
                    metadata.apply(each)
                pending = None
            elif pending is not None:
                pending.append(record)
            else:
                metadata.apply(record)
        except KeyError as error:
            raise CannotCopy([f"{path} changes what it does not have: {error}."]) from None
    return metadata


def _records_in(directory: str) -> Iterator[tuple[str, Any]]:
    """Yield the records that count, in their order, each with the path of its file."""
    names = SystemDisk().listdir(directory)
    snapshots = [name for name in names if _snapshot_offset(name) is not None]
    bases = offsets_in(names, LOG)
    end = 0
    if snapshots:  # the last name is the newest
        end = _snapshot_offset(snapshots[-1]) or 0
        path = f"{directory}/{snapshots[-1]}"
        for batch in whole_batches(path, is_last=False):
            for record in _decoded(batch, path):
                yield path, record
    if bases and bases[0] > end:
        raise CannotCopy([f"{directory} lacks the offsets {end} to {bases[0] - 1}."])
    for base in bases:
        path = file_path(directory, base, LOG)
        for batch in whole_batches(path, is_last=base == bases[-1]):
            if batch.header.base_offset >= end:
                for record in _decoded(batch, path):
                    yield path, record


def _snapshot_offset(name: str) -> int | None:
    """Return the offset in the name of a snapshot; None for another file."""
    digits, dash, _ = name.removesuffix(SNAPSHOT).partition("-")
    is_one = name.endswith(SNAPSHOT) and dash and len(digits) == _OFFSET_DIGITS
    return int(digits) if is_one and digits.isdigit() else None


def whole_batches(path: str, *, is_last: bool) -> Iterator[FoundBatch]:
    """Yield the batches of a file. Raises `CannotCopy` for a damaged one, OSError.

    In the last file of a log the last batch may be incomplete: Kafka was killed in the middle.
    """
    damaged: FoundBatch | Rest | None = None
    for batch in batches_in(read_only(path)):
        if damaged is not None:
            break
        if isinstance(batch, Rest) or batch.problem is not None:
            damaged = batch
        else:
            yield batch
    else:
        if damaged is None or is_last:
            return
    assert damaged is not None
    raise CannotCopy(
        [
            f"{path} is damaged at byte {damaged.position}, and good batches follow. Start Kafka "
            "on it once, which repairs it as far as it can, stop it, and import again."
        ]
    )


def _decoded(batch: FoundBatch, path: str) -> Iterator[Any]:
    if batch.header.is_control:
        return
    try:
        for record in batch.records():
            yield kraft.decode_kraft_record(record.value)
    except (KafkaError, ProtocolError) as error:
        raise CannotCopy(
            [f"{path} has a record that this version cannot read: {error}. It reads Kafka 4.0-4.3."]
        ) from None
