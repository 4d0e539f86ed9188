"""OffsetFetch, key 9, versions 1-10.

Behaviour: returns the offsets that a group has stored. An offset that was sent in a transaction is
visible once the transaction has committed; until it ends, a request with require_stable gets
UNSTABLE_OFFSET_COMMIT for its partition (KIP-447). A group that is named several times is answered
each time. A member of the new group protocol sends its epoch: STALE_MEMBER_EPOCH if that is another
one.

Versions: 1 has its errors in the partitions, 2-7 have one for all, 8 has many groups with one each,
9 names the member, 10 names topics by id; a null list of topics asks for all.

Differs from Kafka:

- All stable offsets of a group name those whose first one is pending, too. Asked for all
  partitions, Kafka returns those that have an offset already and leaves out those whose first one
  is pending. It calls them unstable if they are asked for by name.
- An offset is fetched with an epoch and without a member. The answer is UNKNOWN_MEMBER_ID. Kafka
  answers UNKNOWN_SERVER_ERROR.
- OffsetFetch returns no offset of a deleted topic. Kafka returns it until its coordinator has
  removed it.
"""

from collections.abc import Hashable, Sequence
from typing import Final

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.api.fetched_offsets import FETCH_BY_ID_FROM, FetchedTopic, fetched_by_topic
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.group.member_requests import FetchedOffset
from odradek.broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

FETCH_MANY_FROM: Final = 8
FETCH_ONE_ERROR_FROM: Final = 2
FETCH_STEPS: Final = 3
"""The cost of one group, in steps of a turn, besides its offsets."""


async def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    turns = Turns()
    if context.api_version >= FETCH_MANY_FROM:
        return OffsetFetchResponse(groups=tuple(await _fetch_groups(context, request, turns)))
    topics = request.topics
    if topics is None:
        await context.expect(_offset_count(context, request.group_id))
    asked = None
    if topics is not None:
        asked = [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in topics]
    try:
        context.access.check(DESCRIBE_GROUP, request.group_id)
        fetched = await fetched_by_topic(
            context, request.group_id, asked, require_stable=request.require_stable, turns=turns
        )
    except KafkaError as error:
        return await _failed_fetch(context, request, error.code, turns)
    found = []
    for topic in fetched:
        await turns.take()
        found.append(await _response_topic(topic, turns))
    await context.expect(0, extra_bytes=await _metadata_bytes(found, turns))
    return OffsetFetchResponse(topics=tuple(found), error_code=ErrorCode.NONE)


async def _metadata_bytes(
    topics: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics], turns: Turns
) -> int:
    """Return the size that the metadata of these offsets has in the answer: up to 4 KB each."""
    size_bytes = 0
    for topic in topics:
        await turns.take()
        for each in topic.partitions:
            await turns.take()
            size_bytes += text_bytes(each.metadata)
    return size_bytes


async def _failed_fetch(
    context: RequestContext, request: OffsetFetchRequest, code: ErrorCode, turns: Turns
) -> OffsetFetchResponse:
    if context.api_version >= FETCH_ONE_ERROR_FROM:
        return OffsetFetchResponse(error_code=code)
    failed = FetchedOffset(error=code)
    topics = []
    for topic in request.topics or ():
        await turns.take()
        offsets = await turns.map(lambda index: (index, failed), topic.partition_indexes)
        topics.append(await _response_topic(FetchedTopic(topic.name, ZERO_UUID, offsets), turns))
    return OffsetFetchResponse(topics=tuple(topics))


async def _fetch_groups(
    context: RequestContext, request: OffsetFetchRequest, turns: Turns
) -> list[OffsetFetchResponseGroup]:
    """Return an answer for each group that is named.

    All offsets of a group that is named again are looked up once, for the same member.
    """
    item_count = 0
    for group in request.groups:
        await turns.take(FETCH_STEPS)
        item_count += 1 if group.topics is not None else _offset_count(context, group.group_id)
    await context.expect(item_count)
    known: dict[Hashable, tuple[OffsetFetchResponseGroup, int]] = {}
    found = []
    whole_bytes = 0
    for group in request.groups:
        await turns.take(FETCH_STEPS)
        named = group.group_id, group.member_id, group.member_epoch
        known_one = known.get(named) if group.topics is None else None
        if known_one is None:
            fetched = await _fetch_group(context, request, group, turns)
            known_one = fetched, await _metadata_bytes(fetched.topics, turns)
            if group.topics is None:
                known[named] = known_one
        found.append(known_one[0])
        whole_bytes += known_one[1]
    await context.expect(0, extra_bytes=whole_bytes)
    return found


def _offset_count(context: RequestContext, group_id: str) -> int:
    """Return the most items that the answer for a whole group has."""
    # A refusal must not depend on what is stored: the size of a group would show that it exists.
    if not context.access.shows(DESCRIBE_GROUP, group_id):
        return 1
    try:
        return 1 + context.core.groups.offset_count(group_id)
    except KafkaError:
        return 1


async def _fetch_group(
    context: RequestContext,
    request: OffsetFetchRequest,
    group: OffsetFetchRequestGroup,
    turns: Turns,
) -> OffsetFetchResponseGroup:
    asked = None
    if group.topics is not None:
        asked = await turns.map(
            lambda topic: (_fetch_name(context, topic), topic.topic_id, topic.partition_indexes),
            group.topics,
        )
    try:
        context.access.check(DESCRIBE_GROUP, group.group_id)
        context.core.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
        fetched = await fetched_by_topic(
            context, group.group_id, asked, require_stable=request.require_stable, turns=turns
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=error.code)
    topics = []
    for topic in fetched:
        await turns.take()
        topics.append(await _response_topics(topic, turns))
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=tuple(topics), error_code=ErrorCode.NONE
    )


def _fetch_name(context: RequestContext, topic: OffsetFetchRequestTopics) -> str:
    if context.api_version < FETCH_BY_ID_FROM:
        return topic.name
    return context.core.cluster.image.names.get(topic.topic_id, "")


async def _response_topic(topic: FetchedTopic, turns: Turns) -> OffsetFetchResponseTopic:
    partitions = await turns.map(_response_partition, topic.offsets)
    return OffsetFetchResponseTopic(name=topic.name, partitions=tuple(partitions))


def _response_partition(offset: tuple[int, FetchedOffset]) -> OffsetFetchResponsePartition:
    index, fetched = offset
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.error,
    )


async def _response_topics(topic: FetchedTopic, turns: Turns) -> OffsetFetchResponseTopics:
    partitions = await turns.map(_response_partitions, topic.offsets)
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)
    )


def _response_partitions(offset: tuple[int, FetchedOffset]) -> OffsetFetchResponsePartitions:
    index, fetched = offset
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.error,
    )


SERVED: Final = (
    ServedApi(OFFSET_FETCH, offset_fetch, (Need(DESCRIBE_GROUP), Need(DESCRIBE_TOPIC))),
)
