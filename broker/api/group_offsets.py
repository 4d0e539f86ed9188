"""Offsets of groups: OffsetCommit, key 8, versions 2-10; OffsetFetch, key 9, 1-10.

Behaviour: an offset is acknowledged when it is on disk. An offset that was sent in a transaction is
visible once the transaction has committed; until it ends, OffsetFetch with require_stable answers
UNSTABLE_OFFSET_COMMIT for its partition (KIP-447). A group that is named several times is answered
each time. A member of the new group protocol sends its epoch: STALE_MEMBER_EPOCH if that is another
one, except for a commit of partitions that it has owned since its epoch (KIP-1251).

Versions: OffsetCommit and OffsetFetch 10 name topics by id. OffsetCommit 2-4 may ask for a
retention time; 9 knows GROUP_ID_NOT_FOUND, older versions get ILLEGAL_GENERATION, and members of
the new group protocol UNSUPPORTED_VERSION. OffsetFetch 1 has its errors in the partitions, 2-7 have
one for all, 8 has many groups with one each, 9 names the member; a null list of topics asks for
all.

Differs from Kafka: asked for all offsets of a group, stable, we also name partitions whose first
offset is pending. A group id has at most 1 KiB. More than 1,000 offsets are stored in parts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.group.requests import Claim, Committing, FetchedOffset, expiry_ms
from odradek.broker.group.store import StoredOffset
from odradek.broker.partitions.barrier import read_barrier
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.turns import Turns
from odradek.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
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
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

COMMIT_BY_ID_FROM: Final = 10
COMMIT_GROUP_NOT_FOUND_FROM: Final = 9
COMMIT_MEMBER_EPOCHS_FROM: Final = 9
FETCH_BY_ID_FROM: Final = 10
FETCH_MANY_FROM: Final = 8
FETCH_ONE_ERROR_FROM: Final = 2
OFFSETS_AT_ONCE: Final = 1_000
"""The number of offsets that are stored, or fetched, between two checkpoints."""
PARTITIONS_AT_ONCE: Final = 100
"""The number of partitions of a request that are read between two looks at the clock of a turn."""
COMMIT_STEPS: Final = 5
"""The cost of storing one offset, in steps of a turn."""
FETCH_STEPS: Final = 3
"""The cost of one group, in steps of a turn, besides its offsets."""

Codes = Mapping[TopicPartition, ErrorCode]


# OffsetCommit


async def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    turns = Turns()
    names = await turns.map(partial(_commit_name, context), request.topics)
    wanted: dict[TopicPartition, StoredOffset] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    now_ms = context.core.clock.wall_ms()
    expires_ms = expiry_ms(now_ms, request.retention_time_ms)
    new = tuple.__new__  # half the time of the classes themselves
    for topic, name in zip(request.topics, names, strict=True):
        for start in range(0, len(topic.partitions), PARTITIONS_AT_ONCE):
            some_partitions = topic.partitions[start : start + PARTITIONS_AT_ONCE]
            await turns.take(len(some_partitions))
            found = context.core.cluster.image.topics.get(name)
            count = 0 if found is None else len(found.partitions)
            topic_id = ZERO_UUID if found is None else found.topic_id
            for each in some_partitions:
                index, metadata = each.partition_index, each.committed_metadata or ""
                partition = new(TopicPartition, (name, index))
                if not 0 <= index < count:
                    codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
                stored = offset, leader_epoch, metadata, now_ms, expires_ms, topic_id
                wanted[partition] = new(StoredOffset, stored)
    has_unknown = bool(codes)
    claim = Claim(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
    )
    for some in some_at_a_time(wanted):
        await turns.take(len(some) * COMMIT_STEPS)
        committing = Committing(
            group_id=request.group_id,
            claim=claim,
            offsets=some,
            knows_member_epochs=context.api_version >= COMMIT_MEMBER_EPOCHS_FROM,
        )
        try:
            await context.core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
            codes.update(await context.core.groups.commit_offsets(committing))
        except KafkaError as error:
            codes.update(dict.fromkeys(some, _commit_code(error.code, context.api_version)))
    refused = codes if any(codes.values()) else None
    topics = []
    for topic, name in zip(request.topics, names, strict=True):
        await turns.take()
        topics.append(await _commit_result(context, topic, name, refused, turns))
    if has_unknown:
        topics = await _unknown_first(topics, names, wanted, turns)
    return OffsetCommitResponse(topics=tuple(topics))


async def _unknown_first(
    topics: Iterable[OffsetCommitResponseTopic],
    names: Iterable[str],
    known: Collection[TopicPartition],
    turns: Turns,
) -> list[OffsetCommitResponseTopic]:
    """Return results in Kafka's order: unknown partitions, and the topics with one, come first."""
    first: list[OffsetCommitResponseTopic] = []
    others: list[OffsetCommitResponseTopic] = []
    for topic, name in zip(topics, names, strict=True):
        unknown: list[OffsetCommitResponsePartition] = []
        stored: list[OffsetCommitResponsePartition] = []
        for each in topic.partitions:
            await turns.take()
            is_known = TopicPartition(name, each.partition_index) in known
            (stored if is_known else unknown).append(each)
        ordered = replace(topic, partitions=(*unknown, *stored))
        (first if unknown else others).append(ordered)
    return first + others


