"""The batches of a Produce request, and the leaders of their partitions."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.request_batches import Batch
from odradek.broker.security.access import refusal
from odradek.broker.security.rights import TOPIC, WRITE_ID, WRITE_TOPIC
from odradek.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.batch import HEADER_BYTES, Codec, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.plain_produce import TOPIC_IDS_FROM
from odradek.protocol.state_topics import INTERNAL_TOPICS

ADMIN_CLIENT: Final = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""


def name_of(context: RequestContext, asked: TopicProduceData) -> tuple[str, KafkaError | None]:
    """Return the name of a topic, and an error if no topic has its id."""
    if context.api_version < TOPIC_IDS_FROM:
        name = asked.name
        return name, None if context.access.allows(WRITE_TOPIC, name) else refusal(TOPIC)
    topic = context.core.cluster.image.topic_by_id(asked.topic_id)
    if topic is None:
        return asked.name, _no_topic_has(asked.topic_id)
    name = topic.name
    return name, None if context.access.allows(WRITE_TOPIC, name) else refusal(TOPIC)


def _no_topic_has(topic_id: UUID) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has id {topic_id}.")


def batch_of(
    context: RequestContext,
    topic: str,
    topic_id: UUID,
    data: PartitionProduceData,
    error: KafkaError | None,
) -> Batch:
    """Return a batch with the leader of its partition, or with the error that refuses it."""
    records = memoryview(data.records or b"")
    batch = Batch(topic=topic, index=data.index, records=records, error=error)
    if len(records) >= HEADER_BYTES:
        batch.header = read_header(records)
        batch.is_transactional = batch.header.is_transactional
    if error is None:
        _look_up(context, batch, topic_id)
    return batch


def _look_up(context: RequestContext, batch: Batch, topic_id: UUID) -> None:
    try:
        batch.leader = context.core.partitions.leader(batch.topic, batch.index)
        # A topic made anew leads under its name before the image that names it is the current one.
        if context.api_version >= TOPIC_IDS_FROM and batch.leader.log.topic_id != topic_id:
            raise _no_topic_has(topic_id)
        if batch.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{batch.topic} is internal; the broker writes it.",
            )
        if batch.header is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "There is no record batch.")
        if context.api_version < 7 and batch.header.codec == Codec.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later."
            )
    except KafkaError as error:
        batch.error = error.with_traceback(None)


async def check_may_commit(
    context: RequestContext, request: ProduceRequest, batches: Iterable[Batch], turns: Turns
) -> None:
    """Raise KafkaError for transactional batches of a client that may not use the id.

    The id alone needs no right: a producer may send what is in no transaction. A transactional
    batch without an id is refused with the codes that it has where there is no authoriser.
    """
    transactional_id = request.transactional_id
    if transactional_id is None or context.access.shows(WRITE_ID, transactional_id):
        return
    for batch in batches:
        await turns.take()
        if batch.is_transactional:
            context.access.check(WRITE_ID, transactional_id)
