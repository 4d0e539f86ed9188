"""TxnOffsetCommit, key 28, versions 0-5.

Behaviour: keeps offsets until the producer's transaction ends. The group's partition must be in the
producer's open transaction, as for a batch of records (KIP-890, `txn/admission.py`).

Versions: 2 knows COORDINATOR_LOAD_IN_PROGRESS, 3 says which member commits, 4 knows
TRANSACTION_ABORTABLE, 5 adds the group's partition to the transaction by itself.

Differs from Kafka:

- Offsets that are sent in a transaction belong to a topic, not to its name. A client of ours sends
  the ids of the topics, in a tagged field that Kafka ignores. An offset of a topic that was deleted
  and made anew is UNKNOWN_TOPIC_ID.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.offset_commit import COMMIT_STEPS, Codes, some_at_a_time
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.transactional import (
    log_refusal,
    ms_until,
    note_opener,
    waits_for_transaction_until,
)
from odradek.broker.environment.turns import Turns
from odradek.broker.group.member_requests import Claim, Committing
from odradek.broker.group.store import StoredOffset
from odradek.broker.security.rights import READ_GROUP, READ_TOPIC, WRITE_ID
from odradek.broker.txn.admission import refusal_words
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.txn import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

TXN_LOADING_FROM: Final = 2
TXN_ABORTABLE_FROM: Final = 4
TXN_ADDS_FROM: Final = 5


async def txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    turns = Turns()
    image, now_ms = context.core.cluster.image, context.core.clock.wall_ms()
    wanted: dict[TopicPartition, StoredOffset] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    refused = _refusal(context, request)
    for topic in request.topics:
        found = image.topics.get(topic.name)
        is_another = found is not None and topic.topic_id not in (ZERO_UUID, found.topic_id)
        for each in topic.partitions:
            await turns.take()
            partition = TopicPartition(topic.name, each.partition_index)
            if refused is not None:
                codes[partition] = refused
            elif not context.access.allows(READ_TOPIC, topic.name):
                codes[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif is_another:
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_ID
            elif found is not None and image.has_partition(*partition):
                wanted[partition] = StoredOffset(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    commit_timestamp_ms=now_ms,
                    topic_id=found.topic_id,
                )
            else:
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer = ProducerIdAndEpoch(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )
    admitted_by = waits_for_transaction_until(context)
    for some in some_at_a_time(wanted) if wanted else ():
        await turns.take(len(some) * COMMIT_STEPS)
        try:
            codes.update(
                await _commit_in_transaction(context, request, producer, some, admitted_by)
            )
            context.note_served(request.transactional_id, producer)
        except KafkaError as error:
            what = f"storing offsets of {request.group_id!r}"
            log_refusal(context, request.transactional_id, producer, what, error)
            codes.update(dict.fromkeys(some, _transaction_code(error.code, context.api_version)))
    topics = []
    for topic in request.topics:
        await turns.take()
        results = await turns.map(partial(_txn_result, codes, topic.name), topic.partitions)
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(results)))
    return TxnOffsetCommitResponse(topics=tuple(topics))


def _refusal(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode | None:
    """Return the code for every offset of a client that may not use the id or the group."""
    access, transactional_id = context.access, request.transactional_id
    if not access.allows(WRITE_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not access.allows(READ_GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _txn_result(
    codes: Codes, topic: str, each: TxnOffsetCommitRequestPartition
) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(
        partition_index=each.partition_index,
        error_code=codes[TopicPartition(topic, each.partition_index)],
    )


async def _commit_in_transaction(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    producer: ProducerIdAndEpoch,
    offsets: Mapping[TopicPartition, StoredOffset],
    admitted_by: float,
) -> Codes:
    core = context.core
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    await core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, core.groups.partition_for(request.group_id))
    try:
        leader = core.partitions.leader(*partition)
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{partition} is offline") from error
    verdicts = await core.admission.admit(
        transactional_id=request.transactional_id,
        producer=producer,
        leaders={leader.by_id: leader},
        adds=context.api_version >= TXN_ADDS_FROM,
        patience_ms=ms_until(admitted_by),
    )
    code, verified_after = verdicts[leader.by_id]
    if code is not ErrorCode.NONE:
        raise KafkaError(code, refusal_words(producer, partition, code))
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
        verified_after=verified_after,
    )
    note_opener(context, leader, request.producer_id, request.transactional_id)
    return codes


def _transaction_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code of a refusal as `version` knows it. PRODUCER_FENCED is never returned."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < TXN_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH):
        return ErrorCode.ILLEGAL_GENERATION
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < TXN_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


SERVED: Final = (
    ServedApi(
        TXN_OFFSET_COMMIT,
        txn_offset_commit,
        (Need(WRITE_ID), Need(READ_GROUP), Need(READ_TOPIC)),
    ),
)
