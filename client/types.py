"""The small values that pass between a user and the client.

Records are named tuples and not dataclasses: one is made for every record consumed, and making a
frozen dataclass of eight fields takes longer than decoding the record did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypedDict, TypeVar
from uuid import UUID

from odradek.client.errors import OdradekError
from odradek.protocol.batch import BatchHeader

T = TypeVar("T")

Header = tuple[str, bytes | None]
"""A record's header: its name and its value."""


SHOWN_MAX: Final = 8
"""How many of many things a repr shows."""
SHOWN_BYTES_MAX: Final = 60
"""How much of a value a repr shows."""


def _shown(value: bytes | None) -> str:
    if value is None or len(value) <= SHOWN_BYTES_MAX:
        return repr(value)
    return f"{value[:SHOWN_BYTES_MAX]!r}... ({len(value)} bytes)"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A stored offset of a group: the next offset to read, and a note of the program."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record was stored. The offset is -1 with acks=0, as the broker does not answer."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnDelivery = Callable[[RecordMetadata | None, OdradekError | None], None]
"""Called with where a record was stored, or with why it was not."""


class RecordOptions(TypedDict, total=False):
    """What `Producer.send` takes beside topic and value, for those who pass it on."""

    key: bytes | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int | None
    on_delivery: OnDelivery | None


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    """0: the producer's time; 1: when the broker appended it."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def __repr__(self) -> str:
        """Where it is and how it begins: a value may have megabytes."""
        headers = "".join(
            f", {name[:SHOWN_BYTES_MAX]}={_shown(value)}"
            for name, value in self.headers[:SHOWN_MAX]
        )
        more = f", {len(self.headers)} headers" if len(self.headers) > SHOWN_MAX else ""
        return (
            f"<ConsumerRecord {self.topic}-{self.partition}@{self.offset}: key {_shown(self.key)}, "
            f"value {_shown(self.value)}{headers}{more}>"
        )


class FetchedBatch(NamedTuple):
    """A record batch as it was stored: committed, no control batch, its CRC checked.

    `data` is the whole batch, header included, still compressed. Skip records with offsets below
    `start_offset`: they were read before.
    """

    topic: str
    partition: int
    header: BatchHeader
    data: memoryview
    start_offset: int


class GroupMetadata(NamedTuple):
    """The group that stores offsets, and its member if it has members."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class NewTopic(NamedTuple):
    """A topic to create. -1 leaves a number to the broker."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


class PartitionDescription(NamedTuple):
    partition: int
    leader: int
    """Node id, or -1 while there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class TopicDescription(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    def __repr__(self) -> str:
        return f"<TopicDescription {self.name!r}: {len(self.partitions)} partitions>"


class ConfigEntry(NamedTuple):
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


class BrokerDescription(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


def by_topic(values: Mapping[TopicPartition, T]) -> dict[str, list[tuple[int, T]]]:
    """Partition numbers and what belongs to them by topic, the shape of most requests."""
    found: dict[str, list[tuple[int, T]]] = {}
    for (topic, partition), value in values.items():
        found.setdefault(topic, []).append((partition, value))
    return found


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The same where nothing belongs to them."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


DECISIONS_DEFAULT: Final = "odradek-spark-decisions"
"""The topic in which Spark queries without a transactionalIdPrefix keep their decisions. It counts
as internal in listings and patterns; whoever names it gets it. A topic of another prefix cannot be
told from a user's own."""

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
