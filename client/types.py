"""The values that pass between a program and the client.

Records are named tuples and not dataclasses, because making a frozen dataclass of eight fields
takes longer than decoding a record.
"""

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypedDict
from uuid import UUID

from odradek.client.errors import OdradekError
from odradek.late import dataclass
from odradek.protocol.batch import BatchHeader
from odradek.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    # Type checkers know the defaults of PEP 696 on every version; Python has them from 3.13 on.
    from typing_extensions import TypeVar

    Key = TypeVar("Key", default=bytes)
    Value = TypeVar("Value", default=bytes)
else:
    from typing import TypeVar

    Key, Value = TypeVar("Key"), TypeVar("Value")

T = TypeVar("T")

Header = tuple[str, bytes | None]
"""A record's header: its name and its value."""

AssignorName = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
"""The ways to divide partitions among the members of a group."""
ASSIGNOR_NAMES: Final[tuple[AssignorName, ...]] = (
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
)


DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
"""The address of a broker that was started without `--listen`."""
SHOWN_MAX: Final = 8
"""The most elements that a repr shows."""
SHOWN_BYTES_MAX: Final = 60
"""The most bytes of a value that a repr shows."""


def _shown(value: object) -> str:
    if isinstance(value, bytes) and len(value) > SHOWN_BYTES_MAX:
        return f"{value[:SHOWN_BYTES_MAX]!r}... ({len(value)} bytes)"
    return repr(value) if value is None or isinstance(value, bytes) else reprlib.repr(value)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A stored offset of a group: the next offset to read, and a text of the program.

    Two of them are equal if they have the same offset and text.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """The leader epoch of the record before the offset, which shows whether the log was truncated
    since (KIP-320); -1: not known."""
    topic_id: UUID = ZERO_UUID
    """The topic that the offset belongs to; zero: the one that has the name now. An offset of a
    topic that was deleted is not stored for the next one of its name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and self[:2] == other[:2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:2])


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """The place of a stored record. The offset is -1 with acks=0, because no broker answers."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Serialized(bytes):
    """Bytes of a key or a value that a producer sends as they are, past its serializer."""

    __slots__ = ()


OnDelivery = Callable[[RecordMetadata | None, OdradekError | None], None]
"""A callback that gets the metadata of a stored record, or the error of a lost one."""


class RecordOptions(TypedDict, Generic[Key], total=False):
    """The options of `Producer.send` beside topic and value, for code that passes them on."""

    key: Key | Serialized | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int | None
    on_delivery: OnDelivery | None


class TransactionPart(NamedTuple):
    """A committed transaction in one partition: what identifies it there."""

    producer_id: int
    producer_epoch: int
    marker_offset: int
    """The offset of its commit marker."""


def _as_serialized(given: object) -> Serialized | None:
    if given is None:
        return None
    if not isinstance(given, bytes):
        raise TypeError(f"only bytes can go past a serializer, and not {type(given).__name__}")
    return Serialized(given)


class ConsumerRecord(NamedTuple, Generic[Key, Value]):
    """A record. Its key and its value are bytes, or what the deserializers of the consumer return.

    Either is None if the record has none: a deserializer is not called for it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    """0: the producer's time; 1: when the broker appended it."""
    key: Key | None
    value: Value | None
    headers: tuple[Header, ...]
    transaction: TransactionPart | None = None
    """The transaction of the record; only with `order="commit"`."""

    def serialized(self) -> "ConsumerRecord[Serialized, Serialized]":
        """Return the record with bytes that go past the serializers of a producer.

        Its key and value are bytes already, because the consumer had no deserializers. Raises
        TypeError if they are not.
        """
        sent: ConsumerRecord[Any, Any] = self
        return sent._replace(key=_as_serialized(self.key), value=_as_serialized(self.value))

    def __repr__(self) -> str:
        """Return place, key and value. Both are shortened: a value may have megabytes."""
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
    """A record batch as it is stored. It is visible to the consumer and not a control batch.

    `data` is the whole batch, with its header, still compressed. Skip records with offsets below
    `start_offset`: they were read before.
    """

    topic: str
    partition: int
    header: BatchHeader
    data: memoryview
    start_offset: int


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A pattern of topic names for `subscribe` that the brokers match, by RE2's syntax.

    It matches whole names. A pattern that `re` has compiled is matched by the client instead.
    """

    pattern: str


Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern
"""What a program subscribes to: a name, several names, or a pattern of names."""


class GroupMetadata(NamedTuple):
    """The group that stores offsets, and the member if the program is one (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class NewTopic(NamedTuple):
    """A topic to create. With -1 the broker chooses a number."""

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


class GroupBounds(NamedTuple):
    """The bounds of a transaction group.

    `partitions` are those of all members, each counted for every member that wrote to it. `bytes`
    bounds the decision, which has for each member its transactional id, the names of its topics, 4
    bytes for each partition, and about 200 bytes more.
    """

    members: int
    partitions: int
    bytes: int


class TopicDescription(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    def __repr__(self) -> str:
        return f"<TopicDescription {self.name!r}: {len(self.partitions)} partitions>"


class ConfigEntry(NamedTuple):
    """A setting. The value of a sensitive one is None."""

    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str = "unknown"
    """The place that the value comes from: topic, broker, all brokers, file or default."""


class LogDirectory(NamedTuple):
    """A directory in which a broker keeps logs."""

    node_id: int
    path: str
    total_bytes: int | None
    """The size of its disk, and what is free of it; None if the broker does not return them."""
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]
    """The bytes of each replica in it."""


class BrokerDescription(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False
    """True for a broker that belongs to the cluster and is away."""


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


def by_topic(values: Mapping[TopicPartition, T]) -> dict[str, list[tuple[int, T]]]:
    """Return partition numbers with their values by topic, the form that most requests have."""
    found: dict[str, list[tuple[int, T]]] = {}
    for (topic, partition), value in values.items():
        found.setdefault(topic, []).append((partition, value))
    return found


def by_topic_and_id(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[tuple[str, UUID], list[tuple[int, OffsetAndMetadata]]]:
    """Return partition numbers with their offsets by the name and the id of the topic."""
    found: dict[tuple[str, UUID], list[tuple[int, OffsetAndMetadata]]] = {}
    for (topic, partition), stored in offsets.items():
        found.setdefault((topic, stored.topic_id), []).append((partition, stored))
    return found


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


SPARK_PREFIX_DEFAULT: Final = "odradek-spark"
DECISIONS_DEFAULT: Final = "odradek-spark-decisions"
"""The topic in which Spark queries without a transactionalIdPrefix keep their decisions. Listings
and patterns treat it as internal, but a program may name it. On Odradek all topics of decisions are
internal; on other brokers, those of other prefixes look like every other topic."""

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthToken:
    """A token of OAUTHBEARER.

    `lifetime_s` is how many seconds it counts from now on. Without it, the token is used for one
    authentication only. `extensions` are pairs that some servers want beside the token.
    """

    value: str = field(repr=False)
    lifetime_s: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts = [self.value, *self.extensions, *self.extensions.values()]
        if not self.value or not all(text.isascii() and text.isprintable() for text in texts):
            raise ValueError("a token, and its extensions, are ASCII text without line breaks")
        if "auth" in self.extensions or any("=" in name for name in self.extensions):
            raise ValueError("the name of an extension has no =, and is not auth")


TokenFunction = Callable[[], str | OAuthToken]
"""A function that returns a token. It is called in a thread, and may take its time."""
