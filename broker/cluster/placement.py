"""The brokers that get the replicas of new partitions. Pure.

Leaders go round, and so do followers, so that the partitions that one broker leads have their
followers on different brokers. The replicas of a partition are in as many racks as there are
(`broker.rack`). Brokers without a rack count as one rack, as in Kafka.
"""

from collections.abc import Sequence
from itertools import chain, zip_longest
from random import Random

from odradek.broker.cluster.image import BrokerImage


def assign_replicas(
    brokers: Sequence[BrokerImage], partition_count: int, replication_factor: int, *, start: int
) -> list[tuple[int, ...]]:
    """Return the replicas of new partitions, the leader first, spread over brokers and racks.

    `start` shifts the first leader, so that topics of one partition do not all have the same. In
    each round over all brokers the followers are farther from their leaders by one.
    """
    ring = _by_turns(brokers)
    count = len(ring)
    assigned = []
    for number in range(partition_count):
        first = start + number
        shift = 1 + (first // count) % max(1, count - 1)
        leader = ring[first % count]
        others = [ring[(first + shift + step) % count] for step in range(count)]
        others = [broker for broker in others if broker is not leader]
        assigned.append(_spread(leader, others, replication_factor))
    return assigned


def drawn_start(rng: Random, broker_count: int) -> int:
    """Draw where a topic starts: its first leader, and how far its followers are from the leaders.

    With the same distance in all topics, whatever a broker leads would have its followers on the
    same two brokers, and one of them would take over all leads of a broker that dies.
    """
    return rng.randrange(broker_count * max(1, broker_count - 1))


def _by_turns(brokers: Sequence[BrokerImage]) -> list[BrokerImage]:
    """Return the brokers so that neighbours are in different racks, as far as possible."""
    racks: dict[str | None, list[BrokerImage]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    rounds = zip_longest(*racks.values())
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _spread(
    leader: BrokerImage, others: Sequence[BrokerImage], replication_factor: int
) -> tuple[int, ...]:
    """Return a leader and its followers: the first of `others` whose racks have the fewest."""
    replicas = [leader]
    racks = {leader.rack: 1}
    left = list(others)
    while left and len(replicas) < replication_factor:
        # invariant administration 7: Replicas of a partition share a rack only if there are too few
        # racks.
        # plant all replicas of a partition are in one rack
        follower = min(left, key=lambda broker: racks.get(broker.rack, 0))
        left.remove(follower)
        replicas.append(follower)
        racks[follower.rack] = racks.get(follower.rack, 0) + 1
    return tuple(broker.node_id for broker in replicas)
