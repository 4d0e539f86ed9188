"""The brokers and leaders that answers name: only those that a client can reach."""

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import BrokerImage
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode

NAMED_FOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
UNKNOWN: Final = (-1, -1)


def reachable_brokers(
    context: RequestContext, brokers: Iterable[BrokerImage]
) -> Iterator[tuple[BrokerImage, str, int]]:
    """Yield each broker that has the listener that was asked, with host and port."""
    for broker in brokers:
        address = context.address_of(broker)
        if address is not None:
            yield broker, *address


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
    if core.partitions.is_offline(topic, index) or (found is not None and found.leading is None):
        return None  # the log is damaged, or this broker is cut off and its image is old
    return leader


class LeaderHints:
    """The leaders that one answer names, so that clients go there without asking (KIP-951)."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self.endpoints: dict[int, tuple[str, int, str | None]] = {}
        """Host, port and rack of the brokers that are named, by their ids."""

    def leader_and_epoch(self, code: int, topic: str, index: int) -> tuple[int, int]:
        """Return the leader and the epoch that a refusal with `code` names; (-1, -1): none."""
        if code not in NAMED_FOR:
            return UNKNOWN
        # A lead ends, and its requests are refused, before the image shows the next leader.
        image = self._context.core.cluster.newest_image
        partition = image.partition(topic, index)
        leader = None if partition is None else image.broker(partition.leader)
        address = None if leader is None else self._context.address_of(leader)
        if leader is None or partition is None or address is None:
            return UNKNOWN
        self.endpoints[leader.node_id] = (*address, leader.rack)
        return leader.node_id, partition.leader_epoch
