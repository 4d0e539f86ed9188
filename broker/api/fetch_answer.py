"""Answers of Fetch, made of the partitions that were read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.leaders import NAMED_FOR, LeaderHints
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_polling import to_failed
from odradek.broker.partitions.fetch_readings import NOT_FOUND, Reading
from odradek.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.errors import KafkaError

BY_ID_FROM: Final = 13
"""The first version that names topics by id."""

Listed = tuple[str, UUID, Reading, PartitionData]
"""A partition of an answer: the name of its topic, or its id, and what is returned."""


async def refuse_all(
    context: RequestContext, request: FetchRequest, error: KafkaError
) -> FetchResponse:
    """Return an answer that refuses the whole request: up to version 12 in each partition, too."""
    topics = () if context.api_version >= BY_ID_FROM else request.topics
    turns = Turns()
    responses = []
    for topic in topics:
        await turns.take()
        refused = await turns.map(lambda wanted: to_failed(None, wanted, error), topic.partitions)
        responses.append(FetchableTopicResponse(topic=topic.topic, partitions=tuple(refused)))
    return FetchResponse(error_code=error.code, responses=tuple(responses))


async def in_order(listed: Iterable[Listed]) -> list[Listed]:
    """Return the partitions of an answer in its order: as in Kafka, what was not found is last."""
    turns = Turns()
    ranked: tuple[list[Listed], ...] = ([], [], [])
    for each in listed:
        await turns.take()
        ranked[NOT_FOUND.get(each[3].error_code, 0)].append(each)
    return list(chain(*ranked))


async def answer(
    context: RequestContext, session_id: int, listed: Sequence[Listed]
) -> FetchResponse:
    """Return an answer. The partitions of a topic are together if nothing is between them."""
    turns = Turns()
    hints = LeaderHints(context)
    topics: list[tuple[str, UUID, list[PartitionData]]] = []
    for name, topic_id, reading, data in listed:
        await turns.take()
        if not topics or topics[-1][:2] != (name, topic_id):
            topics.append((name, topic_id, []))
        topics[-1][2].append(_with_leader(hints, reading, data))
    responses = []
    for name, topic_id, partitions in topics:
        await turns.take()
        responses.append(
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=tuple(partitions))
        )
    return _response(session_id, responses, hints)


def _with_leader(hints: LeaderHints, reading: Reading, data: PartitionData) -> PartitionData:
    if data.error_code not in NAMED_FOR:
        return data
    leader, epoch = hints.leader_and_epoch(data.error_code, reading.topic, data.partition_index)
    return replace(data, current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch))


def _response(
    session_id: int, topics: Iterable[FetchableTopicResponse], hints: LeaderHints
) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, (host, port, rack) in hints.endpoints.items()
        ),
    )
