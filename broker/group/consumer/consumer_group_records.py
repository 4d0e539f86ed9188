"""The records of a consumer group: the difference of two groups, and a group that is read back.

Kafka keeps such a group in many records of `__consumer_offsets`: the group's epoch; the
subscription, the target and the current assignment of each member; the epoch of the target
assignment; each pattern with its topics. All records of one change are one batch, so that a crash
leaves all of it or nothing. Compaction keeps the newest of each key.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final, NamedTuple
from uuid import UUID

from odradek.broker.environment.work import Work
from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.consumer.consumer_group import (
    FIRST_EPOCH,
    NO_EPOCHS,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    Epochs,
    MemberProgress,
    Partitions,
    ResolvedPattern,
)
from odradek.broker.group.consumer.reconcile import without_conflicts
from odradek.late import dataclass
from odradek.protocol.state_topics import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartition,
)

ConsumerGroupValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

VALUE_OF: Final[dict[type[ConsumerGroupKey], type[ConsumerGroupValue]]] = {
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
"""The value of each key."""


class ConsumerEntry(NamedTuple):
    """One record of a consumer group; without a value it removes what the key stands for."""

    key: ConsumerGroupKey
    value: ConsumerGroupValue | None


def difference(before: ConsumerGroup, after: ConsumerGroup) -> Work[list[ConsumerEntry]]:
    """Return the records that lead from one group to the other, in Kafka's order."""
    group_id = after.group_id
    entries: list[ConsumerEntry] = []
    for member_id in before.members:
        if member_id not in after.members:
            entries += _without_member(group_id, member_id)
    entries += [
        ConsumerEntry(
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=it), None
        )
        for it in before.patterns
        if it not in after.patterns
    ]
    yield 1 + len(after.members) // 20
    changed = [
        member
        for member in after.members.values()
        if before.members.get(member.member_id) is not member
    ]
    for member in changed:
        known = before.members.get(member.member_id)
        yield 1 + len(member.topics) // 5
        if known is None or _subscription(known) != _subscription(member):
            entries.append(_subscription_entry(group_id, member))
    for regex, pattern in after.patterns.items():
        yield 1
        if before.patterns.get(regex) is not pattern:
            yield 1 + len(pattern.topics) // 5
            entries.append(_pattern_entry(group_id, regex, pattern))
    yield from _add_group_entries(before, after, entries)
    for member in changed:
        known = before.members.get(member.member_id)
        yield 1 + len(member.assigned) // 5
        if known is None or _current(known) != _current(member):
            entries.append((yield from _current_entry(group_id, member)))
    return entries


def _add_group_entries(
    before: ConsumerGroup, after: ConsumerGroup, entries: list[ConsumerEntry]
) -> Work[None]:
    """Add the records of the group's epoch and of its target assignment."""
    group_id = after.group_id
    if (before.epoch, before.metadata_hash) != (after.epoch, after.metadata_hash):
        key = ConsumerGroupMetadataKey(group_id=group_id)
        value = ConsumerGroupMetadataValue(epoch=after.epoch, metadata_hash=after.metadata_hash)
        entries.append(ConsumerEntry(key, value))
    if before.has_topic_record and not after.has_topic_record:
        entries.append(ConsumerEntry(ConsumerGroupPartitionMetadataKey(group_id=group_id), None))
    if before.targets is not after.targets:
        for member_id, target in after.targets.items():
            yield 1
            if before.targets.get(member_id) is not target:
                entries.append((yield from _target_entry(group_id, member_id, target)))
    if before.assignment_epoch != after.assignment_epoch:
        entries.append(
            ConsumerEntry(
                ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
                ConsumerGroupTargetAssignmentMetadataValue(
                    assignment_epoch=after.assignment_epoch, assignment_timestamp=after.assigned_ms
                ),
            )
        )


def _target_entry(group_id: str, member_id: str, target: Partitions) -> Work[ConsumerEntry]:
    listed = []
    for topic_id, indexes in target.items():
        yield 1 + len(indexes) // 20
        listed.append(TargetTopicPartition(topic_id=topic_id, partitions=tuple(sorted(indexes))))
    return ConsumerEntry(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=tuple(listed)),
    )


