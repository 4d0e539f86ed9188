"""Topics and partitions, as Metadata answers them."""

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import reachable_leader
from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.protocol.apis.metadata import MetadataResponsePartition, MetadataResponseTopic
from odradek.protocol.errors import ErrorCode

NO_LEADER: Final = -1
LISTENER_NOT_FOUND_FROM: Final = 6
"""Before, LEADER_NOT_AVAILABLE stood for a leader without the listener that was asked, too."""


def topic_answer(
    topic: TopicImage,
    partitions: Iterable[MetadataResponsePartition],
    operations: int,
    *,
    is_new: bool,
) -> MetadataResponseTopic:
    """Return a topic with its partitions, as Metadata answers it."""
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
        is_new=is_new,
    )


def partition_answer(
    context: RequestContext, topic: str, numbered: tuple[int, PartitionImage]
) -> MetadataResponsePartition:
    """Return a numbered partition of a topic, as Metadata answers it."""
    index, partition = numbered
    leader = reachable_leader(context, topic, index)
    code = ErrorCode.LEADER_NOT_AVAILABLE if leader is None else ErrorCode.NONE
    if leader is not None and context.address_of(leader) is None:
        leader = None
        if context.api_version >= LISTENER_NOT_FOUND_FROM:
            code = ErrorCode.LISTENER_NOT_FOUND
        else:
            code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=NO_LEADER if leader is None else leader.node_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(offline_replicas(context, topic, index, partition)),
    )


def offline_replicas(
    context: RequestContext, topic: str, index: int, partition: PartitionImage
) -> Iterator[int]:
    """Yield the replicas of brokers that are away, and this broker's if its log is damaged."""
    for replica in partition.replicas:
        if replica == context.core.config.node_id:
            is_offline = context.core.partitions.is_offline(topic, index)
        else:
            is_offline = context.core.cluster.image.broker(replica) is None
        if is_offline:
            yield replica
