"""A producer's transaction: begin, extend and end.

InitProducerId, key 22, versions 0-5, and 6 where transaction.two.phase.commit.enable is set;
AddPartitionsToTxn, key 24, versions 0-5; AddOffsetsToTxn, key 25, versions 0-4; EndTxn, key 26,
versions 0-5.

Behaviour: calls the transaction coordinator and translates its refusals to the codes of the
version. EndTxn is answered when the decision is on disk; the markers follow.

Versions: PRODUCER_FENCED is known from InitProducerId 4 and from 2 of the others; older versions
get INVALID_PRODUCER_EPOCH. TRANSACTION_ABORTABLE is known from InitProducerId 5, AddPartitionsToTxn
5, AddOffsetsToTxn 4, EndTxn 4. InitProducerId 3 carries the producer id and epoch that the client
has (KIP-360); 6 may ask for transactions without time-out, and for an open transaction to be kept
(KIP-939). AddPartitionsToTxn 4 has many transactions and may only verify (VerifyOnly). EndTxn 5
means transaction version 2 and answers with the next producer id and epoch.

Our own tags of EndTxn 5, `members` and `decision_id`, end the transactions of a group by one
decision. The answer has the members' next identities, or the member that was refused and why.

Differs from Kafka: InitProducerId makes the state topic itself. KeepPreparedTxn is served, where
Kafka 4.3 answers UNSUPPORTED_VERSION, and may claim a timed transaction, too. Our own tag
`by_administrator` records the cause of a fence: Kafka's forceTerminateTransaction is a plain
InitProducerId, which looks like that of a new instance. Our own tag `without_markers` ends a
decided transaction although partitions do not take its markers; Kafka has no way out then.
AddPartitionsToTxn 4 and 5, which brokers send, are accepted from every client, because there is no
authoriser yet.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.transactional import code_for, ms_until, waits_for_transaction_until
from odradek.broker.topic_partition import TopicIdPartition, TopicPartition
from odradek.broker.turns import Turns
from odradek.broker.txn.groups import MemberRefused, TransactionMember
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndedTxnMember,
    EndTxnMember,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
)

NO_PRODUCER: Final = -1
ADD_STEPS: Final = 5
"""The cost of one transaction, in steps of a turn, besides its partitions."""
BATCHED_FROM: Final = 4
"""AddPartitionsToTxn from this version on comes from brokers."""
NO_EPOCH: Final = -1
VERSION_2_FROM: Final = 5
"""EndTxn from this version on comes from clients of transaction version 2."""


async def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    try:
        if request.transactional_id is not None:
            await context.core.cluster.ensure_state_topic(TRANSACTION_STATE_TOPIC)
        answer = await context.core.transactions.init_producer_id(
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=_expected(request),
            client=context.client,
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
            by_administrator=request.by_administrator,
            without_markers=request.without_markers,
        )
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=4, abortable_from=5)
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER)
    producer, ongoing = answer.producer, answer.ongoing
    if request.transactional_id is not None:
        context.saw(request.transactional_id, producer, begins=True)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        ongoing_txn_producer_id=ongoing.producer_id if ongoing else NO_PRODUCER,
        ongoing_txn_producer_epoch=ongoing.producer_epoch if ongoing else NO_PRODUCER,
    )


def _expected(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    """Return the producer id and epoch that the client has (KIP-360); None if it has none."""
    has_id = request.producer_id != NO_PRODUCER
    if has_id != (request.producer_epoch != NO_PRODUCER):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together or not at all."
        )
    return _producer(request) if has_id else None


def _producer(
    request: InitProducerIdRequest
    | AddPartitionsToTxnTransaction
    | AddOffsetsToTxnRequest
    | EndTxnMember
    | EndTxnRequest,
) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )


async def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    turns = Turns()
    if context.api_version >= BATCHED_FROM:
        results = []
        added_by = waits_for_transaction_until(context)
        for wanted in request.transactions:
            await turns.take(ADD_STEPS)
            codes = await _add_partitions(context, wanted, turns, ms_until(added_by))
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=wanted.transactional_id,
                    topic_results=await _topic_results(wanted.topics, codes, turns),
                    coordinator_epoch=_epoch_for_broker(context, wanted.transactional_id),
                )
            )
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await _add_partitions(context, wanted, turns)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _topic_results(wanted.topics, codes, turns)
    )


def _epoch_for_broker(context: RequestContext, transactional_id: str) -> int:
    """Return the coordinator epoch if a broker asks: an answer of a deposed one is worthless."""
    if not context.is_from_broker:
        return NO_EPOCH
    return context.core.transactions.coordinator_epoch(transactional_id)


Codes = Mapping[TopicPartition, ErrorCode]


async def _add_partitions(
    context: RequestContext,
    wanted: AddPartitionsToTxnTransaction,
    turns: Turns,
    max_wait_ms: int | None = None,
) -> Codes:
    partitions = await turns.distinct(
        TopicIdPartition.of(topic.name, index, topic_id)
        for topic in wanted.topics
        for topic_id in [_topic_id(context, wanted, topic)]
        for index in topic.partitions
    )
    names = []
    refused: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        await turns.take()
        names.append(partition.by_name)
        code = _refusal(context, partition)
        if code is not None:
            refused[partition.by_name] = code
    # If one partition is refused, none is added. The client must not take the others for added
    # (KAFKA-5322).
    if refused:
        return {**dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED), **refused}
    await turns.take(len(partitions))
    producer = _producer(wanted)
    try:
        if wanted.verify_only:
            codes = context.core.transactions.verify(
                transactional_id=wanted.transactional_id, producer=producer, partitions=partitions
            )
            return {partition.by_name: code for partition, code in codes.items()}
        await context.core.transactions.add_partitions(
            transactional_id=wanted.transactional_id,
            producer=producer,
            partitions=partitions,
            transaction_version=2 if context.api_version >= BATCHED_FROM else 0,
            max_wait_ms=max_wait_ms,
            client=context.client,
        )
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=2, abortable_from=5)
        return dict.fromkeys(names, code)
    context.saw(wanted.transactional_id, producer)
    return dict.fromkeys(names, ErrorCode.NONE)


def _topic_id(
    context: RequestContext, wanted: AddPartitionsToTxnTransaction, topic: AddPartitionsToTxnTopic
) -> UUID:
    """Return the id of the topic that a request names.

    A leader of an earlier version sends none. Its image may be ahead of this one, so what it adds
    is known by its name only.
    """
    is_of_older_leader = context.is_from_broker and not wanted.verify_only
    found = context.core.cluster.image.topics.get(topic.name)
    if topic.topic_id != ZERO_UUID or is_of_older_leader or found is None:
        return topic.topic_id
    return found.topic_id


def _refusal(context: RequestContext, partition: TopicIdPartition) -> ErrorCode | None:
    """Return the code for a partition that may not be added, or None."""
    # A client adds the partitions of internal topics with AddOffsetsToTxn only.
    if partition.topic in INTERNAL_TOPICS and context.api_version < BATCHED_FROM:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    image = context.core.cluster.image
    topic = image.topics.get(partition.topic)
    is_known = topic is not None and partition.may_be_of(topic.topic_id)
    if not is_known or not image.has_partition(*partition.by_name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


async def _topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Codes, turns: Turns
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    results = []
    for topic in topics:
        await turns.take()
        found = await turns.map(partial(_partition_result, codes, topic.name), topic.partitions)
        results.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(found))
        )
    return tuple(results)


def _partition_result(codes: Codes, topic: str, index: int) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=codes[TopicPartition(topic, index)]
    )


async def add_offsets_to_txn(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    code = ErrorCode.NONE
    try:
        await context.core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
        await context.core.transactions.add_partitions(
            transactional_id=request.transactional_id,
            producer=_producer(request),
            partitions=[_offsets_partition(context, request.group_id)],
            transaction_version=0,
            client=context.client,
        )
        context.saw(request.transactional_id, _producer(request))
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=2, abortable_from=4)
    return AddOffsetsToTxnResponse(error_code=code)


def _offsets_partition(context: RequestContext, group_id: str) -> TopicIdPartition:
    """Return the partition that keeps the offsets of a group, whose topic was made before."""
    found = context.core.cluster.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    index = context.core.groups.partition_for(group_id)
    topic_id = ZERO_UUID if found is None else found.topic_id
    return TopicIdPartition.of(CONSUMER_OFFSETS_TOPIC, index, topic_id)


async def end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    if request.members:
        return await _end_group(context, request)
    try:
        producer = await context.core.transactions.end_transaction(
            transactional_id=request.transactional_id,
            producer=_producer(request),
            committed=request.committed,
            transaction_version=2 if context.api_version >= VERSION_2_FROM else 0,
            client=context.client,
        )
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=2, abortable_from=4)
        return EndTxnResponse(error_code=code)
    context.saw(request.transactional_id, producer)
    return EndTxnResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


async def _end_group(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    turns = Turns()
    try:
        if request.producer_id != NO_PRODUCER or request.producer_epoch != NO_PRODUCER:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "an EndTxn that lists members has producer id -1 and epoch -1",
            )
        identities = await context.core.transactions.end_group(
            await turns.map(_member, request.members),
            committed=request.committed,
            decision_id=request.decision_id,
            client=context.client,
        )
    except KafkaError as error:
        return EndTxnResponse(
            error_code=error.code,
            refused_member=error.transactional_id if isinstance(error, MemberRefused) else None,
            error_message=error.message,
        )
    ended = await turns.map(_ended, identities)
    return EndTxnResponse(
        error_code=ErrorCode.NONE,
        producer_id=ended[0].producer_id,
        producer_epoch=ended[0].producer_epoch,
        members=tuple(ended),
    )


def _member(member: EndTxnMember) -> TransactionMember:
    return TransactionMember(transactional_id=member.transactional_id, producer=_producer(member))


def _ended(producer: ProducerIdAndEpoch | None) -> EndedTxnMember:
    if producer is None:
        return EndedTxnMember()
    return EndedTxnMember(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
