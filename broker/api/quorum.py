"""DescribeQuorum, key 55, versions 0-2.

Behaviour: describes the log of the cluster's metadata, partition 0 of `__cluster_metadata`, as a
quorum of one voter: the elected controller. A request for anything else has
UNKNOWN_TOPIC_OR_PARTITION for each of its partitions. Without a controller the partition has
NOT_LEADER_OR_FOLLOWER.

Versions: 1 has the times at which a voter fetched, and was caught up; 2 has messages, directory ids
and the addresses of voters.

Differs from Kafka:

- DescribeQuorum describes the elected controller as a quorum of one voter. There is no topic
  `__cluster_metadata`: the metadata is in etcd, or in the data directory of a single broker. Epochs
  and offsets are revisions of that store, the epoch without the bits beyond 31; a directory id is
  always zero; there are no observers.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.config.addresses import PLAINTEXT
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import DESCRIBE_CLUSTER
from odradek.protocol.apis.quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumPartitionResponse,
    QuorumReplica,
    QuorumTopicResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

METADATA_TOPIC: Final = "__cluster_metadata"
EPOCH_MASK: Final = 2**31 - 1
UNKNOWN: Final = "This server does not host this topic-partition."
NO_CONTROLLER: Final = (
    "For requests intended only for the leader, this error indicates that the broker is not the "
    "current leader. No broker is the controller at the moment; try again."
)


async def describe_quorum(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER)
    except KafkaError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=error.message, topics=())
    if not _is_for_metadata(request):
        return DescribeQuorumResponse(
            error_code=ErrorCode.NONE, topics=await _unknown_topics(request)
        )
    image = context.core.cluster.image
    controller = image.broker(image.controller_id)
    if controller is None:
        return _answer(_refusal(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_CONTROLLER))
    now_ms = context.core.clock.wall_ms()
    voter = QuorumReplica(
        replica_id=controller.node_id,
        log_end_offset=image.revision,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    host, port = context.address_of(controller) or (controller.host, controller.port)
    listener = QuorumListener(name=context.listener or PLAINTEXT, host=host, port=port)
    return _answer(
        QuorumPartitionResponse(
            partition_index=0,
            error_code=ErrorCode.NONE,
            leader_id=controller.node_id,
            leader_epoch=image.controller_epoch & EPOCH_MASK,
            high_watermark=image.revision,
            current_voters=(voter,),
            observers=(),
        ),
        QuorumNode(node_id=controller.node_id, listeners=(listener,)),
    )


def _is_for_metadata(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1 or request.topics[0].topic_name != METADATA_TOPIC:
        return False
    partitions = request.topics[0].partitions
    return len(partitions) == 1 and partitions[0].partition_index == 0


async def _unknown_topics(request: DescribeQuorumRequest) -> tuple[QuorumTopicResponse, ...]:
    turns = Turns()
    topics = []
    for topic in request.topics:
        await turns.take()
        partitions = await turns.map(_unknown, topic.partitions)
        topics.append(
            QuorumTopicResponse(topic_name=topic.topic_name, partitions=tuple(partitions))
        )
    return tuple(topics)


def _unknown(asked: QuorumPartition) -> QuorumPartitionResponse:
    return _refusal(asked.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)


def _refusal(index: int, code: ErrorCode, message: str) -> QuorumPartitionResponse:
    return QuorumPartitionResponse(
        partition_index=index,
        error_code=code,
        error_message=message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def _answer(partition: QuorumPartitionResponse, *nodes: QuorumNode) -> DescribeQuorumResponse:
    topic = QuorumTopicResponse(topic_name=METADATA_TOPIC, partitions=(partition,))
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=(topic,), nodes=nodes)


SERVED: Final = (ServedApi(DESCRIBE_QUORUM, describe_quorum, (Need(DESCRIBE_CLUSTER),)),)
