"""Metadata, key 3, versions 0-13.

Behaviour: returns brokers, topics, partitions and their leaders, as of one image of the cluster. A
topic that is named and does not exist is created with `num.partitions` partitions, if the broker's
`auto.create.topics.enable` and the request allow it, and is in the same answer. Null asks for every
topic, an empty list for none (in version 0 it is the empty list that asks for all). Brokers have
the addresses of the listener that was asked; a broker without it is left out, and a partition that
it leads has LISTENER_NOT_FOUND. A topic that is
named several times is answered once. A partition whose leader is not among the brokers, or offline,
has LEADER_NOT_AVAILABLE and no leader (-1). Replicas of brokers that are away are offline replicas,
and so is a damaged one of this broker. A topic that the client may not describe is not among all,
and is TOPIC_AUTHORIZATION_FAILED if it is named, whether it exists or not.

Versions: 4 lets the client forbid auto-creation; before 6 LISTENER_NOT_FOUND is
LEADER_NOT_AVAILABLE; 10 brings topic ids, which 10 and 11 refuse in a request (INVALID_REQUEST for
every topic); 12 looks topics up by id: an unknown id is UNKNOWN_TOPIC_ID; 13 has an error of its
own for the whole answer.

Differs from Kafka:

- Metadata says that a topic is new. The first answer about it has its leader, where Kafka answers
  LEADER_NOT_AVAILABLE, and a tagged field: `odradek produce` and our clients then say that the
  first record has created it.
- A topic without name and id is refused alone. Kafka answers UNKNOWN_SERVER_ERROR for the whole
  request.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import reachable_brokers
from odradek.broker.api.metadata_answer import partition_answer, topic_answer
from odradek.broker.api.needs import Need
from odradek.broker.api.operations import NOT_ASKED
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.topic_rights import check_may_create
from odradek.broker.api.usage import count_mutations
from odradek.broker.cluster.image import TopicImage
from odradek.broker.cluster.new_topic import check_name
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC, TOPIC
from odradek.protocol.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

BY_ID_FROM: Final = 10
NULL_NAME_FROM: Final = 12
NEVER_STRICT: Final = 2**15
"""A topic that Metadata creates counts for `controller_mutation_rate`, and is always created."""
"""Requests may have a null name from version 10 on, answers only from here."""

WITHOUT_OPERATIONS: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""The refusals of a topic that have no authorised operations."""

Found = TopicImage | MetadataResponseTopic
"""A topic that exists, or the refusal of a request for one."""


async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if BY_ID_FROM <= context.api_version < NULL_NAME_FROM and await _names_ids(request):
        refuse = partial(_refusal, context, code=ErrorCode.INVALID_REQUEST)
        refused = await Turns().map(refuse, request.topics or ())
        return MetadataResponse(brokers=(), topics=tuple(refused))
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    found: Iterable[Found]
    created: set[str] = set()
    if wants_all:
        found = await _all_topics(context)
    else:
        found = await _wanted_topics(context, request, created)
    asks_operations = request.include_topic_authorized_operations
    topics = await _describe_topics(context, found, created, asks_operations=asks_operations)
    image = context.core.cluster.image
    of_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker, host, port in reachable_brokers(context, image.brokers)
        ),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=context.access.cluster_operations()
        if of_cluster
        else NOT_ASKED,
    )


async def _all_topics(context: RequestContext) -> list[Found]:
    """Return the topics that the client may see."""
    turns = Turns()
    found: list[Found] = []
    for topic in context.core.cluster.image.topics.values():
        await turns.take()
        if context.access.shows(DESCRIBE_TOPIC, topic.name):
            found.append(topic)
    return found


async def _names_ids(request: MetadataRequest) -> bool:
    """Return True if a topic is named by its id. Versions 10 and 11 have ids in answers only."""
    turns = Turns()
    for topic in request.topics or ():
        await turns.take()
        if topic.name is None or topic.topic_id != ZERO_UUID:
            return True
    return False


async def _wanted_topics(
    context: RequestContext, request: MetadataRequest, created: set[str]
) -> list[Found]:
    """Return the topics of the request, each once: Kafka makes a set of names, and one of ids.

    The names of those that this request creates are added to `created`.
    """
    turns = Turns()
    seen: set[tuple[UUID, str | None]] = set()
    found = []
    for wanted in request.topics or ():
        await turns.take()
        key = wanted.topic_id, wanted.name
        if key not in seen:
            seen.add(key)
            found.append(await _find_topic(context, request, wanted, created))
    return found


async def _describe_topics(
    context: RequestContext, found: Iterable[Found], created: set[str], *, asks_operations: bool
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
        operations = NOT_ASKED
        if asks_operations and each.name is not None:
            operations = context.access.operations(TOPIC, each.name)
        if isinstance(each, TopicImage):
            work = partial(partition_answer, context, each.name)
            partitions = await turns.map(work, tuple(enumerate(each.partitions)))
            each = topic_answer(each, partitions, operations, is_new=each.name in created)
        elif each.error_code not in WITHOUT_OPERATIONS:
            each = replace(each, topic_authorized_operations=operations)
        described.append(each)
    return described


async def _find_topic(
    context: RequestContext,
    request: MetadataRequest,
    wanted: MetadataRequestTopic,
    created: set[str],
) -> Found:
    cluster = context.core.cluster
    if wanted.topic_id != ZERO_UUID:
        by_id = cluster.image.topic_by_id(wanted.topic_id)
        if by_id is None:
            return _refusal(context, wanted, ErrorCode.UNKNOWN_TOPIC_ID)
        if not context.access.allows(DESCRIBE_TOPIC, by_id.name):
            return _refusal(context, wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return by_id
    if wanted.name is None:
        return _refusal(context, wanted, ErrorCode.INVALID_REQUEST)
    # Also for a topic that does not exist: the answer does not say whether it does.
    if not context.access.allows(DESCRIBE_TOPIC, wanted.name):
        return _refusal(context, wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = cluster.image.topics.get(wanted.name)
    if topic is None:
        may_create = context.core.config.auto_create_topics_enable
        try:
            if not (may_create and request.allow_auto_topic_creation):
                check_name(wanted.name)
                return _refusal(context, wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            check_may_create(context, wanted.name)
            topic = await cluster.ensure_topic(
                wanted.name, admit=count_mutations(context, strict_from=NEVER_STRICT)
            )
            created.add(wanted.name)
        except KafkaError as error:
            return _refusal(context, wanted, error.code)
    return topic


def _refusal(
    context: RequestContext, wanted: MetadataRequestTopic, code: ErrorCode
) -> MetadataResponseTopic:
    name = wanted.name
    if name is None and context.api_version < NULL_NAME_FROM:
        name = ""
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=wanted.topic_id, partitions=()
    )


SERVED: Final = (
    ServedApi(
        METADATA,
        metadata,
        (
            Need(DESCRIBE_TOPIC),
            Need(CREATE_CLUSTER, "to create a topic, or of the topic"),
            Need(CREATE_TOPIC, "to create it, or of the cluster"),
        ),
    ),
)
