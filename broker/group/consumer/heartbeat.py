"""One heartbeat of a consumer group's member: the group and a request in, the next group out.

`beat` is the order of Kafka's coordinator: find or make the member, raise the group's epoch if its
members or topics have changed, compute the target if it is older than the epoch, bring the member
one step closer to it. Nothing is changed here, so a refused request leaves nothing behind. What
grows with members or topics is counted in steps (`broker/environment/turns.py:Work`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from odradek.broker.environment.work import Work
from odradek.broker.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_EPOCHS,
    NO_PARTITIONS,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    ResolvedPattern,
    TopicShapes,
    hash_of,
)
from odradek.broker.group.consumer.reconcile import OwnerOf, Target, is_part_of, reconciled_member
from odradek.broker.group.consumer.target import topic_ids_of, with_target
from odradek.broker.group.limits import CLIENT_ID_MAX_CHARACTERS
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

UNCHANGED_MS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """ConsumerGroupHeartbeat. None, and -1 of the time-out, stand for what has not changed."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    classic: ClassicSide | None = None
    """For the JoinGroup of a member that uses the classic protocol (`migration.py`)."""
    names_itself: bool = False
    """True if such a member joins again, with its id."""
    may_see: Callable[[str], bool] = field(default=lambda _: True, compare=False)
    """Returns True for a topic that the client may describe."""
    rights: object = field(default=None, compare=False)
    """Another object whenever `may_see` may return something else (`Access.rights`)."""

    @property
    def is_bare(self) -> bool:
        """Return True if it only says that the member is there, as nearly all heartbeats do."""
        return (
            self.topics is None
            and self.regex is None
            and self.instance_id is None
            and self.rack_id is None
            and self.rebalance_timeout_ms == UNCHANGED_MS
            and self.assignor is None
        )

    @property
    def is_full(self) -> bool:
        """Return True if it has everything that a member that joins must send."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms >= 0 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The rest of what a heartbeat depends on: the topics, the settings, the time."""

    shapes: TopicShapes
    has_new_shapes: bool
    """True if the topics may have changed since the group's last heartbeat."""
    matched: Mapping[str, frozenset[str]]
    """The topics that match each of the group's patterns, and the request's."""
    pattern_problem: str | None
    """The reason why the request's pattern cannot be read."""
    owner_of: OwnerOf
    assignors: Sequence[str]
    assignment_interval_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """The group and the member after a heartbeat."""

    group: ConsumerGroup
    member: ConsumerMember
    shows_assignment: bool


def beat(group: ConsumerGroup, asked: Beat, around: Around) -> Work[Beaten]:
    """Return the group after a heartbeat that joins or goes on.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
    UNRELEASED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION.
    """
    group, before, member = yield from _apply_request(group, asked, around)
    is_due = group.is_assignment_due(
        now_ms=around.now_ms, interval_ms=around.assignment_interval_ms
    )
    if group.assignment_epoch < group.epoch and (is_due or not group.assigned_ms):
        group = yield from with_target(
            group, around.shapes, assignors=around.assignors, now_ms=around.now_ms
        )
    group, member = yield from _one_step(group, before, member, asked, around)
    return Beaten(
        group=group,
        member=member,
        shows_assignment=asked.member_epoch == JOIN_EPOCH
        or asked.is_full
        or member.assigned != before.assigned,
    )


def beat_before_downgrade(
    group: ConsumerGroup, asked: Beat, around: Around
) -> Work[tuple[Beaten, bool]]:
    """Return the group after a static member has come back with the classic protocol.

    All others use it already, so that the group becomes a classic one. The second value is False
    if all members own their targets, which the classic group then has as its assignment. Otherwise
    it must begin with a rebalance. Raises KafkaError as `beat`.
    """
    group, before, member = yield from _apply_request(group, asked, around)
    others = [each for key, each in group.members.items() if key != member.member_id]
    is_settled = group.assignment_epoch == group.epoch and all(
        each.has_reached(group.epoch) for each in others
    )
    if is_settled:
        group, member = yield from _one_step(group, before, member, asked, around)
        is_settled = member.has_reached(group.epoch)
    return Beaten(group=group, member=member, shows_assignment=True), not is_settled


