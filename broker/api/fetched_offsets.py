"""Stored offsets of a group by topic, before they have the form of a version of OffsetFetch."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.environment.turns import Turns
from odradek.broker.group.member_requests import FetchedOffset
from odradek.broker.security.rights import DESCRIBE_TOPIC
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

FETCH_BY_ID_FROM: Final = 10
OFFSETS_AT_ONCE: Final = 1_000
"""The number of offsets that are stored, or fetched, between two checkpoints."""


@dataclass(frozen=True, slots=True)
class FetchedTopic:
    """One topic of an answer, by name or by id, before it has the form of a version."""

    name: str
    topic_id: UUID
    offsets: Sequence[tuple[int, FetchedOffset]]


async def _prove_lead(context: RequestContext, group_id: str) -> None:
    """Wait until it is certain that this broker still coordinates a group. Raises KafkaError.

    A processor that got an old position from a coordinator which was cut off would process records
    twice.
    """
    where = CONSUMER_OFFSETS_TOPIC, context.core.groups.partition_for(group_id)
    try:
        await context.core.partitions.leader(*where).prove_lead()
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error


async def fetched_by_topic(
    context: RequestContext,
    group_id: str,
    asked: Sequence[tuple[str, UUID, Sequence[int]]] | None,
    *,
    require_stable: bool,
    turns: Turns,
) -> list[FetchedTopic]:
    """Return offsets by topic. Raises KafkaError for all of them together."""
    groups = context.core.groups
    if require_stable:
        await _prove_lead(context, group_id)
    if asked is None:
        found = await groups.fetch_many_offsets(
            group_id, None, require_stable=require_stable, turns=turns
        )
        return await _by_topic(context, found, turns)
    hidden = set()
    for name, _, _ in asked:
        await turns.take()
        if name and not context.access.allows(DESCRIBE_TOPIC, name):
            hidden.add(name)
    partitions = await turns.distinct(
        TopicPartition(name, index)
        for name, _, indexes in asked
        if name not in hidden
        for index in indexes
    )
    if len(partitions) <= OFFSETS_AT_ONCE:
        found = groups.fetch_offsets(group_id, partitions, require_stable=require_stable)
    else:
        found = await groups.fetch_many_offsets(
            group_id, partitions, require_stable=require_stable, turns=turns
        )
    unknown = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
    refused = FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    fetched = []
    for name, topic_id, indexes in asked:
        if name in hidden:
            offsets = await turns.map(lambda index: (index, refused), indexes)
            fetched.append(FetchedTopic(name, topic_id, offsets))
            continue
        is_unknown = not name and context.api_version >= FETCH_BY_ID_FROM
        offsets = []
        for index in indexes:
            await turns.take()
            stored = found[TopicPartition(name, index)]
            own = unknown if is_unknown else _of_this_topic(context, name, stored)
            offsets.append((index, own))
        fetched.append(FetchedTopic(name, topic_id, offsets))
    return fetched


async def _by_topic(
    context: RequestContext, found: Mapping[TopicPartition, FetchedOffset], turns: Turns
) -> list[FetchedTopic]:
    """Return all offsets of a group. An answer by topic id leaves out topics that are gone."""
    by_name: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for (name, index), offset in found.items():
        await turns.take()
        own = _of_this_topic(context, name, offset)
        if own is offset:
            by_name.setdefault(name, []).append((index, own))
    topics = context.core.cluster.image.topics
    return [
        FetchedTopic(name, topics[name].topic_id if name in topics else ZERO_UUID, offsets)
        for name, offsets in by_name.items()
        if (name in topics or context.api_version < FETCH_BY_ID_FROM)
        and context.access.shows(DESCRIBE_TOPIC, name)
    ]


def _of_this_topic(context: RequestContext, name: str, fetched: FetchedOffset) -> FetchedOffset:
    """Return `fetched`, or no offset if it was stored for an earlier topic of that name.

    The image has every topic that had offsets when this broker became the group's coordinator. A
    topic that is not there is deleted, and the next one of its name may come any moment.
    """
    topic = context.core.cluster.image.topics.get(name)
    if fetched.topic_id == ZERO_UUID or (topic and fetched.topic_id == topic.topic_id):
        return fetched
    return FetchedOffset(error=fetched.error)
