"""Offsets of groups: OffsetCommit, key 8, versions 2-10; OffsetFetch, key 9, 1-10; TxnOffsetCommit,
key 28, 0-5.

Behaviour: an offset is answered for when it is on disk. One that was sent in a transaction is seen
by nobody before the transaction has committed; until it ends, OffsetFetch with require_stable
answers UNSTABLE_OFFSET_COMMIT for its partition (KIP-447). TxnOffsetCommit is only taken while the
transaction coordinator says that the group's partition is in the producer's open transaction
(KIP-890), and it is the log that says whether the producer's epoch is still good.

Versions: OffsetCommit and OffsetFetch 10 name topics by id. OffsetCommit 2-4 may ask for a
retention time; 9 knows GROUP_ID_NOT_FOUND, before it was ILLEGAL_GENERATION. OffsetFetch 1 has its
errors in the partitions, 2-7 one for all, 8 has many groups with one each; a null list of topics
asks for all. TxnOffsetCommit 2 knows COORDINATOR_LOAD_IN_PROGRESS, 3 says which member commits, 4
knows TRANSACTION_ABORTABLE, 5 adds the group's partition to the transaction by itself.

Differs from Kafka: asked for all offsets of a group, stable, we also name partitions whose first
offset is pending. A group id has at most 1 KiB.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.transactional import note_opener, tell_refused
from odradek.broker.group.requests import Claim, Committing, FetchedOffset, OffsetToStore
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.group_offsets import (
    OffsetCommitRequest,
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
from odradek.protocol.apis.txn import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

COMMIT_BY_ID_FROM: Final = 10
COMMIT_GROUP_NOT_FOUND_FROM: Final = 9
FETCH_BY_ID_FROM: Final = 10
FETCH_MANY_FROM: Final = 8
FETCH_ONE_ERROR_FROM: Final = 2
TXN_LOADING_FROM: Final = 2
TXN_ABORTABLE_FROM: Final = 4
TXN_ADDS_FROM: Final = 5

Codes = Mapping[TopicPartition, ErrorCode]


# OffsetCommit


async def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    wanted: dict[TopicPartition, OffsetToStore] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        name = _commit_name(context, topic)
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition_index)
            if context.core.cluster.image.has_partition(*partition):
                wanted[partition] = OffsetToStore(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    retention_ms=request.retention_time_ms,
                    topic_id=context.core.cluster.image.topics[name].topic_id,
                )
            else:
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    committing = Committing(
        group_id=request.group_id,
        claim=Claim(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
        ),
        offsets=wanted,
    )
    try:
        await context.core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
        codes.update(await context.core.groups.commit_offsets(committing))
    except KafkaError as error:
        codes.update(dict.fromkeys(wanted, _commit_code(error.code, context.api_version)))
    return OffsetCommitResponse(
        topics=tuple(_commit_result(context, topic, codes) for topic in request.topics)
    )


def _commit_name(context: RequestContext, topic: OffsetCommitRequestTopic) -> str:
    """The topic's name, "" (which no topic has) for an id that nobody knows."""
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


def _commit_result(
    context: RequestContext, topic: OffsetCommitRequestTopic, codes: Codes
) -> OffsetCommitResponseTopic:
    name = _commit_name(context, topic)
    is_known = bool(name) or context.api_version < COMMIT_BY_ID_FROM
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=codes[TopicPartition(name, each.partition_index)]
                if is_known
                else ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for each in topic.partitions
        ),
    )


# OffsetFetch


@dataclass(frozen=True, slots=True)
class FetchedTopic:
    """One topic of an answer, by name or by id, before it has the shape of a version."""

    name: str
    topic_id: UUID
    offsets: Sequence[tuple[int, FetchedOffset]]


async def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= FETCH_MANY_FROM:
        return OffsetFetchResponse(
            groups=tuple(_fetch_group(context, request, each) for each in request.groups)
        )
    topics = request.topics
    asked = None
    if topics is not None:
        asked = [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in topics]
    try:
        fetched = _fetch(context, request.group_id, asked, require_stable=request.require_stable)
    except KafkaError as error:
        return _failed_fetch(context, request, error.code)
    return OffsetFetchResponse(
        topics=tuple(_response_topic(topic) for topic in fetched), error_code=ErrorCode.NONE
    )


def _failed_fetch(
    context: RequestContext, request: OffsetFetchRequest, code: ErrorCode
) -> OffsetFetchResponse:
    if context.api_version >= FETCH_ONE_ERROR_FROM:
        return OffsetFetchResponse(error_code=code)
    failed = FetchedOffset(error=code)
    return OffsetFetchResponse(
        topics=tuple(
            _response_topic(
                FetchedTopic(
                    topic.name, ZERO_UUID, [(index, failed) for index in topic.partition_indexes]
                )
            )
            for topic in request.topics or ()
        )
    )


def _fetch_group(
    context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    asked = None
    if group.topics is not None:
        asked = [
            (_fetch_name(context, topic), topic.topic_id, topic.partition_indexes)
            for topic in group.topics
        ]
    try:
        fetched = _fetch(context, group.group_id, asked, require_stable=request.require_stable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=error.code)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=tuple(_response_topics(topic) for topic in fetched),
        error_code=ErrorCode.NONE,
    )


