"""The target assignment of a group: what each member should own in the newest epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from odradek.broker.environment.work import Work
from odradek.broker.group.consumer.assignors import ASSIGNORS, Subscriber
from odradek.broker.group.consumer.consumer_group import (
    NO_PARTITIONS,
    ConsumerGroup,
    Partitions,
    TopicShapes,
)


def topic_ids_of(names: frozenset[str], shapes: TopicShapes) -> Work[frozenset[UUID]]:
    """Return the ids of the topics of these names that there are."""
    topics = shapes.topics
    found = []
    for name in names:
        yield 1
        if name in topics:
            found.append(topics[name].topic_id)
    return frozenset(found)


def assignor_of(group: ConsumerGroup, assignors: Sequence[str]) -> str:
    """Return the assignor that most members ask for, or the first that the broker offers."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.assignor is not None and member.assignor in assignors:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(votes, key=votes.__getitem__, default=assignors[0])


def with_target(
    group: ConsumerGroup, shapes: TopicShapes, *, assignors: Sequence[str], now_ms: int
) -> Work[ConsumerGroup]:
    """Return the group with a target assignment for its epoch.

    A member whose target has not changed keeps the object.
    """
    known: dict[tuple[int, int], frozenset[UUID]] = {}
    readers = []
    counts: dict[UUID, int] = {}
    for member in group.members.values():
        yield 1
        # Nearly all members share their sets, so these are compared by identity.
        sets = id(member.topics), id(group.pattern_topics(member))
        if sets not in known:
            known[sets] = yield from topic_ids_of(group.topics_of(member), shapes)
            for topic_id in known[sets]:
                yield 1
                counts[topic_id] = len(shapes.topics[shapes.names[topic_id]].partitions)
        readers.append(
            Subscriber(
                member_id=member.member_id,
                instance_id=member.instance_id,
                topic_ids=known[sets],
                target=group.targets.get(member.member_id, NO_PARTITIONS),
            )
        )
    assigned = yield from ASSIGNORS[assignor_of(group, assignors)].in_steps(readers, counts)
    targets = {}
    for member_id in group.members:
        yield 1 + len(assigned[member_id]) // 2
        targets[member_id] = _kept_if_equal(group.targets.get(member_id), assigned[member_id])
    return replace(group, assignment_epoch=group.epoch, assigned_ms=now_ms, targets=targets)


def _kept_if_equal(before: Partitions | None, assigned: Mapping[UUID, set[int]]) -> Partitions:
    now = {topic_id: frozenset(indexes) for topic_id, indexes in assigned.items()}
    return before if before is not None and before == now else now
