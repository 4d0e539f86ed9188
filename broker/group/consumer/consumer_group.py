"""One consumer group as an immutable value: its epochs, its members, what they own and should own.

Every change returns a new value. What has not changed stays the same object, so that
`consumer_group_records.py` finds the difference of two groups quickly. `members` is in the order in
which the members joined.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from enum import IntEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from odradek.broker.environment.work import Work
from odradek.broker.group.classic_group import (
    MEMBER_BASE_BYTES,
    MemberProtocol,
    have_common_protocol,
)
from odradek.broker.group.consumer.state import ConsumerState
from odradek.late import dataclass
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from odradek.protocol.errors import ErrorCode, KafkaError

Partitions = Mapping[UUID, Set[int]]
"""Partitions by the id of their topic."""

Epochs = Mapping[UUID, Mapping[int, int]]
"""Partitions with the epoch in which the member got each of them, by the id of their topic."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
NO_EPOCHS: Final[Epochs] = MappingProxyType({})
NO_NAMES: Final = frozenset[str]()

FIRST_EPOCH: Final = 1
"""The epoch of a group without a record of it."""
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
OWNED_TOPIC_BYTES: Final = 448
"""The size that a topic counts for in memory limits of which a member owns partitions: a set in its
target and a dictionary in its assignment."""
PARTITION_BYTES: Final = 224
"""The size that an owned partition counts for, besides its topic: its places in the target, in the
assignment and among the owners."""
NAME_BYTES: Final = 96
"""The size that the name of a topic counts for, besides its characters."""
MATCH_BYTES: Final = 64
"""The size that the name of a topic counts for that a pattern matches: its place in a set, and its
part of the pattern's record."""


