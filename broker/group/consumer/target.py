"""The target assignment of a group: what each member should own in the newest epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from odradek.broker.group.consumer.assignors import ASSIGNORS, Subscriber
from odradek.broker.group.consumer.members import (
    NO_PARTITIONS,
    ConsumerGroup,
    Partitions,
    TopicShapes,
)


def topic_ids_of(names: frozenset[str], shapes: TopicShapes) -> frozenset[UUID]:
    """Return the ids of the topics of these names that there are."""
    topics = shapes.topics
    return frozenset(topics[name].topic_id for name in names if name in topics)


def assignor_of(group: ConsumerGroup, assignors: Sequence[str]) -> str:
    """Return the assignor that most members ask for, or the first that the broker offers."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.assignor is not None and member.assignor in assignors:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(votes, key=votes.__getitem__, default=assignors[0])


def with_target(
    group: ConsumerGroup, shapes: TopicShapes, *, assignors: Sequence[str], now_ms: int
) -> ConsumerGroup:
    """Return the group with a target assignment for its epoch.

    A member whose target has not changed keeps the object.
    """
    known: dict[frozenset[str], frozenset[UUID]] = {}
    readers = []
    counts: dict[UUID, int] = {}
    for member in group.members.values():
        names = group.topics_of(member)
        if names not in known:
            known[names] = topic_ids_of(names, shapes)
            for name in names & shapes.topics.keys():
                counts[shapes.topics[name].topic_id] = len(shapes.topics[name].partitions)
        readers.append(
            Subscriber(
                member_id=member.member_id,
                instance_id=member.instance_id,
                topic_ids=known[names],
                target=group.targets.get(member.member_id, NO_PARTITIONS),
            )
        )
    assigned = ASSIGNORS[assignor_of(group, assignors)](readers, counts)
    return replace(
        group,
        assignment_epoch=group.epoch,
        assigned_ms=now_ms,
        targets={
            member_id: _kept_if_equal(group.targets.get(member_id), assigned[member_id])
            for member_id in group.members
        },
    )


def _kept_if_equal(before: Partitions | None, assigned: Mapping[UUID, set[int]]) -> Partitions:
    now = {topic_id: frozenset(indexes) for topic_id, indexes in assigned.items()}
    return before if before is not None and before == now else now
