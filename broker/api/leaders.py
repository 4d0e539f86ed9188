"""The leaders that answers name: only those that a client can reach."""

from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import BrokerImage
from odradek.broker.topic_partition import TopicPartition


def reachable_leader(context: RequestContext, topic: str, index: int) -> BrokerImage | None:
    """Return the broker that leads a partition; None if no broker is known to lead it now.

    The leader that died has no registration any more, and stays in the partition's metadata until
    the next one is elected. It is not named: kafka-python 3.0 asks for the address of a leader
    that is not among the brokers for ever.
    """
    core = context.core
    partition = core.cluster.image.partition(topic, index)
    leader = None if partition is None else core.cluster.image.broker(partition.leader)
    if leader is None or leader.node_id != core.config.node_id:
        return leader
    found = core.partitions.find(TopicPartition(topic, index))
    if core.partitions.is_offline(topic, index) or (found is not None and found.lead is None):
        return None  # the log is damaged, or this broker is cut off and its image is old
    return leader
