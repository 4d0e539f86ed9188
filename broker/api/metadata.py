"""Metadata, key 3, versions 0-13; DescribeCluster, key 60, versions 0-2.

Behaviour: returns brokers, topics, partitions and their leaders, as of one image of the cluster. A
topic that is named and does not exist is created with `num.partitions` partitions, if the broker's
`auto.create.topics.enable` and the request allow it, and is in the same answer. Null asks for every
topic, an empty list for none (in version 0 it is the empty list that asks for all). Brokers have
the addresses of the listener that was asked; a broker without it is left out, and a partition that
it leads has LISTENER_NOT_FOUND. A topic that is
named several times is answered once. A partition whose leader is not among the brokers, or offline,
has LEADER_NOT_AVAILABLE and no leader (-1). Replicas of brokers that are away are offline replicas,
and so is a damaged one of this broker. Authorised operations that a request asks for are all of
them, as there is no authoriser.

Versions: 4 lets the client forbid auto-creation; before 6 LISTENER_NOT_FOUND is
LEADER_NOT_AVAILABLE; 10 brings topic ids, which 10 and 11 refuse in a request (INVALID_REQUEST for
every topic); 12 looks topics up by id: an unknown id is UNKNOWN_TOPIC_ID; 13 has an error of its
own for the whole answer.

Differs from Kafka: the first answer about a new topic has its leader, instead of
LEADER_NOT_AVAILABLE. A topic with a null name and no id is INVALID_REQUEST for that topic, where
Kafka answers UNKNOWN_SERVER_ERROR.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import reachable_leader
from odradek.broker.api.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.new_topic import check_name
from odradek.broker.turns import Turns
from odradek.protocol.apis.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

BY_ID_FROM: Final = 10
NULL_NAME_FROM: Final = 12
"""Requests may have a null name from version 10 on, answers only from here."""

NO_LEADER: Final = -1

LISTENER_NOT_FOUND_FROM: Final = 6
"""Before, LEADER_NOT_AVAILABLE stood for a leader without the listener that was asked, too."""

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster that is served; 2 would be controllers."""

Found = TopicImage | MetadataResponseTopic
"""A topic that exists, or the refusal of a request for one."""


async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if BY_ID_FROM <= context.api_version < NULL_NAME_FROM and await _names_ids(request):
        refuse = partial(_refused, context, code=ErrorCode.INVALID_REQUEST)
        refused = await Turns().map(refuse, request.topics or ())
        return MetadataResponse(brokers=(), topics=tuple(refused))
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    found: Iterable[Found]
    if wants_all:
        found = context.core.cluster.image.topics.values()
    else:
        found = await _wanted_topics(context, request)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics = await _described(context, found, operations)
    image = context.core.cluster.image
    of_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, host, port in _addresses(context)
        ),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS if of_cluster else NOT_ASKED,
    )


async def _names_ids(request: MetadataRequest) -> bool:
    """Return True if a topic is named by its id. Versions 10 and 11 have ids in answers only."""
    turns = Turns()
    for topic in request.topics or ():
        await turns.take()
        if topic.name is None or topic.topic_id != ZERO_UUID:
            return True
    return False


async def _wanted_topics(context: RequestContext, request: MetadataRequest) -> list[Found]:
    """Return the topics of the request, each once: Kafka makes a set of names, and one of ids."""
    turns = Turns()
    seen: set[tuple[UUID, str | None]] = set()
    found = []
    for wanted in request.topics or ():
        await turns.take()
        key = wanted.topic_id, wanted.name
        if key not in seen:
            seen.add(key)
            found.append(await _wanted(context, request, wanted))
    return found


async def _described(
    context: RequestContext, found: Iterable[Found], operations: int
) -> list[MetadataResponseTopic]:
    found = list(found)
    turns = Turns()
    item_count = len(found)
    for each in found:
        await turns.take()
        if isinstance(each, TopicImage):
            item_count += len(each.partitions)
    await context.expect(item_count)
    described = []
    for each in found:
        await turns.take()
        if isinstance(each, TopicImage):
            work = partial(_partition, context, each.name)
            partitions = await turns.map(work, tuple(enumerate(each.partitions)))
            each = _topic(each, partitions, operations)
        elif each.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            each = replace(each, topic_authorized_operations=operations)
        described.append(each)
    return described


async def _wanted(
    context: RequestContext, request: MetadataRequest, wanted: MetadataRequestTopic
) -> Found:
    cluster = context.core.cluster
    if wanted.topic_id != ZERO_UUID:
        by_id = cluster.image.topic_by_id(wanted.topic_id)
        if by_id is None:
            return _refused(context, wanted, ErrorCode.UNKNOWN_TOPIC_ID)
        return by_id
    if wanted.name is None:
        return _refused(context, wanted, ErrorCode.INVALID_REQUEST)
    topic = cluster.image.topics.get(wanted.name)
    if topic is None:
        may_create = context.core.config.auto_create_topics_enable
        try:
            if not (may_create and request.allow_auto_topic_creation):
                check_name(wanted.name)
                return _refused(context, wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic = await cluster.ensure_topic(wanted.name)
        except KafkaError as error:
            return _refused(context, wanted, error.code)
    return topic


def _refused(
    context: RequestContext, wanted: MetadataRequestTopic, code: ErrorCode
) -> MetadataResponseTopic:
    name = wanted.name
    if name is None and context.api_version < NULL_NAME_FROM:
        name = ""
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=wanted.topic_id, partitions=()
    )


def _topic(
    topic: TopicImage, partitions: Iterable[MetadataResponsePartition], operations: int
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
    )


def _partition(
    context: RequestContext, topic: str, numbered: tuple[int, PartitionImage]
) -> MetadataResponsePartition:
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


async def describe_cluster(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    image = context.core.cluster.image
    if request.endpoint_type != BROKERS:
        return _no_such_endpoints(request)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=tuple(
            DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, host, port in _addresses(context)
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _no_such_endpoints(request: DescribeClusterRequest) -> DescribeClusterResponse:
    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    message = f"Unsupported endpoint type {request.endpoint_type}. Ask for the brokers, type 1."
    if request.endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER. Here is no controller to ask; use the broker."
        )
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=()
    )


def _addresses(context: RequestContext) -> Iterator[tuple[int, str, int]]:
    """Yield id, host and port of each broker that has the listener that was asked."""
    for broker in context.core.cluster.image.brokers:
        address = context.address_of(broker)
        if address is not None:
            yield broker.node_id, *address
