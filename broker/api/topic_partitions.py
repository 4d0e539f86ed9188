"""DescribeTopicPartitions, key 75, version 0.

Behaviour: returns topics in the order of their names, partition by partition, up to the limit of
the request and at most 2,000. The cursor of the answer names the partition with which the next
request is to begin. An empty list asks for all topics. A topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for a wrong name. A cursor that names a
topic which the list does not have, or a negative partition, is INVALID_REQUEST for every topic.
The authorised operations are in every answer.

Versions: there is one.

Differs from Kafka:

- A name that no topic may have is refused alone. In Kafka it spoils the answer of
  DescribeTopicPartitions about all topics (UNKNOWN_SERVER_ERROR), if metrics of topics are counted.
- A cursor behind the last partition that there can be. The answer has no next cursor. Kafka's has
  overflown.
- The number of partitions in an answer of DescribeTopicPartitions has no setting. It is at most
  2,000. The last known eligible replica is the last leader of a partition without one.
"""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import reachable_leader
from odradek.broker.api.metadata_answer import NO_LEADER, offline_replicas
from odradek.broker.api.needs import Need
from odradek.broker.api.operations import NOT_ASKED
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.new_topic import check_name
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import DESCRIBE_TOPIC, TOPIC
from odradek.protocol.apis.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicCursor,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import INTERNAL_TOPICS

PARTITIONS_MAX: Final = 2_000
"""The most partitions in an answer, as in Kafka by default."""


async def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    turns = Turns()
    image = context.core.cluster.image
    cursor = request.cursor
    asked = await turns.map(attrgetter("name"), request.topics)
    names = asked or await _all_names(context, turns)
    first = "" if cursor is None else cursor.topic_name
    wanted = sorted({name for name in names if name >= first})
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in wanted)
    ):
        refused = await turns.map(partial(_refusal, context, ErrorCode.INVALID_REQUEST), asked)
        return DescribeTopicPartitionsResponse(topics=tuple(refused))
    room = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    await context.expect(min(len(wanted), len(names)) + room)
    topics = []
    next_cursor = None
    for name in wanted:
        await turns.take()
        if room <= 0:
            next_cursor = TopicCursor(topic_name=name, partition_index=0)
            break
        if asked and not context.access.allows(DESCRIBE_TOPIC, name):
            topics.append(_refusal(context, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        topic = image.topics.get(name)
        if topic is None:
            if asked:
                topics.append(_refusal(context, _missing(name), name))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        end = min(len(topic.partitions), start + room)
        numbered = [(index, topic.partitions[index]) for index in range(start, end)]
        described = await turns.map(partial(_partition, context, name), numbered)
        topics.append(_topic(context, topic, described))
        room -= len(described)
        if end < len(topic.partitions):
            next_cursor = TopicCursor(topic_name=name, partition_index=end)
            break
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


async def _all_names(context: RequestContext, turns: Turns) -> list[str]:
    """Return the names of the topics that the client may see."""
    names = []
    for name in list(context.core.cluster.image.topics):
        await turns.take()
        if context.access.shows(DESCRIBE_TOPIC, name):
            names.append(name)
    return names


def _missing(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refusal(
    context: RequestContext, code: ErrorCode, name: str
) -> DescribeTopicPartitionsResponseTopic:
    is_checked = code not in (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_checked and name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=context.access.operations(TOPIC, name)
        if is_checked
        else NOT_ASKED,
    )


def _topic(
    context: RequestContext,
    topic: TopicImage,
    partitions: Sequence[DescribeTopicPartitionsResponsePartition],
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=context.access.operations(TOPIC, topic.name),
    )


def _partition(
    context: RequestContext, topic: str, numbered: tuple[int, PartitionImage]
) -> DescribeTopicPartitionsResponsePartition:
    index, partition = numbered
    leader = reachable_leader(context, topic, index)
    last = partition.last_leader
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader is None else ErrorCode.NONE,
        partition_index=index,
        leader_id=NO_LEADER if leader is None else leader.node_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=() if last == NO_LEADER else (last,),
        offline_replicas=tuple(offline_replicas(context, topic, index, partition)),
    )


SERVED: Final = (
    ServedApi(DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions, (Need(DESCRIBE_TOPIC),)),
)
