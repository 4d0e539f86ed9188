"""CreateTopics, key 19, versions 2-7; DeleteTopics, key 20, versions 1-6; CreatePartitions, key 37,
versions 0-3.

Behaviour: every topic of a request succeeds or fails for itself, with a sentence that says why. A
topic that is named twice fails twice (INVALID_REQUEST) and nothing is done. `validate_only` checks
everything and changes nothing. An answer is sent when the change is on disk, so the time-out of the
request plays no part.

Versions: CreateTopics 5 answers with the settings, 7 with the topic's id; -1 partitions or replicas
ask for the broker's defaults. DeleteTopics 5 has a sentence for errors, 6 takes ids.

Differs from Kafka: settings that are not honoured are INVALID_CONFIG (`topic_config.py` lists the
others); a topic has at most 10,000 partitions; "a.b" and "a_b" may live side by side; internal
topics can be neither deleted nor grown. Records of a deleted topic are gone at once.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

from odradek.broker.api.configs import topic_configs
from odradek.broker.api.context import RequestContext
from odradek.broker.cluster.image import TopicImage
from odradek.broker.cluster.new_topic import NewTopic
from odradek.protocol.apis.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

T = TypeVar("T")

LOGGER: Final = logging.getLogger(__name__)

NAMED_TWICE: Final = "Duplicate topic name. The request names this topic more than once."
ID_GIVEN_TWICE: Final = "Duplicate topic id. The request has this topic's id more than once."


async def create_topics(
    context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    repeated = _repeated(topic.name for topic in request.topics)
    results = [
        await _create_topic(context, topic, repeated, validate_only=request.validate_only)
        for topic in request.topics
    ]
    return CreateTopicsResponse(topics=tuple(results))


async def _create_topic(
    context: RequestContext, asked: CreatableTopic, repeated: set[str], *, validate_only: bool
) -> CreatableTopicResult:
    wanted = NewTopic(
        name=asked.name,
        partition_count=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments=tuple((a.partition_index, a.broker_ids) for a in asked.assignments),
        configs=tuple((config.name, config.value) for config in asked.configs),
    )
    try:
        if asked.name in repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
        topic = await context.core.cluster.create_topic(wanted, validate_only=validate_only)
    except KafkaError as error:
        return CreatableTopicResult(
            name=asked.name, error_code=error.code, error_message=error.message
        )
    return _created(context, topic, validate_only=validate_only)


def _created(
    context: RequestContext, topic: TopicImage, *, validate_only: bool
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if validate_only else topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=tuple(
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.config_source,
                is_sensitive=config.is_sensitive,
            )
            for config in topic_configs(topic, context.core.config)
        ),
    )


async def delete_topics(
    context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    if context.api_version >= 6:
        asked = request.topics
    else:
        asked = tuple(
            DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names
        )
    keys = [(topic.name, topic.topic_id) for topic in asked]
    repeated = _repeated(keys)
    results = [
        await _delete_topic(context, topic, is_repeated=key in repeated)
        for topic, key in zip(asked, keys, strict=True)
    ]
    return DeleteTopicsResponse(responses=tuple(results))


async def _delete_topic(
    context: RequestContext, asked: DeleteTopicState, *, is_repeated: bool
) -> DeletableTopicResult:
    name = asked.name
    try:
        if is_repeated:
            given_twice = NAMED_TWICE if asked.topic_id == ZERO_UUID else ID_GIVEN_TWICE
            raise KafkaError(ErrorCode.INVALID_REQUEST, given_twice)
        name = _name_of(context, asked)
        deleted = await context.core.cluster.delete_topic(name)
    except KafkaError as error:
        return DeletableTopicResult(
            name=name,
            topic_id=asked.topic_id,
            error_code=_deletion_error(context, error),
            error_message=error.message,
        )
    await _forget_offsets(context, name)
    return DeletableTopicResult(
        name=name, topic_id=deleted.topic_id, error_code=ErrorCode.NONE, error_message=None
    )


async def _forget_offsets(context: RequestContext, topic: str) -> None:
    """The topic is gone whatever becomes of the offsets that groups have stored for it."""
    try:
        await context.core.groups.forget_topic(topic)
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
    """TOPIC_DELETION_DISABLED came with version 3; older clients do not know it."""
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED and context.api_version < 3:
        return ErrorCode.INVALID_REQUEST
    return error.code


async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    repeated = _repeated(topic.name for topic in request.topics)
    results = [
        await _create_partitions(context, topic, repeated, validate_only=request.validate_only)
        for topic in request.topics
    ]
    return CreatePartitionsResponse(results=tuple(results))


async def _create_partitions(
    context: RequestContext,
    asked: CreatePartitionsTopic,
    repeated: set[str],
    *,
    validate_only: bool,
) -> CreatePartitionsTopicResult:
    assignments = asked.assignments
    try:
        if asked.name in repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NAMED_TWICE)
        await context.core.cluster.create_partitions(
            asked.name,
            asked.count,
            None if assignments is None else [a.broker_ids for a in assignments],
            validate_only=validate_only,
        )
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=asked.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE)


def _repeated(keys: Iterable[T]) -> set[T]:
    return {key for key, count in Counter(keys).items() if count > 1}