def _apply_request(
    group: ConsumerGroup, asked: Beat, around: Around
) -> Work[tuple[ConsumerGroup, ConsumerMember, ConsumerMember]]:
    """Return the group in its epoch with what the request changes, and the member before and after.

    Raises KafkaError as `beat`.
    """
    yield 1 + len(group.members) // 20
    group, before = _find(group, asked)
    member = _updated_member(before, asked, group)
    if member.regex != before.regex and around.pattern_problem is not None:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, around.pattern_problem)
    is_new = before.member_id not in group.members
    if member is not before or is_new:
        group = group.with_member(member)
    group = yield from _in_its_epoch(group, around, must_raise=_has_subscribed(before, member))
    return group, before, member


def _has_subscribed(before: ConsumerMember, member: ConsumerMember) -> bool:
    return member.topics != before.topics or member.regex != before.regex


def _one_step(
    group: ConsumerGroup,
    before: ConsumerMember,
    member: ConsumerMember,
    asked: Beat,
    around: Around,
) -> Work[tuple[ConsumerGroup, ConsumerMember]]:
    """Return the group and the member one step closer to its target."""
    has_subscribed = _has_subscribed(before, member)
    if has_subscribed or not member.has_reached(group.assignment_epoch):
        target = Target(
            epoch=group.assignment_epoch,
            partitions=group.targets.get(member.member_id, NO_PARTITIONS),
            topic_ids=(yield from topic_ids_of(group.topics_of(member), around.shapes)),
        )
        member = yield from reconciled_member(
            member,
            target,
            owned=asked.owned,
            owner_of=around.owner_of,
            must_fit_topics=has_subscribed,
        )
        if member is not group.members[member.member_id]:
            group = group.with_member(member)
    return group, member


def _find(group: ConsumerGroup, asked: Beat) -> tuple[ConsumerGroup, ConsumerMember]:
    """Return the member that sends the heartbeat; a new one if it joins."""
    if asked.instance_id is None:
        if asked.member_epoch == JOIN_EPOCH:
            member = group.members.get(asked.member_id) or ConsumerMember(member_id=asked.member_id)
        else:
            member = group.member(asked.member_id)
            _check_epoch(member, asked)
        return group, member
    holder = group.static_member(asked.instance_id)
    if asked.member_epoch != JOIN_EPOCH or asked.names_itself:
        check_holder(group, holder, asked.member_id, asked.instance_id)
        assert holder is not None
        if asked.classic is None:
            _check_epoch(holder, asked)
        return group, holder
    if holder is None:
        member = group.members.get(asked.member_id) or ConsumerMember(member_id=asked.member_id)
        return group, member
    # With the classic protocol a static member restarts without having left (KIP-345).
    if not holder.is_away and holder.classic is None and asked.classic is None:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {asked.member_id} with instance id {asked.instance_id} cannot join "
            f"the group because the instance id is owned by {holder.member_id} member.",
        )
    # The new instance goes on where the old one was, with all that it owned.
    replaced = group.with_replaced(holder, asked.member_id)
    return replaced, replaced.members[asked.member_id]


def check_holder(
    group: ConsumerGroup, holder: ConsumerMember | None, member_id: str, instance_id: str
) -> None:
    """Raise KafkaError unless the instance id is that of `holder`, and the member is it."""
    if holder is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Instance id {instance_id} is unknown in group {group.group_id}.",
        )
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )


def member_that_leaves(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, by_instance: bool = False
) -> ConsumerMember:
    """Return the member that a request names. Raises KafkaError.

    `by_instance`: an administrator may name a static member by its instance id alone.
    """
    if instance_id is None:
        return group.member(member_id)
    holder = group.static_member(instance_id)
    known_id = holder.member_id if by_instance and holder is not None else member_id
    check_holder(group, holder, member_id or known_id, instance_id)
    assert holder is not None
    return holder


