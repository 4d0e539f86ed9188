"""AddPartitionsToTxn and AddOffsetsToTxn: a transaction gets partitions and groups.

AddPartitionsToTxn, key 24, versions 0-5; AddOffsetsToTxn, key 25, versions 0-4.

Behaviour: calls the transaction coordinator and translates its refusals to the codes of the
version.

Versions: PRODUCER_FENCED is known from version 2 on; older ones get INVALID_PRODUCER_EPOCH.
TRANSACTION_ABORTABLE is known from AddPartitionsToTxn 5 and AddOffsetsToTxn 4. AddPartitionsToTxn 4
has many transactions and may only verify (VerifyOnly).

Differs from Kafka:

- AddPartitionsToTxn 4 and 5 are accepted from every client where there is no authoriser. Brokers
  send them. With one they need CLUSTER_ACTION, as in Kafka.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import Listeners, ServedApi
from odradek.broker.api.transactional import (
    code_for,
    ms_until,
    producer_of,
    waits_for_transaction_until,
)
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import CLUSTER_ACTION, READ_GROUP, WRITE_ID, WRITE_TOPIC
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.state_topics import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
)

ADD_STEPS: Final = 5
"""The cost of one transaction, in steps of a turn, besides its partitions."""
BATCHED_FROM: Final = 4
"""AddPartitionsToTxn from this version on comes from brokers."""
NO_EPOCH: Final = -1


async def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    turns = Turns()
    if context.api_version >= BATCHED_FROM:
        try:
            context.access.check_cluster(CLUSTER_ACTION)
        except KafkaError as error:
            return AddPartitionsToTxnResponse(error_code=error.code)
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
    access, transactional_id = context.access, wanted.transactional_id
    if access.allows(WRITE_ID, transactional_id):
        codes = await _add_partitions(context, wanted, turns)
    else:
        codes = defaultdict(lambda: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
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
    producer = producer_of(wanted)
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
    context.note_served(wanted.transactional_id, producer)
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
    if context.api_version < BATCHED_FROM:
        if partition.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not context.access.allows(WRITE_TOPIC, partition.topic):
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
    access = context.access
    try:
        access.check(WRITE_ID, request.transactional_id)
        access.check(READ_GROUP, request.group_id)
        await context.core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
        await context.core.transactions.add_partitions(
            transactional_id=request.transactional_id,
            producer=producer_of(request),
            partitions=[_offsets_partition(context, request.group_id)],
            transaction_version=0,
            client=context.client,
        )
        context.note_served(request.transactional_id, producer_of(request))
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=2, abortable_from=4)
    return AddOffsetsToTxnResponse(error_code=code)


def _offsets_partition(context: RequestContext, group_id: str) -> TopicIdPartition:
    """Return the partition that keeps the offsets of a group, whose topic was made before."""
    found = context.core.cluster.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    index = context.core.groups.partition_for(group_id)
    topic_id = ZERO_UUID if found is None else found.topic_id
    return TopicIdPartition.of(CONSUMER_OFFSETS_TOPIC, index, topic_id)


SERVED: Final = (
    ServedApi(
        ADD_PARTITIONS_TO_TXN,
        add_partitions_to_txn,
        (
            Need(WRITE_ID, "up to version 3"),
            Need(WRITE_TOPIC, "up to version 3"),
            Need(CLUSTER_ACTION, "from version 4 on"),
        ),
        on=Listeners.ALL,
    ),
    ServedApi(ADD_OFFSETS_TO_TXN, add_offsets_to_txn, (Need(WRITE_ID), Need(READ_GROUP))),
)
