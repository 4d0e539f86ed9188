"""Topics: create and delete.

CreateTopics, key 19, versions 2-7; DeleteTopics, key 20, versions 1-6.

Behaviour: every topic of a request succeeds or fails on its own, with a sentence that says why. A
topic that is named several times, or by name and by id, fails once (INVALID_REQUEST).
`validate_only` checks everything and changes nothing. The answer is sent when the change is on
disk, so the time-out of the request has no effect.

Versions: CreateTopics 5 answers with the settings, 7 with the topic's id; -1 partitions or replicas
ask for the broker's defaults. DeleteTopics 5 has a sentence for errors, 6 takes ids. From
CreateTopics 6 and DeleteTopics 5 on, a client that is over its `controller_mutation_rate` gets
THROTTLING_QUOTA_EXCEEDED; older requests are served, and their connection waits (KIP-599).

Differs from Kafka:

- Internal topics of clients. A topic that is created with `odradek.internal=true` is internal for
  clients, as `__consumer_offsets` is. Lists and patterns leave it out. It has no other rights.
  Kafka, and earlier versions of Odradek, refuse the setting with INVALID_CONFIG.
- Topic names `a.b` and `a_b` may exist together.
- A topic that is only validated has no id. Kafka chooses one for CreateTopics with `validate_only`,
  returns it, and forgets it.
- A topic that is only validated does not count for `controller_mutation_rate`. In Kafka it does.
- Records of a deleted topic are gone at once.
- The broker's own topics cannot be deleted.
- With `broker.rack` no two replicas of a new partition are in one rack where the racks are enough.
  Kafka places them by stripes.
"""

import logging
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.creation_result import creation_result
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.topic_rights import (
    check_may_create,
    check_may_delete,
    may_see,
    named_and_by_id,
)
from odradek.broker.api.usage import count_mutations
from odradek.broker.cluster.new_topic import WantedTopic
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

LOGGER: Final = logging.getLogger(__name__)

NAMED_TWICE: Final = "Duplicate topic name. The request names this topic more than once."
ID_GIVEN_TWICE: Final = "Duplicate topic id. The request has this topic's id more than once."
NAMED_AND_BY_ID: Final = (
    "The topic name corresponds to the id of another entry. The request has this topic by name and "
    "by id; give it once."
)

CREATE_STRICT_FROM: Final = 6
DELETE_STRICT_FROM: Final = 5
"""The first versions that are refused if the client is over its quota."""
CREATE_STEPS: Final = 50
DELETE_STEPS: Final = 20
"""The cost of one topic, in steps of a turn."""


async def create_topics(
    context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    turns = Turns()
    counts = await turns.distinct(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        if counts[topic.name] == 1:
            await turns.take(CREATE_STEPS + len(topic.assignments) + len(topic.configs))
            results.append(await _create_topic(context, topic, validate_only=request.validate_only))
    results += [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=NAMED_TWICE
        )
        for name in await turns.repeated(counts)
    ]
    return CreateTopicsResponse(topics=tuple(results))


async def _create_topic(
    context: RequestContext, asked: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    wanted = WantedTopic(
        name=asked.name,
        partition_count=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments=tuple([(a.partition_index, a.broker_ids) for a in asked.assignments]),
        configs=tuple([(config.name, config.value) for config in asked.configs]),
    )
    try:
        check_may_create(context, asked.name)
        topic = await context.core.cluster.create_topic(
            wanted,
            validate_only=validate_only,
            admit=count_mutations(context, strict_from=CREATE_STRICT_FROM),
        )
    except KafkaError as error:
        return CreatableTopicResult(
            name=asked.name, error_code=error.code, error_message=error.message
        )
    return creation_result(context, topic, validate_only=validate_only)


async def delete_topics(
    context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    turns = Turns()
    if context.api_version >= 6:
        counts = await turns.distinct((topic.name, topic.topic_id) for topic in request.topics)
    else:
        counts = await turns.distinct((name, ZERO_UUID) for name in request.topic_names)
    results = []
    twice = await named_and_by_id(context, counts, turns)
    for (name, topic_id), count in counts.items():
        await turns.take(DELETE_STEPS)
        topic = twice.get((name, topic_id))
        if topic is not None:
            if topic_id == ZERO_UUID:
                continue  # the answer for the id is that for the topic
            result = DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=NAMED_AND_BY_ID,
            )
        elif count > 1:
            result = DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=NAMED_TWICE if topic_id == ZERO_UUID else ID_GIVEN_TWICE,
            )
        else:
            result = await _delete_topic(context, DeleteTopicState(name=name, topic_id=topic_id))
        results.append(result)
    return DeleteTopicsResponse(responses=tuple(results))


async def _delete_topic(context: RequestContext, asked: DeleteTopicState) -> DeletableTopicResult:
    name = asked.name
    try:
        found = _name_of(context, asked)
        # Without the right to see the topic, its name is not what the answer says about an id.
        if name is None and may_see(context, found):
            name = found
        check_may_delete(context, found)
        name = found
        # The offsets are deleted with their topic, also if the client is gone by now.
        with context.core.cluster.shielded():
            deleted = await context.core.cluster.delete_topic(
                name, admit=count_mutations(context, strict_from=DELETE_STRICT_FROM)
            )
            await _forget_offsets(context, name, deleted.topic_id)
    except KafkaError as error:
        return DeletableTopicResult(
            name=name,
            topic_id=asked.topic_id,
            error_code=_deletion_error(context, error),
            error_message=error.message,
        )
    return DeletableTopicResult(
        name=name, topic_id=deleted.topic_id, error_code=ErrorCode.NONE, error_message=None
    )


async def _forget_offsets(context: RequestContext, topic: str, topic_id: UUID) -> None:
    """Delete the offsets that groups stored for a deleted topic. A failure is only logged."""
    try:
        await context.core.groups.forget_topic(topic, topic_id)
    except KafkaError as error:
        LOGGER.warning("offsets of the deleted topic %s are still stored: %s", topic, error)


def _name_of(context: RequestContext, asked: DeleteTopicState) -> str:
    if asked.topic_id == ZERO_UUID:
        if asked.name is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified. Give one."
            )
        return asked.name
    if asked.name is not None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "You may not specify both topic name and topic id. Give one of them.",
        )
    topic = context.core.cluster.image.topic_by_id(asked.topic_id)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"This server does not host this topic ID. No topic has the id {asked.topic_id}.",
        )
    return topic.name


def _deletion_error(context: RequestContext, error: KafkaError) -> ErrorCode:
    """Return the code of a refused deletion. TOPIC_DELETION_DISABLED came with version 3."""
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED and context.api_version < 3:
        return ErrorCode.INVALID_REQUEST
    return error.code


SERVED: Final = (
    ServedApi(
        CREATE_TOPICS,
        create_topics,
        (
            Need(CREATE_CLUSTER, "or of the topic"),
            Need(CREATE_TOPIC, "or of the cluster"),
            Need(DESCRIBE_TOPIC_CONFIGS, "for the settings in the answer"),
        ),
    ),
    ServedApi(
        DELETE_TOPICS,
        delete_topics,
        (
            Need(DELETE_TOPIC, "or of the cluster"),
            Need(DELETE_CLUSTER, "or of the topic"),
            Need(DESCRIBE_TOPIC, "for the name of a topic that is given by its id"),
        ),
    ),
)