def _check_epoch(member: ConsumerMember, asked: Beat) -> None:
    if asked.member_epoch == member.epoch:
        return
    # An answer with a new epoch may have been lost. Then the member comes with the one before, and
    # lists no more than it may own.
    is_behind = asked.member_epoch < member.epoch
    if (
        is_behind
        and asked.member_epoch == member.previous_epoch
        and is_part_of(asked.owned, member.assigned)
    ):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'smaller' if is_behind else 'greater'} member epoch "
        f"({asked.member_epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _updated_member(member: ConsumerMember, asked: Beat, group: ConsumerGroup) -> ConsumerMember:
    """Return the member with what the heartbeat changes; the same object if that is nothing."""
    if asked.is_bare and (asked.client_id, asked.client_host, asked.classic) == (
        member.client_id,
        member.client_host,
        member.classic,
    ):
        return member
    topics = member.topics
    if asked.topics is not None and asked.topics != topics:
        # Members with the same topics share one set.
        topics = next((each for each in group.name_sets() if each == asked.topics), asked.topics)
    timeout_ms = asked.rebalance_timeout_ms
    updated = {
        "instance_id": member.instance_id if asked.instance_id is None else asked.instance_id,
        "rack_id": member.rack_id if asked.rack_id is None else asked.rack_id,
        "rebalance_timeout_ms": member.rebalance_timeout_ms
        if timeout_ms == UNCHANGED_MS
        else timeout_ms,
        "topics": topics,
        "regex": member.regex if asked.regex is None else asked.regex,
        "assignor": member.assignor if asked.assignor is None else asked.assignor,
        "client_id": asked.client_id[:CLIENT_ID_MAX_CHARACTERS],
        "client_host": asked.client_host,
        "classic": asked.classic,
    }
    if all(getattr(member, name) == value for name, value in updated.items()):
        return member
    return replace(member, **updated)  # type: ignore[arg-type]


def _in_its_epoch(group: ConsumerGroup, around: Around, *, must_raise: bool) -> Work[ConsumerGroup]:
    """Return the group with its patterns resolved, and a new epoch if anything has changed."""
    if not (must_raise or around.has_new_shapes):
        return group
    patterns = yield from _patterns(group, around)
    have_changed = patterns.keys() != group.patterns.keys() or any(
        pattern.topics is not group.patterns[regex].topics for regex, pattern in patterns.items()
    )
    group = replace(group, patterns=patterns)
    found = yield from hash_of(group.name_sets(), around.shapes)
    if not (must_raise or have_changed or found != group.metadata_hash):
        return group
    return replace(group, epoch=group.epoch + 1, metadata_hash=found, has_topic_record=False)


def _patterns(group: ConsumerGroup, around: Around) -> Work[Mapping[str, ResolvedPattern]]:
    """Return the patterns of the members. One that matches what it did keeps its set."""
    patterns: dict[str, ResolvedPattern] = {}
    for member in group.members.values():
        yield 1
        regex = member.regex
        if regex and regex not in patterns:
            topics = around.matched[regex]
            known = group.patterns.get(regex)
            yield 1 + len(topics) // 20
            patterns[regex] = (
                known
                if known is not None and (known.topics is topics or known.topics == topics)
                else ResolvedPattern(
                    topics=topics, version=around.shapes.revision, resolved_ms=around.now_ms
                )
            )
    return patterns


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember) -> ConsumerGroup:
    """Return the group while a static member is away: its partitions wait for it."""
    # The one that comes back has another member id, and may store offsets of all of them.
    left = replace(
        member,
        epoch=LEAVE_STATIC_EPOCH,
        revoking=NO_EPOCHS,
        assigned={
            topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()
        },
    )
    return group.with_member(left)


def remove(
    group: ConsumerGroup, member_ids: Iterable[str], shapes: TopicShapes
) -> Work[ConsumerGroup]:
    """Return the group without these members, in a new epoch."""
    yield 1 + len(group.members) // 5
    left = group.without(member_ids)
    found = group.metadata_hash
    # If others read the same, it stays. Topics that have changed are found by the next heartbeat.
    if {*map(id, left.name_sets())} != {*map(id, group.name_sets())}:
        found = yield from hash_of(left.name_sets(), shapes)
    return replace(left, epoch=left.epoch + 1, metadata_hash=found)