def tombstones(group: ConsumerGroup) -> Work[list[ConsumerEntry]]:
    """Return the records that remove a group, in Kafka's order."""
    group_id = group.group_id
    entries: list[ConsumerEntry] = []

    def add_of_each(kind: Callable[..., ConsumerGroupKey]) -> Work[None]:
        for member_id in group.members:
            yield 1
            entries.append(ConsumerEntry(kind(group_id=group_id, member_id=member_id), None))

    yield from add_of_each(ConsumerGroupCurrentMemberAssignmentKey)
    yield from add_of_each(ConsumerGroupTargetAssignmentMemberKey)
    entries.append(ConsumerEntry(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    yield from add_of_each(ConsumerGroupMemberMetadataKey)
    for regex in group.patterns:
        yield 1
        key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
        entries.append(ConsumerEntry(key, None))
    entries.append(ConsumerEntry(ConsumerGroupPartitionMetadataKey(group_id=group_id), None))
    entries.append(ConsumerEntry(ConsumerGroupMetadataKey(group_id=group_id), None))
    return entries


def _without_member(group_id: str, member_id: str) -> list[ConsumerEntry]:
    return [
        ConsumerEntry(kind(group_id=group_id, member_id=member_id), None)
        for kind in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
    ]


def _subscription(member: ConsumerMember) -> ConsumerMember:
    """Return the part of a member that is in the record of its subscription."""
    return replace(
        member,
        epoch=0,
        previous_epoch=0,
        progress=MemberProgress.STABLE,
        assigned=NO_EPOCHS,
        revoking=NO_EPOCHS,
    )


def _current(member: ConsumerMember) -> tuple[int, int, MemberProgress, Epochs, Epochs]:
    """Return the part of a member that is in the record of its current assignment."""
    return (
        member.epoch,
        member.previous_epoch,
        member.progress,
        member.assigned,
        member.revoking,
    )


def _subscription_entry(group_id: str, member: ConsumerMember) -> ConsumerEntry:
    return ConsumerEntry(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.topics)),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=None
            if member.classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=member.classic.session_timeout_ms,
                supported_protocols=tuple(
                    ClassicProtocol(name=each.name, metadata=each.metadata)
                    for each in member.classic.protocols
                ),
            ),
        ),
    )


def _current_entry(group_id: str, member: ConsumerMember) -> Work[ConsumerEntry]:
    assigned = yield from _to_current_partitions(member.assigned)
    revoking = yield from _to_current_partitions(member.revoking)
    return ConsumerEntry(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.progress,
            assigned_partitions=assigned,
            partitions_pending_revocation=revoking,
        ),
    )


def _to_current_partitions(owned: Epochs) -> Work[tuple[CurrentTopicPartitions, ...]]:
    """Return partitions with their epochs, in the order of their numbers, as Kafka has them."""
    listed = []
    for topic_id, epochs in owned.items():
        yield 1 + len(epochs) // 10
        partitions = tuple(sorted(epochs))
        listed.append(
            CurrentTopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=tuple(epochs[index] for index in partitions),
            )
        )
    return tuple(listed)


def _pattern_entry(group_id: str, regex: str, pattern: ResolvedPattern) -> ConsumerEntry:
    return ConsumerEntry(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(pattern.topics)),
            version=pattern.version,
            timestamp=pattern.resolved_ms,
        ),
    )


