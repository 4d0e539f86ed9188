"""AlterPartitionReassignments, key 45, versions 0-1; ListPartitionReassignments, key 46, version 0.

Behaviour: a partition gets other replicas while it is in use. The new replicas copy first; when
they are in sync, those that are not in the target are removed. Each partition succeeds or fails on
its own. Null cancels a move. Of a partition that is named several times the last target counts. The
answer is sent when the moves have begun; ListPartitionReassignments returns those that are under
way, of all topics if it is asked for null.

Versions: 1 may forbid that the number of replicas changes.

Differs from Kafka:

- Any broker begins a reassignment. It ends only when `min.insync.replicas` of its target are in
  sync. Kafka waits for the new replicas alone. If it took the place of an unfinished one and is
  cancelled, the replicas are those before both; Kafka keeps those that the first was adding. There
  is no throttle.
- A broker that is down cannot be a new replica of a reassignment. Kafka accepts it, and the move
  waits for the broker.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.image import PartitionImage
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

STEPS: Final = 2
"""The cost of one partition, in steps of a turn."""


async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    turns = Turns()
    wanted: dict[TopicPartition, tuple[int, ...] | None] = {}
    for topic in request.topics:
        await turns.take()
        for partition in topic.partitions:
            await turns.take(STEPS + len(partition.replicas or ()))
            wanted[TopicPartition(topic.name, partition.partition_index)] = partition.replicas
    refused: KafkaError | None = None
    try:
        context.access.check_cluster(ALTER_CLUSTER)
        outcomes = await context.core.moves.move(
            wanted,
            may_change_factor=request.allow_replication_factor_change,
            timeout_ms=request.timeout_ms,
        )
    except KafkaError as not_allowed:
        refused = not_allowed
        outcomes = dict.fromkeys(wanted, not_allowed)
    found: dict[str, list[ReassignablePartitionResponse]] = {}
    for topic in request.topics:
        await turns.take()
        found[topic.name] = []
    for where in wanted:
        await turns.take(STEPS)
        error = outcomes[where]
        found[where.topic].append(
            ReassignablePartitionResponse(
                partition_index=where.partition,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=_message_of(error),
            )
        )
    responses = []
    for name, partitions in found.items():
        await turns.take()
        responses.append(ReassignableTopicResponse(name=name, partitions=tuple(partitions)))
    return AlterPartitionReassignmentsResponse(
        # Kafka answers a request without topics with the defaults.
        allow_replication_factor_change=request.allow_replication_factor_change
        or not request.topics,
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.message,
        responses=tuple(responses),
    )


def _message_of(error: KafkaError | None) -> str | None:
    """Return the message of an error. NO_REASSIGNMENT_IN_PROGRESS has none, as in Kafka."""
    if error is None or error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
        return None
    return error.message


async def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message, topics=()
        )
    turns = Turns()
    image = context.core.cluster.image
    wanted: dict[TopicPartition, None] = {}
    if request.topics is None:
        for name, found in image.topics.items():
            await turns.take(len(found.partitions))
            for index, partition in enumerate(found.partitions):
                if partition.is_moving:
                    wanted[TopicPartition(name, index)] = None
    for topic in request.topics or ():
        await turns.take()
        for index in topic.partition_indexes:
            await turns.take()
            wanted[TopicPartition(topic.name, index)] = None
    await context.expect(len(wanted))
    moving: dict[str, list[OngoingPartitionReassignment]] = {}
    for where in wanted:
        await turns.take(STEPS)
        there = image.partition(*where)
        if there is not None and there.is_moving:
            moving.setdefault(where.topic, []).append(_ongoing(where.partition, there))
    topics = []
    for name, partitions in moving.items():
        await turns.take()
        topics.append(OngoingTopicReassignment(name=name, partitions=tuple(partitions)))
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=tuple(topics)
    )


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=partition.replicas,
        adding_replicas=partition.arriving,
        removing_replicas=partition.removing,
    )


SERVED: Final = (
    ServedApi(ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments, (Need(ALTER_CLUSTER),)),
    ServedApi(
        LIST_PARTITION_REASSIGNMENTS,
        list_partition_reassignments,
        (Need(DESCRIBE_CLUSTER),),
    ),
)
