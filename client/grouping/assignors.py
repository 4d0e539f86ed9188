"""Assignors: pure functions that divide the partitions of topics among the members of a group.

The leader of a group, one of its members, calls the assignor that all members support. `range` and
`roundrobin` give what Java's assignors of these names give to the same members; the sticky ones are
in `sticky.py`. Racks (KIP-881) are not looked at.
"""

from collections.abc import Callable, Mapping, Sequence

from odradek.client.types import TopicPartition
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member of the group, as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member says it has."""
    generation: int = -1
    """The generation in which it got them; a claim of a later generation wins."""


Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member id. Every member of the group is in it."""

Assignor = Callable[[Mapping[str, int], Sequence[Subscriber]], Assignment]
"""A function from the number of each topic's partitions, and the members, to an assignment.

A topic that does not exist is left out of the numbers."""


def in_order(members: Sequence[Subscriber]) -> list[Subscriber]:
    """Return the members as Java sorts them: static ones first, by instance id; others by id."""
    return sorted(
        members,
        key=lambda member: (
            member.group_instance_id is None,
            member.group_instance_id or "",
            member.member_id,
        ),
    )


def assign_ranges(partition_counts: Mapping[str, int], members: Sequence[Subscriber]) -> Assignment:
    """Assign each member a range of the partitions of each topic. The first ones get one more."""
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(partition_counts):
        subscribed = [member for member in in_order(members) if topic in member.topics]
        if not subscribed:
            continue
        each, more = divmod(partition_counts[topic], len(subscribed))
        start = 0
        for index, member in enumerate(subscribed):
            end = start + each + (1 if index < more else 0)
            assignment[member.member_id] += [
                TopicPartition(topic, number) for number in range(start, end)
            ]
            start = end
    return assignment


def assign_in_turn(
    partition_counts: Mapping[str, int], members: Sequence[Subscriber]
) -> Assignment:
    """Assign the partitions of all topics to the members in turn."""
    assignment: Assignment = {member.member_id: [] for member in members}
    circle = in_order(members)
    turn = 0
    for partition in every_partition(partition_counts):
        for _ in circle:
            member = circle[turn % len(circle)]
            turn += 1
            if partition.topic in member.topics:
                assignment[member.member_id].append(partition)
                break
        # If no member wants the topic, the turn is where it was: a whole circle later.
    return assignment


def every_partition(partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return all partitions, by topic and number."""
    return [
        TopicPartition(topic, number)
        for topic in sorted(partition_counts)
        for number in range(partition_counts[topic])
    ]