def some_at_a_time(
    offsets: Mapping[TopicPartition, StoredOffset],
) -> Iterator[Mapping[TopicPartition, StoredOffset]]:
    """Cut a commit into parts that are checked and appended without a checkpoint.

    Each partition is answered for itself, so the parts may have different fates. Without offsets
    there is one empty part: the commit is checked nevertheless.
    """
    if len(offsets) <= OFFSETS_AT_ONCE:
        yield offsets
        return
    left = iter(offsets.items())
    while some := dict(islice(left, OFFSETS_AT_ONCE)):
        yield some


def _commit_name(context: RequestContext, topic: OffsetCommitRequestTopic) -> str:
    """Return the topic's name; for an unknown id "", which no topic has."""
    if context.api_version < COMMIT_BY_ID_FROM:
        return topic.name
    return _name_of(context, topic.topic_id)


def _name_of(context: RequestContext, topic_id: UUID) -> str:
    found = context.core.cluster.image.topic_by_id(topic_id)
    return "" if found is None else found.name


def _commit_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.GROUP_ID_NOT_FOUND and version < COMMIT_GROUP_NOT_FOUND_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    return code


async def _commit_result(
    context: RequestContext,
    topic: OffsetCommitRequestTopic,
    name: str,
    codes: Codes | None,
    turns: Turns,
) -> OffsetCommitResponseTopic:
    """Return the result of one topic. `codes`: of all partitions; None if all are stored."""
    is_unknown_id = not name and context.api_version >= COMMIT_BY_ID_FROM

    def result(each: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        index = each.partition_index
        if codes is None:
            return _stored(index)
        code = codes[tuple.__new__(TopicPartition, (name, index))]
        return OffsetCommitResponsePartition(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else code,
        )

    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(await turns.map(result, topic.partitions)),
    )


@lru_cache(10 * OFFSETS_AT_ONCE)  # most answers have the same ones
def _stored(index: int) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=ErrorCode.NONE)


# OffsetFetch


@dataclass(frozen=True, slots=True)
class FetchedTopic:
    """One topic of an answer, by name or by id, before it has the form of a version."""

    name: str
    topic_id: UUID
    offsets: Sequence[tuple[int, FetchedOffset]]


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
        fetched = await _fetch(
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
    """Return an answer for each group that is named. A group named again is looked up once."""
    item_count = 0
    for group in request.groups:
        await turns.take(FETCH_STEPS)
        item_count += 1 if group.topics is not None else _offset_count(context, group.group_id)
    await context.expect(item_count)
    known: dict[str, tuple[OffsetFetchResponseGroup, int]] = {}
    found = []
    whole_bytes = 0
    for group in request.groups:
        await turns.take(FETCH_STEPS)
        known_one = known.get(group.group_id) if group.topics is None else None
        if known_one is None:
            fetched = await _fetch_group(context, request, group, turns)
            known_one = fetched, await _metadata_bytes(fetched.topics, turns)
            if group.topics is None:
                known[group.group_id] = known_one
        found.append(known_one[0])
        whole_bytes += known_one[1]
    await context.expect(0, extra_bytes=whole_bytes)
    return found


def _offset_count(context: RequestContext, group_id: str) -> int:
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
        context.core.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
        fetched = await _fetch(
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
    return _name_of(context, topic.topic_id)


async def _prove_lead(context: RequestContext, group_id: str) -> None:
    """Wait until it is certain that this broker still coordinates a group. Raises KafkaError.

    A processor that got an old position from a coordinator which was cut off would process records
    twice.
    """
    where = CONSUMER_OFFSETS_TOPIC, context.core.groups.partition_for(group_id)
    try:
        await read_barrier(context.core.partitions.get(*where))
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error


async def _fetch(
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
    partitions = await turns.distinct(
        TopicPartition(name, index) for name, _, indexes in asked for index in indexes
    )
    if len(partitions) <= OFFSETS_AT_ONCE:
        found = groups.fetch_offsets(group_id, partitions, require_stable=require_stable)
    else:
        found = await groups.fetch_many_offsets(
            group_id, partitions, require_stable=require_stable, turns=turns
        )
    unknown = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
    fetched = []
    for name, topic_id, indexes in asked:
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
        if name in topics or context.api_version < FETCH_BY_ID_FROM
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
