"""The changes that the records of `__consumer_offsets` stand for.

`GroupTenure.replay` applies each of them: when its records are written, and when they are read.
"""

from collections.abc import Sequence

from odradek.broker.group.classic_group import ClassicGroup
from odradek.broker.group.consumer.consumer_group import ConsumerGroup
from odradek.broker.group.consumer.state import ConsumerEvent
from odradek.broker.group.store import GroupEntry, OffsetEntry, PartitionOffset
from odradek.late import dataclass


@dataclass(frozen=True, slots=True)
class OffsetsStored:
    """Offsets of one group, one behind the other in the log."""

    group_id: str
    offsets: Sequence[PartitionOffset]


@dataclass(frozen=True, slots=True)
class OffsetsPending:
    """The same inside a transaction, whose marker stores or drops them."""

    producer_id: int
    group_id: str
    offsets: Sequence[PartitionOffset]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A marker. It concerns what its producer has pending before it in the log."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """Tombstones of offsets and of classic groups."""

    entries: Sequence[OffsetEntry | GroupEntry]


@dataclass(frozen=True, slots=True)
class ClassicBegun:
    """A group is a classic one: it is found in the log, or was a consumer group (KIP-848)."""

    group: ClassicGroup
    must_rebalance: bool


@dataclass(frozen=True, slots=True)
class ClassicStored:
    """The newest record of a classic group that goes on: its members may have their assignment."""

    group: ClassicGroup


@dataclass(frozen=True, slots=True)
class ConsumerChanged:
    """The newest value of a consumer group. If it was a classic group, that has ended."""

    group: ConsumerGroup


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """A consumer group is no more."""

    group_id: str
    event: ConsumerEvent


ChangeOfConsumers = ConsumerChanged | ConsumerEnded | ClassicBegun
Change = (
    OffsetsStored | OffsetsPending | TransactionEnded | Removed | ClassicStored | ChangeOfConsumers
)