class TopicShape(Protocol):
    """The part of a topic that an assignment depends on."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sequence[object]: ...


class TopicShapes(Protocol):
    """The topics of the cluster, as `broker/cluster/image.py:ClusterImage` has them."""

    @property
    def revision(self) -> int: ...

    @property
    def topics(self) -> Mapping[str, TopicShape]: ...

    @property
    def names(self) -> Mapping[UUID, str]: ...


class MemberProgress(IntEnum):
    """The progress of a member towards its target, with Kafka's numbers and names."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it may go to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the newest epoch, and waits for partitions that others have not revoked."""
    UNKNOWN = 127
    """A progress that a newer broker has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSide:
    """The part of a member that only the classic protocol has. It is kept for a way back."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """In the member's order of preference. All have the same subscription."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    """The topics that it has subscribed to by name."""
    regex: str = ""
    assignor: str | None = None
    classic: ClassicSide | None = None
    """For a member that uses the classic protocol: JoinGroup, SyncGroup and Heartbeat."""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    progress: MemberProgress = MemberProgress.STABLE
    assigned: Epochs = field(default_factory=lambda: NO_EPOCHS)
    revoking: Epochs = field(default_factory=lambda: NO_EPOCHS)
    """Partitions that it must revoke. They have no other owner before it has."""
    size_bytes: int = field(init=False, compare=False, default=0)
    """The size that it counts for in memory limits, without its topics, which it may share."""

    def __post_init__(self) -> None:
        topics = len(self.assigned) + len(self.revoking)
        partitions = sum(map(len, self.assigned.values())) + sum(map(len, self.revoking.values()))
        owned = topics * OWNED_TOPIC_BYTES + partitions * PARTITION_BYTES
        classic = () if self.classic is None else self.classic.protocols
        protocols = sum(each.size_bytes for each in classic)
        size_bytes = MEMBER_BASE_BYTES + len(self.regex) + protocols + owned
        object.__setattr__(self, "size_bytes", size_bytes)

    @property
    def is_away(self) -> bool:
        """Return True for a static member that has left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def has_reached(self, assignment_epoch: int) -> bool:
        """Return True if it owns exactly its target of this epoch."""
        return self.progress is MemberProgress.STABLE and self.epoch == assignment_epoch

    def at_epoch(self, epoch: int) -> "ConsumerMember":
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """Return the epoch in which it got a partition that it owns; None if it owns it not."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPattern:
    """The topics that a regular expression matched in one version of the cluster's metadata."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """Identifies the subscribed topics with their partition counts. Another one is a new epoch."""
    assignment_epoch: int = -1
    assigned_ms: int = 0
    """The time at which the target assignment was computed."""
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    targets: Mapping[str, Partitions] = field(default_factory=dict)
    patterns: Mapping[str, ResolvedPattern] = field(default_factory=dict)
    has_topic_record: bool = False
    """True if the log has a record of the topics that Kafka 4.0 wrote."""

    _size_bytes: int = field(init=False, compare=False, repr=False, default=-1)

    @property
    def size_bytes(self) -> int:
        """The size that the members count for in memory limits, computed once for each value."""
        if self._size_bytes < 0:
            object.__setattr__(self, "_size_bytes", self._counted_bytes())
        return self._size_bytes

    def _counted_bytes(self) -> int:
        names = sum(len(each) * NAME_BYTES + sum(map(len, each)) for each in self._subscriptions)
        matches = sum(len(each.topics) for each in self.patterns.values()) * MATCH_BYTES
        return names + matches + sum(member.size_bytes for member in self.members.values())

    def is_assignment_due(self, *, now_ms: int, interval_ms: int) -> bool:
        """Return True if the time between two assignments is over."""
        # A clock that was set back may show a time before the last one.
        return not 0 <= now_ms - self.assigned_ms < interval_ms

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member. Raises KafkaError(UNKNOWN_MEMBER_ID)."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return next(
            (each for each in self.members.values() if each.instance_id == instance_id), None
        )

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member reads, by name and by its pattern."""
        matching = self.pattern_topics(member)
        return member.topics | matching if member.topics and matching else member.topics or matching

    def pattern_topics(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member's pattern matches."""
        pattern = self.patterns.get(member.regex) if member.regex else None
        return NO_NAMES if pattern is None else pattern.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names of the topics that any member reads."""
        return NO_NAMES.union(*self.name_sets())

    def name_sets(self) -> Collection[frozenset[str]]:
        """Return the sets of names that members read, each once. Most share the same one."""
        matching = {id(each.topics): each.topics for each in self.patterns.values()}
        return [*self._subscriptions, *matching.values()]

    @property
    def _subscriptions(self) -> Collection[frozenset[str]]:
        """The sets of names that members subscribe to. Most members have the same one."""
        return {id(each.topics): each.topics for each in self.members.values()}.values()

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return True if a classic member with these protocols may join.

        All members that use the classic protocol must have one of them.
        """
        classic = [each.classic for each in self.members.values() if each.classic is not None]
        return protocol_type == CONSUMER_PROTOCOL_TYPE and have_common_protocol(
            names, (each.protocols for each in classic)
        )

    def are_all_classic(self, *, without: Iterable[str]) -> bool:
        """Return True if all other members than these use the classic protocol."""
        gone = frozenset(without)
        return all(
            each.classic is not None for key, each in self.members.items() if key not in gone
        )

    # what a change makes of it

    def with_member(self, member: ConsumerMember) -> "ConsumerGroup":
        return replace(self, members={**self.members, member.member_id: member})

    def without(self, member_ids: Iterable[str]) -> "ConsumerGroup":
        """Return the group without these members, and without the patterns that only they had."""
        gone = frozenset(member_ids)
        members = {key: each for key, each in self.members.items() if key not in gone}
        used = {member.regex for member in members.values()}
        return replace(
            self,
            members=members,
            targets={key: each for key, each in self.targets.items() if key not in gone},
            patterns={key: each for key, each in self.patterns.items() if key in used},
        )

    def with_replaced(self, old: ConsumerMember, member_id: str) -> "ConsumerGroup":
        """Return the group with a static member that has come back with another member id."""
        members = {
            member_id if key == old.member_id else key: (
                replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=0)
                if key == old.member_id
                else each
            )
            for key, each in self.members.items()
        }
        targets = {
            member_id if key == old.member_id else key: each for key, each in self.targets.items()
        }
        return replace(self, members=members, targets=targets)


def state_of(group: ConsumerGroup) -> ConsumerState:
    """Return the state that follows from a group's epochs and its members' progress."""
    if not group.members:
        return ConsumerState.EMPTY
    if group.epoch > group.assignment_epoch:
        return ConsumerState.ASSIGNING
    if all(member.has_reached(group.assignment_epoch) for member in group.members.values()):
        return ConsumerState.STABLE
    return ConsumerState.RECONCILING


def hash_of(name_sets: Iterable[frozenset[str]], shapes: TopicShapes) -> Work[int]:
    """Return a signed hash of the topics of these names that there are; 0 if there is none."""
    # Kafka uses XXH3. Only the coordinator compares these numbers: one that finds the hash of
    # another program raises the epoch once.
    names: set[str] = set()
    for each in name_sets:
        yield 1 + len(each) // 20
        names |= each
    yield 1 + len(names) // 20
    names &= shapes.topics.keys()
    yield 1 + len(names) // 5
    found = blake2b(digest_size=8)
    for name in sorted(names):
        yield 1
        topic = shapes.topics[name]
        found.update(f"{name} {topic.topic_id.hex} {len(topic.partitions)}\n".encode())
    return int.from_bytes(found.digest(), signed=True) if names else 0
