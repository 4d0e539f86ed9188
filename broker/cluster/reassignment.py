"""Reassignment: the replicas of a partition move to other brokers, while it is in use.

The state of a move is in the partition's key in the metadata store, so it outlives every broker:

1. An administrator asks for a target. The partition's replicas become the target and, behind it,
   the replicas that are to go. `adding` names those that are new, `removing` those that are to go.
2. The new replicas copy from the leader, and join the in-sync set as any follower does.
3. When all of them are in sync, the controller writes the target as the replicas. That is an
   election, also if the leader stays: a replica that has been removed reports nothing any more.
   Brokers without a replica remove their logs when their image shows it.

Another target may take the place of the first before its replicas are in sync. A replica that the
first move was adding, and that the second does not want, goes with the others at the end of the
second, as in Kafka. It stays in `adding` besides, because it was never one of the partition's own:
it does not raise the number that must be in sync, and a cancelled move does not keep it.

A move that is cancelled goes back to the replicas that are not new, in the same way. Everything
here is pure; the writes are in `requested_moves.py` and `controller.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from odradek.broker.cluster.election import with_isr
from odradek.broker.cluster.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from odradek.broker.values.topic_partition import TopicPartition


def begun(partition: PartitionImage, target: Sequence[int]) -> PartitionImage:
    """Return a partition that begins to move. Another move that is under way ends there.

    A replica that is new and not yet in sync stays new, also if the other target does not have it.
    """
    removing = tuple(node for node in partition.replicas if node not in target)
    replicas = (*target, *removing)
    adding = tuple(
        node for node in replicas if node not in partition.replicas or node in partition.adding
    )
    return replace(partition, replicas=replicas, adding=adding, removing=removing)


def completions(
    image: ClusterImage,
    min_isr_of: Callable[[TopicImage], int],
    topics: Iterable[TopicImage],
) -> dict[TopicPartition, PartitionImage]:
    """Return the partitions of some topics whose new replicas are in sync.

    They have the target as their replicas.
    """
    brokers = {broker.node_id: broker for broker in image.brokers}
    found = {}
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            if not partition.is_moving:
                continue
            completed = complete(partition, brokers, min_isr_of(topic))
            if completed is not None:
                found[TopicPartition(topic.name, index)] = completed
    return found


def complete(
    partition: PartitionImage, brokers: Mapping[int, BrokerImage], min_isr: int
) -> PartitionImage | None:
    """Return a partition whose move is complete; None while it is not.

    The new replicas must be in sync, and enough of the target for writes with acks=all.
    """
    target = tuple(node for node in partition.replicas if node not in partition.removing)
    isr = [node for node in partition.isr if node in target]
    is_enough = len(isr) >= min(min_isr, len(target))
    # invariant administration 3: A move removes a replica only when all new ones are in sync, and
    # enough of the target for acks=all.
    # plant a move ends before the new replica is in sync
    if not is_enough or not set(partition.arriving) <= set(isr):
        return None
    return _settled(partition, target, brokers, min_isr)


def revert(
    partition: PartitionImage, brokers: Mapping[int, BrokerImage], min_isr: int
) -> PartitionImage | None:
    """Return a partition whose move is cancelled; None if no replica before it could lead."""
    before = tuple(node for node in partition.replicas if node not in partition.adding)
    # The replicas that were to go come last; those that stay have the order of the target.
    return _settled(partition, before, brokers, min_isr)


def _settled(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    brokers: Mapping[int, BrokerImage],
    min_isr: int,
) -> PartitionImage | None:
    """Return a partition with these replicas and no move, led by one of them that is in sync."""
    isr = tuple(node for node in replicas if node in partition.isr)
    staying = [node for node in isr if node in brokers and not brokers[node].is_leaving]
    leader = partition.leader if partition.leader in staying else next(iter(staying), NO_LEADER)
    if leader == NO_LEADER:
        return None
    settled = replace(
        partition,
        replicas=replicas,
        elr=tuple(node for node in partition.elr if node in replicas),
        adding=(),
        removing=(),
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        last_leader=NO_LEADER,
    )
    changed = with_isr(settled, isr, min_isr)
    return replace(changed, elr=tuple(node for node in changed.elr if node in replicas))