@dataclass(slots=True)
class GroupBeingRead:
    """A consumer group while its records are read, one after another in the order of the log."""

    group_id: str
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = -1
    assigned_ms: int = 0
    has_topic_record: bool = False
    _names: dict[str, str] = field(default_factory=dict)
    _matches: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    """What patterns match, and its names: those that are the same are shared."""
    is_there: bool = False
    """True from the first record with a value on, until the group's own tombstone."""

    def group(self) -> ConsumerGroup:
        """Return the group as a value. Targets of members that are gone are left out."""
        return ConsumerGroup(
            group_id=self.group_id,
            epoch=self.epoch,
            metadata_hash=self.metadata_hash,
            assignment_epoch=self.assignment_epoch,
            assigned_ms=self.assigned_ms,
            members=without_conflicts(self.members.values()),
            targets={key: each for key, each in self.targets.items() if key in self.members},
            patterns=dict(self.patterns),
            has_topic_record=self.has_topic_record,
        )

    def apply(self, entry: ConsumerEntry) -> None:
        key, value = entry
        self.is_there = self.is_there or value is not None
        match key:
            case ConsumerGroupMetadataKey():
                self._apply_group(value)
            case ConsumerGroupPartitionMetadataKey():
                self.has_topic_record = value is not None
            case ConsumerGroupTargetAssignmentMetadataKey():
                self._apply_target_epoch(value)
            case ConsumerGroupMemberMetadataKey():
                self._apply_subscription(key.member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                self._apply_target(key.member_id, value)
            case ConsumerGroupRegularExpressionKey():
                self._apply_pattern(key.regular_expression, value)

    def _apply_group(self, value: ConsumerGroupValue | None) -> None:
        if value is None:
            self.__init__(self.group_id)  # type: ignore[misc]
        else:
            assert isinstance(value, ConsumerGroupMetadataValue)
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_target_epoch(self, value: ConsumerGroupValue | None) -> None:
        if value is None:
            self.assignment_epoch, self.assigned_ms = -1, 0
        else:
            assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            self.assignment_epoch = value.assignment_epoch
            self.assigned_ms = value.assignment_timestamp

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _apply_subscription(self, member_id: str, value: ConsumerGroupValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        assert isinstance(value, ConsumerGroupMemberMetadataValue)
        self.members[member_id] = replace(
            self._member(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=self._shared_topics(frozenset(value.subscribed_topic_names)),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=_classic_side(value.classic_member_metadata),
        )

    def _shared_topics(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the set of the last member if it is equal: most members read the same topics."""
        last = next(reversed(self.members.values()), None)
        return last.topics if last is not None and last.topics == topics else topics

    def _apply_current(self, member_id: str, value: ConsumerGroupValue | None) -> None:
        if value is None:
            # The tombstones of its target and of its subscription follow in the same batch.
            if member_id in self.members:
                member = self.members[member_id]
                self.members[member_id] = replace(member, assigned=NO_EPOCHS, revoking=NO_EPOCHS)
            return
        assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        is_known = value.state in {each.value for each in MemberProgress}
        self.members[member_id] = replace(
            self._member(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            progress=MemberProgress(value.state) if is_known else MemberProgress.UNKNOWN,
            assigned=_read(value.assigned_partitions, value.member_epoch),
            revoking=_read(value.partitions_pending_revocation, value.member_epoch),
        )

    def _apply_target(self, member_id: str, value: ConsumerGroupValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
            return
        assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
        self.targets[member_id] = {
            each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
        }

    def _apply_pattern(self, regex: str, value: ConsumerGroupValue | None) -> None:
        if value is None:
            self.patterns.pop(regex, None)
            return
        assert isinstance(value, ConsumerGroupRegularExpressionValue)
        names = frozenset(self._names.setdefault(name, name) for name in value.topics)
        self.patterns[regex] = ResolvedPattern(
            topics=self._matches.setdefault(names, names),
            version=value.version,
            resolved_ms=value.timestamp,
        )


def _classic_side(value: ClassicMemberMetadata | None) -> ClassicSide | None:
    # Odradek before this field left it out.
    if value is None or not value.supported_protocols:
        return None
    return ClassicSide(
        session_timeout_ms=value.session_timeout_ms,
        protocols=tuple(
            MemberProtocol(each.name, each.metadata) for each in value.supported_protocols
        ),
    )


def _read(
    owned: tuple[CurrentTopicPartitions, ...], member_epoch: int
) -> Mapping[UUID, dict[int, int]]:
    """Return owned partitions. Kafka before 4.3 wrote no epochs; the member's stands for them."""
    found = {}
    for each in owned:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = (max(member_epoch, 0),) * len(each.partitions)
        found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
