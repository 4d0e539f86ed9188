"""OffsetCommit, key 8, versions 2-10.

Behaviour: an offset is acknowledged when it is on disk. A member of the new group protocol sends
its epoch: STALE_MEMBER_EPOCH if that is another one, except for a commit of partitions that it has
owned since its epoch (KIP-1251).

Versions: 2-4 may ask for a retention time; 9 knows GROUP_ID_NOT_FOUND, older versions get
ILLEGAL_GENERATION, and members of the new group protocol UNSUPPORTED_VERSION; 10 names topics by
id.

Differs from Kafka:

- More than 1,000 offsets of one OffsetCommit are stored in parts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.group.member_requests import Claim, Committing, expiry_ms
from odradek.broker.group.store import StoredOffset
from odradek.broker.security.rights import READ_GROUP, READ_TOPIC
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

COMMIT_BY_ID_FROM: Final = 10
COMMIT_GROUP_NOT_FOUND_FROM: Final = 9
COMMIT_MEMBER_EPOCHS_FROM: Final = 9
OFFSETS_AT_ONCE: Final = 1_000
"""The number of offsets that are stored, or fetched, between two checkpoints."""
PARTITIONS_AT_ONCE: Final = 100
"""The number of partitions of a request that are read between two looks at the clock of a turn."""
COMMIT_STEPS: Final = 5
"""The cost of storing one offset, in steps of a turn."""

Codes = Mapping[TopicPartition, ErrorCode]


async def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    turns = Turns()
    if not context.access.allows(READ_GROUP, request.group_id):
        return await _refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, turns)
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
            if name and not context.access.allows(READ_TOPIC, name):
                for each in some_partitions:
                    where = TopicPartition(name, each.partition_index)
                    codes[where] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
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


async def _refuse(
    request: OffsetCommitRequest, code: ErrorCode, turns: Turns
) -> OffsetCommitResponse:
    """Refuse every offset of a request."""

    def result(each: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)

    topics = []
    for topic in request.topics:
        await turns.take()
        partitions = tuple(await turns.map(result, topic.partitions))
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
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
    return context.core.cluster.image.names.get(topic.topic_id, "")


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
            return _success(index)
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
def _success(index: int) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=ErrorCode.NONE)


SERVED: Final = (ServedApi(OFFSET_COMMIT, offset_commit, (Need(READ_GROUP), Need(READ_TOPIC))),)
