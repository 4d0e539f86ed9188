"""The sticky assignors: as even as possible, and then as few moves as possible (KIP-54, KIP-429).

Each member says in its subscription which partitions it has. A partition stays with the member that
says so, as long as the assignment is even. Java's assignors give the same numbers of partitions to
the members and move as many; which ones move is not part of the protocol, as only the leader
decides.

The cooperative one takes a partition that moves from its former owner first, and gives it to nobody
until the owner has confirmed that: the owner joins again, and the next assignment gives it away.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.client.grouping.assignors import Assignment, Subscriber, every_partition, in_order
from odradek.client.types import TopicPartition

_CONTESTED: Final = ""
"""Stands for the owner of a partition that two members claim for the same generation."""


def assign_sticky(partition_counts: Mapping[str, int], members: Sequence[Subscriber]) -> Assignment:
    """Divide the partitions evenly, and leave each where it is if that is even."""
    circle = in_order(members)
    owners = _owners(partition_counts, circle)
    if len({member.topics for member in circle}) <= 1:
        assignment = _assign_alike(partition_counts, circle, owners)
    else:
        assignment = _assign_unlike(partition_counts, circle, owners)
    return {member.member_id: sorted(assignment[member.member_id]) for member in members}


# invariant members 1
def assign_cooperatively(
    partition_counts: Mapping[str, int], members: Sequence[Subscriber]
) -> Assignment:
    """Divide as `assign_sticky` does, but give nobody a partition that another one still has."""
    claimed: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            claimed.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [
            partition for partition in partitions if not claimed.get(partition, set()) - {member_id}
        ]
        for member_id, partitions in assign_sticky(partition_counts, members).items()
    }


def _owners(
    partition_counts: Mapping[str, int], members: Sequence[Subscriber]
) -> dict[TopicPartition, str]:
    """Return who has each partition: of two claims, that of the later generation."""
    owners: dict[TopicPartition, str] = {}
    generations: dict[TopicPartition, int] = {}
    for member in members:
        for partition in dict.fromkeys(member.owned):
            exists = 0 <= partition.partition < partition_counts.get(partition.topic, 0)
            if not exists or partition.topic not in member.topics:
                continue
            before = generations.get(partition)
            if before is None or member.generation > before:
                owners[partition] = member.member_id
                generations[partition] = member.generation
            elif member.generation == before:
                owners[partition] = _CONTESTED
    return {partition: owner for partition, owner in owners.items() if owner != _CONTESTED}


def _assign_alike(
    partition_counts: Mapping[str, int],
    members: Sequence[Subscriber],
    owners: Mapping[TopicPartition, str],
) -> Assignment:
    """Divide partitions that every member may get: all get the same number, or one more."""
    assignment: Assignment = {member.member_id: [] for member in members}
    topics = members[0].topics if members else frozenset()
    partitions = [
        partition for partition in every_partition(partition_counts) if partition.topic in topics
    ]
    if not members:
        return assignment
    each, more = divmod(len(partitions), len(members))
    owned: Assignment = {member.member_id: [] for member in members}
    for partition in partitions:
        if partition in owners:
            owned[owners[partition]].append(partition)
    # Those who have most keep one more than the others, so that fewer partitions move.
    for member_id in sorted(owned, key=lambda member_id: -len(owned[member_id])):
        quota = each + (1 if more and len(owned[member_id]) > each else 0)
        more -= quota - each
        assignment[member_id] = owned[member_id][:quota]
    kept = {partition for partitions in assignment.values() for partition in partitions}
    free = [partition for partition in reversed(partitions) if partition not in kept]
    for wanted in (each, each + 1):
        for member in members:
            given = assignment[member.member_id]
            while free and len(given) < wanted:
                given.append(free.pop())
    assert not free, (len(free), len(members))
    return assignment


def _assign_unlike(
    partition_counts: Mapping[str, int],
    members: Sequence[Subscriber],
    owners: Mapping[TopicPartition, str],
) -> Assignment:
    """Divide where members want different topics, and move partitions while that evens it out."""
    assignment: Assignment = {member.member_id: [] for member in members}
    wanting = {
        topic: [member.member_id for member in members if topic in member.topics]
        for topic in partition_counts
    }
    partitions = [
        partition for partition in every_partition(partition_counts) if wanting[partition.topic]
    ]
    holders: dict[TopicPartition, str] = {}

    def give(partition: TopicPartition, member_id: str) -> None:
        if partition in holders:
            assignment[holders[partition]].remove(partition)
        holders[partition] = member_id
        assignment[member_id].append(partition)

    def least_of(topic: str) -> str:
        return min(wanting[topic], key=lambda member_id: len(assignment[member_id]))

    for partition in partitions:
        if partition in owners:
            give(partition, owners[partition])
    # The partitions with the fewest possible members first: the others have a choice.
    for partition in sorted(partitions, key=lambda partition: len(wanting[partition.topic])):
        if partition not in holders:
            give(partition, least_of(partition.topic))
    # Each move makes the sum of the squares smaller, so this ends. New owners give away first.
    is_moving = True
    while is_moving:
        is_moving = False
        for partition in sorted(
            partitions, key=lambda partition: owners.get(partition) == holders[partition]
        ):
            least = least_of(partition.topic)
            if len(assignment[holders[partition]]) > len(assignment[least]) + 1:
                give(partition, least)
                is_moving = True
    return assignment
