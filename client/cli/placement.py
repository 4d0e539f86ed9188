"""The brokers on which replicas should be.

A plan is improved step by step until no step improves it, so a cluster that is in balance stays as
it is. In the order of their weight: no two replicas of a partition in one rack, as far as there are
racks; the replicas of a topic evenly on the brokers; all replicas evenly on them. Leaders likewise.
Brokers without a rack count as one rack. Replicas on brokers that are away stay where they are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from odradek.client.administration.moves import PartitionMove
from odradek.client.errors import Refused
from odradek.client.types import TopicDescription, TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]
"""The rack of each broker that is there."""


def drained(
    topics: Iterable[TopicDescription],
    racks: Racks,
    node_id: int,
    moves: Mapping[TopicPartition, PartitionMove],
) -> Plan:
    """Return the new replicas of the partitions that a broker has, or is about to get.

    Raises `Refused` if there is no broker left for one of them.
    """
    places = _places(topics, moves)
    others = {node: rack for node, rack in sorted(racks.items()) if node != node_id}
    counts = Counter(node for replicas in places.values() for node in replicas)
    plan: Plan = {}
    for place, replicas in places.items():
        if node_id not in replicas:
            continue
        stay = [node for node in replicas if node != node_id]
        comes = _best(stay, others, counts)
        if comes is None:
            raise Refused(
                f"no broker can take the replica of {place} on broker {node_id}, as each has one "
                f"already ({', '.join(map(str, replicas))}); start another broker"
            )
        counts[comes] += 1
        plan[place] = tuple(comes if node == node_id else node for node in replicas)
    return plan


def balanced(
    topics: Iterable[TopicDescription],
    racks: Racks,
    moves: Mapping[TopicPartition, PartitionMove],
    *,
    replication_factor: int | None = None,
) -> Plan:
    """Return the new replicas of the partitions that are to move, or to have another leader.

    With `replication_factor` each partition gets so many replicas. Raises `Refused` if there are
    fewer brokers.
    """
    before = _places(topics, moves)
    if replication_factor is not None and replication_factor > len(racks):
        raise Refused(
            f"{replication_factor} replicas need as many brokers: {len(racks)} can be reached now"
        )
    plan = {place: list(replicas) for place, replicas in before.items()}
    if replication_factor is not None:
        _resize(plan, racks, replication_factor)
    while _improve_places(plan, racks):
        pass
    while _improve_leaders(plan, racks):
        pass
    return {
        place: tuple(replicas)
        for place, replicas in plan.items()
        if tuple(replicas) != before[place]
    }


def _places(
    topics: Iterable[TopicDescription], moves: Mapping[TopicPartition, PartitionMove]
) -> Plan:
    """Return the replicas of partitions as they are when the moves under way are complete."""
    places: Plan = {}
    for topic in topics:
        for found in topic.partitions:
            place = TopicPartition(topic.name, found.partition)
            going = moves[place].removing if place in moves else ()
            places[place] = tuple(node for node in found.replicas if node not in going)
    return places


def _best(stay: Sequence[int], racks: Racks, counts: Mapping[int, int]) -> int | None:
    """Return the broker for one more replica; None if each has one."""
    used = Counter(racks[node] for node in stay if node in racks)
    free = [node for node in racks if node not in stay]
    return min(free, key=lambda node: (used[racks[node]], counts.get(node, 0), node), default=None)


def _resize(plan: dict[TopicPartition, list[int]], racks: Racks, size: int) -> None:
    counts = Counter(node for replicas in plan.values() for node in replicas)
    for replicas in plan.values():
        while len(replicas) > size:  # those that are away first, and the first replica last
            goes = max(
                replicas[1:] or replicas,
                key=lambda node: (
                    node not in racks,
                    -_crowding([other for other in replicas if other != node], racks),
                    counts[node],
                ),
            )
            replicas.remove(goes)
            counts[goes] -= 1
        while len(replicas) < size:
            comes = _best(replicas, racks, counts)
            if comes is None:
                break
            replicas.append(comes)
            counts[comes] += 1


def _crowding(replicas: Iterable[int], racks: Racks) -> int:
    """Return the number of replicas that have no rack of their own."""
    used = [racks[node] for node in replicas if node in racks]
    return len(used) - len(set(used))


def _improve_places(plan: dict[TopicPartition, list[int]], racks: Racks) -> bool:
    """Move replicas, each to where it improves the plan most. Return True if one has moved."""
    of_topic = Counter((place.topic, node) for place, found in plan.items() for node in found)
    in_all = Counter(node for replicas in plan.values() for node in replicas)
    has_moved = False
    for (topic, _), replicas in plan.items():
        crowding = _crowding(replicas, racks)
        steps = [
            (
                _crowding([comes, *(node for node in replicas if node != goes)], racks) - crowding,
                of_topic[topic, comes] - of_topic[topic, goes] + 1,
                in_all[comes] - in_all[goes] + 1,
                comes,
                goes,
            )
            for goes in replicas
            if goes in racks
            for comes in racks
            if comes not in replicas
        ]
        if not steps or min(steps)[:3] >= (0, 0, 0):
            continue
        *_, comes, goes = min(steps)
        replicas[replicas.index(goes)] = comes
        of_topic[topic, comes] += 1
        of_topic[topic, goes] -= 1
        in_all[comes] += 1
        in_all[goes] -= 1
        has_moved = True
    return has_moved


def _improve_leaders(plan: dict[TopicPartition, list[int]], racks: Racks) -> bool:
    """Put other replicas first, so that they lead. Return True if one has changed."""
    of_topic = Counter((place.topic, found[0]) for place, found in plan.items())
    in_all = Counter(replicas[0] for replicas in plan.values())
    has_changed = False
    for (topic, _), replicas in plan.items():
        first = replicas[0]
        steps = [
            (
                of_topic[topic, node] - of_topic[topic, first] + 1,
                in_all[node] - in_all[first] + 1,
                node,
            )
            for node in replicas[1:]
            if node in racks and first in racks
        ]
        if not steps or min(steps)[:2] >= (0, 0):
            continue
        *_, leads = min(steps)
        replicas.remove(leads)
        replicas.insert(0, leads)
        of_topic[topic, leads] += 1
        of_topic[topic, first] -= 1
        in_all[leads] += 1
        in_all[first] -= 1
        has_changed = True
    return has_changed