def _fetch_name(context: RequestContext, topic: OffsetFetchRequestTopics) -> str:
    if context.api_version < FETCH_BY_ID_FROM:
        return topic.name
    return _name_of(context, topic.topic_id)


def _fetch(
    context: RequestContext,
    group_id: str,
    asked: Sequence[tuple[str, UUID, Sequence[int]]] | None,
    *,
    require_stable: bool,
) -> list[FetchedTopic]:
    """Offsets by topic. Raises KafkaError for all of them."""
    groups = context.core.groups
    if asked is None:
        found = groups.fetch_offsets(group_id, None, require_stable=require_stable)
        return _by_topic(context, found)
    partitions = [TopicPartition(name, index) for name, _, indexes in asked for index in indexes]
    found = groups.fetch_offsets(group_id, partitions, require_stable=require_stable)
    unknown = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
    fetched = []
    for name, topic_id, indexes in asked:
        is_unknown = not name and context.api_version >= FETCH_BY_ID_FROM
        offsets = [
            (
                index,
                unknown
                if is_unknown
                else _of_this_topic(context, name, found[TopicPartition(name, index)]),
            )
            for index in indexes
        ]
        fetched.append(FetchedTopic(name, topic_id, offsets))
    return fetched


def _by_topic(
    context: RequestContext, found: Mapping[TopicPartition, FetchedOffset]
) -> list[FetchedTopic]:
    """All that a group has; where topics go by id, those that are there no more cannot be named."""
    by_name: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for (name, index), offset in found.items():
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
    """`fetched`, unless it was stored for a topic that had the name before (KIP-848)."""
    topic = context.core.cluster.image.topics.get(name)
    if topic is None or fetched.topic_id in (ZERO_UUID, topic.topic_id):
        return fetched
    return FetchedOffset()


def _response_topic(topic: FetchedTopic) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=tuple(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=fetched.offset,
                committed_leader_epoch=fetched.leader_epoch,
                metadata=fetched.metadata,
                error_code=fetched.error,
            )
            for index, fetched in topic.offsets
        ),
    )


def _response_topics(topic: FetchedTopic) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=fetched.offset,
                committed_leader_epoch=fetched.leader_epoch,
                metadata=fetched.metadata,
                error_code=fetched.error,
            )
            for index, fetched in topic.offsets
        ),
    )


# TxnOffsetCommit


async def txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    image = context.core.cluster.image
    wanted: dict[TopicPartition, OffsetToStore] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if image.has_partition(*partition):
                wanted[partition] = OffsetToStore(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    topic_id=image.topics[topic.name].topic_id,
                )
            else:
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer = ProducerIdAndEpoch(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )
    try:
        if wanted:
            codes.update(await _commit_in_transaction(context, request, producer, wanted))
            context.saw(request.transactional_id, producer)
    except KafkaError as error:
        what = f"storing offsets of {request.group_id!r}"
        tell_refused(context, request.transactional_id, producer, what, error)
        codes.update(dict.fromkeys(wanted, _transaction_code(error.code, context.api_version)))
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


async def _commit_in_transaction(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    producer: ProducerIdAndEpoch,
    offsets: Mapping[TopicPartition, OffsetToStore],
) -> Codes:
    core = context.core
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    await core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, core.groups.partition_for(request.group_id))
    try:
        log = core.partitions.get(*partition)
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{partition} is offline") from error
    if log.has_newer_epoch(producer.producer_id, producer.producer_epoch):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH, f"{partition} has seen a later epoch (KAFKA-19690)"
        )
    if not log.has_open_transaction(producer.producer_id, producer.producer_epoch):
        await _admit(context, request, producer, partition)
    # No checkpoint between what was just verified and the append (KAFKA-14884).
    codes = await core.groups.commit_transaction_offsets(
        Committing(
            group_id=request.group_id,
            claim=Claim(
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation_id=request.generation_id,
            ),
            offsets=offsets,
        ),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    note_opener(context, log, request.producer_id, request.transactional_id)
    return codes


async def _admit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    producer: ProducerIdAndEpoch,
    partition: TopicPartition,
) -> None:
    """Only the first offsets of a transaction in a partition: the log knows the others."""
    core = context.core
    if context.api_version >= TXN_ADDS_FROM:
        await core.transactions.add_partitions(
            transactional_id=request.transactional_id,
            producer=producer,
            partitions=[partition],
            transaction_version=2,
        )
    if core.config.transaction_partition_verification_enable:
        verified = core.transactions.verify(
            transactional_id=request.transactional_id, producer=producer, partitions=[partition]
        )
        if verified[partition] is not ErrorCode.NONE:
            raise KafkaError(verified[partition], f"{partition} is not in the transaction")


def _transaction_code(code: ErrorCode, version: int) -> ErrorCode:
    """A refusal as a producer of this version understands it; it never hears PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < TXN_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < TXN_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
