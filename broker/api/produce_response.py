"""Answers of Produce, made of the batches of a request."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import LeaderHints
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.request_batches import NO_OFFSET, Batch
from odradek.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.errors import ErrorCode, with_phrase

TOPIC_STEPS: Final = 2
"""The cost of looking up one topic, or of answering it, without its partitions."""


async def response_of(
    context: RequestContext, request: ProduceRequest, batches: Sequence[Batch]
) -> ProduceResponse:
    turns = Turns()
    hints = LeaderHints(context)
    named = 0
    for batch in batches:
        await turns.take()
        named += len(batch.refused_records)
    await context.expect(named)
    answers = iter(await turns.map(partial(partition_response, hints), batches))
    topics = []
    for topic in request.topic_data:
        await turns.take(TOPIC_STEPS)
        topics.append(topic_response(answers, topic))
    return with_endpoints(topics, hints)


def with_endpoints(topics: Iterable[TopicProduceResponse], hints: LeaderHints) -> ProduceResponse:
    return ProduceResponse(
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, (host, port, rack) in hints.endpoints.items()
        ),
    )


def topic_response(
    answers: Iterator[PartitionProduceResponse], topic: TopicProduceData
) -> TopicProduceResponse:
    """Return the answer for a topic. `answers` continues with its partitions, in their order."""
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=tuple(islice(answers, len(topic.partition_data))),
    )


def partition_response(hints: LeaderHints, batch: Batch) -> PartitionProduceResponse:
    if batch.error is not None:
        leader, epoch = hints.leader_and_epoch(batch.error.code, batch.topic, batch.index)
        return PartitionProduceResponse(
            index=batch.index,
            error_code=batch.error.code,
            base_offset=NO_OFFSET,
            log_start_offset=batch.log_start_offset,
            record_errors=_record_errors(batch),
            error_message=with_phrase(batch.error.code, batch.error.message) or None,
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        )
    assert batch.appended is not None
    return PartitionProduceResponse(
        index=batch.index,
        error_code=ErrorCode.NONE,
        base_offset=batch.appended.base_offset,
        log_append_time_ms=batch.appended.log_append_time_ms,
        log_start_offset=batch.appended.log_start_offset,
    )


def _record_errors(batch: Batch) -> tuple[BatchIndexAndErrorMessage, ...]:
    """Return the records for which a batch is refused."""
    return tuple(
        [
            BatchIndexAndErrorMessage(batch_index=each.index, batch_index_error_message=each.why)
            for each in batch.refused_records
        ]
    )
