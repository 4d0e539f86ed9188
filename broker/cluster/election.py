"""Elections: a pure function of the image that says which partitions need another leader.

Only a replica that has every acknowledged record is elected: a member of the in-sync set, or, if
none of those is there, of the eligible leader replicas (KIP-966). If there is none either, the
partition has no leader until one comes back. Elections never empty the in-sync set. It is empty
only if every member lost power with `log.flush=os`: then the last leader is elected (`without`).
Another replica is elected only if an administrator asks for it (`unclean`).

A partition needs an election if its leader is not registered, or has registered since the partition
was last written: a broker that has restarted leads only in an epoch of its own (KAFKA-10527). So
the image alone says what is to do, whichever broker is the controller and whenever it became so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from odradek.broker.cluster.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from odradek.broker.values.topic_partition import TopicPartition


def elections(
    image: ClusterImage,
    min_isr_of: Callable[[TopicImage], int],
    topics: Iterable[TopicImage],
) -> dict[TopicPartition, PartitionImage]:
    """Return the partitions of some topics that need another leader, as they should be."""
    brokers = {broker.node_id: broker for broker in image.brokers}
    found = {}
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            elected = elect(partition, brokers, min_isr_of(topic))
            if elected is not None:
                found[TopicPartition(topic.name, index)] = elected
    return found


def elect(
    partition: PartitionImage, brokers: Mapping[int, BrokerImage], min_isr: int
) -> PartitionImage | None:
    """Return a partition with its next leader; None if it stays as it is."""
    leads = _leads(partition, brokers)
    if leads and not brokers[partition.leader].is_leaving:
        return None
    staying = [n for n in partition.replicas if n in brokers and not brokers[n].is_leaving]
    candidates = [node for node in staying if node in partition.isr]
    candidates = candidates or [node for node in staying if node in partition.elr]
    if not candidates and leads:
        return None  # it is about to stop, and no other broker can lead
    if not candidates:
        candidates = [node for node in partition.isr if node in brokers]
    if not partition.isr and not partition.elr and partition.last_leader in staying:
        candidates = [partition.last_leader]
    if candidates:
        elected = candidates[0]
        isr = tuple(node for node in partition.isr if node in brokers)
        return _led_by(partition, elected, isr if elected in isr else (elected,), min_isr)
    if partition.leader == NO_LEADER:
        return None
    # The in-sync set stays: the partition waits for one of its members.
    return _without_leader(partition)


def without(
    partition: PartitionImage, node: int, brokers: Mapping[int, BrokerImage]
) -> PartitionImage | None:
    """Return a partition whose sets do not have a replica that may lack acknowledged records.

    None if nothing changes. A partition with one replica stays: no other could lead.
    """
    if len(partition.replicas) == 1 or node not in (*partition.isr, *partition.elr):
        return None
    changed = replace(
        partition,
        isr=tuple(other for other in partition.isr if other != node),
        elr=tuple(other for other in partition.elr if other != node),
    )
    # A write makes the partition newer than a leader that has restarted since it was elected. It
    # would take that for its election.
    return changed if _leads(partition, brokers) else _without_leader(changed)


def _leads(partition: PartitionImage, brokers: Mapping[int, BrokerImage]) -> bool:
    """Return True if the leader runs, and was elected in this run."""
    leader = brokers.get(partition.leader)
    return leader is not None and leader.epoch < partition.epoch


def _without_leader(partition: PartitionImage) -> PartitionImage:
    if partition.leader == NO_LEADER:
        return partition
    return replace(
        partition,
        leader=NO_LEADER,
        leader_epoch=partition.leader_epoch + 1,
        last_leader=partition.leader,
    )


def preferred(
    image: ClusterImage, topics: Iterable[TopicImage]
) -> dict[TopicPartition, PartitionImage]:
    """Return the partitions of some topics that their first replica could lead, led by it."""
    brokers = {broker.node_id: broker for broker in image.brokers}
    found = {}
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            changed = led_by_first(partition, brokers)
            if changed is not None and partition.leader != NO_LEADER:
                found[TopicPartition(topic.name, index)] = changed
    return found


def led_by_first(
    partition: PartitionImage, brokers: Mapping[int, BrokerImage]
) -> PartitionImage | None:
    """Return a partition led by its first replica; None if that leads, or cannot lead."""
    first = brokers.get(partition.replicas[0])
    if first is None or first.is_leaving or partition.leader == first.node_id:
        return None
    if first.node_id not in partition.isr:
        return None
    return replace(
        partition,
        leader=first.node_id,
        leader_epoch=partition.leader_epoch + 1,
        last_leader=NO_LEADER,
    )


def unclean(
    partition: PartitionImage, brokers: Mapping[int, BrokerImage], candidate: int = NO_LEADER
) -> PartitionImage | None:
    """Return a partition led by a replica that may lack acknowledged records.

    That is `candidate`, or without one the first replica that is there. None if it is not there.
    No other replica stays in sync or eligible: what it has and the new leader lacks is given up.
    """
    there = [n for n in partition.replicas if n in brokers and not brokers[n].is_leaving]
    if candidate != NO_LEADER:
        there = [node for node in there if node == candidate]
    if not there:
        return None
    return replace(
        partition,
        leader=there[0],
        leader_epoch=partition.leader_epoch + 1,
        isr=(there[0],),
        elr=(),
        last_leader=NO_LEADER,
    )


def with_isr(partition: PartitionImage, isr: Sequence[int], min_isr: int) -> PartitionImage:
    """Return a partition with another in-sync set, and the eligible replicas that follow."""
    enough = min(min_isr, len(partition.replicas) - len(partition.adding))
    eligible = dict.fromkeys((*partition.elr, *partition.isr))
    elr = () if len(isr) >= enough else tuple(node for node in eligible if node not in isr)
    return replace(partition, isr=tuple(isr), elr=elr)


def _led_by(
    partition: PartitionImage, leader: int, isr: tuple[int, ...], min_isr: int
) -> PartitionImage:
    changed = with_isr(partition, isr, min_isr)
    return replace(
        changed,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        last_leader=NO_LEADER,
    )
