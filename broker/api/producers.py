"""DescribeProducers, key 61, version 0.

Behaviour: returns the producers that each partition knows: epoch, last sequence and timestamp, the
epoch of the coordinator that sent the last marker, and where an open transaction begins (KIP-664).
Kafka's tools use it to find hanging transactions. A partition that is asked for twice is described
once. A name that no topic can have is INVALID_TOPIC_EXCEPTION, a partition that this broker does
not have is UNKNOWN_TOPIC_OR_PARTITION.

Versions: there is one.

Differs from Kafka:

- DescribeProducers explains what holds the last stable offset. Tagged fields have the transactional
  id, its client and the client's address, the start and the deadline of the transaction, and the
  number of bytes behind it.
"""

from contextlib import suppress
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import Listeners, ServedApi
from odradek.broker.cluster.new_topic import check_name
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.openers import Opener
from odradek.broker.security.rights import DESCRIBE_ID, READ_TOPIC
from odradek.broker.storage.producer_entry import ProducerEntry
from odradek.broker.txn.view import TransactionView
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)
from odradek.protocol.errors import ErrorCode, KafkaError, with_phrase

DESCRIBE_STEPS: Final = 3
"""The cost of one partition or producer, in steps of a turn."""
NONE: Final = -1


async def describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    turns = Turns()
    await _expect(context, request, turns)
    seen: set[TopicPartition] = set()
    topics = []
    for topic in request.topics:
        await turns.take()
        described = []
        for index in topic.partition_indexes:
            await turns.take()
            where = TopicPartition(topic.name, index)
            if where not in seen:
                seen.add(where)
                await turns.take(DESCRIBE_STEPS)
                described.append(await _describe(context, where, turns))
        topics.append(DescribeProducersTopicResponse(name=topic.name, partitions=tuple(described)))
    return DescribeProducersResponse(topics=tuple(topics))


async def _expect(context: RequestContext, request: DescribeProducersRequest, turns: Turns) -> None:
    """Reserve memory for the producers of the partitions, each partition once."""
    seen: set[TopicPartition] = set()
    item_count = 0
    for topic in request.topics:
        for index in topic.partition_indexes:
            await turns.take()
            where = TopicPartition(topic.name, index)
            if where not in seen:
                seen.add(where)
                item_count += 1
                # What is refused has one size, whatever is stored.
                if not context.access.shows(READ_TOPIC, topic.name):
                    continue
                with suppress(KafkaError):
                    item_count += len(context.core.partitions.leader(*where).log.producers.entries)
    await context.expect(item_count)


async def _describe(
    context: RequestContext, where: TopicPartition, turns: Turns
) -> DescribeProducersPartitionResponse:
    try:
        context.access.check(READ_TOPIC, where.topic)
        check_name(where.topic)
        leader = context.core.partitions.leader(*where)
    except KafkaError as error:
        return DescribeProducersPartitionResponse(
            partition_index=where.partition,
            error_code=error.code,
            error_message=with_phrase(error.code, error.message),
            active_producers=(),
        )
    producers = []
    for entry in list(leader.log.producers.entries.values()):
        await turns.take(DESCRIBE_STEPS)
        producers.append(_producer(context, leader, entry))
    return DescribeProducersPartitionResponse(
        partition_index=where.partition,
        error_code=ErrorCode.NONE,
        active_producers=tuple(producers),
        last_stable_offset=leader.marks.last_stable_offset,
        high_watermark=leader.marks.high_watermark,
        log_end_offset=leader.log.log_end_offset,
        log_start_offset=leader.log.log_start_offset,
        pinning_producer_id=_pinning(leader),
    )


def _pinning(leader: Leader) -> int:
    """Return the producer id whose open transaction read_committed readers wait for.

    It is -1 if the last stable offset is at the high watermark, or if only the replication of a
    marker is missing.
    """
    oldest = next(iter(leader.log.producers.open_transactions()), None)
    stable = leader.marks.last_stable_offset
    if oldest is None or stable == leader.marks.high_watermark or oldest.first_offset > stable:
        return NONE
    return oldest.producer_id


def _producer(context: RequestContext, leader: Leader, entry: ProducerEntry) -> ProducerState:
    opener = leader.openers.of(entry)
    view = _coordinator_view(context, entry.producer_id)
    is_open = entry.has_open_transaction
    # The coordinator may know the producer and yet nothing of a transaction in this partition.
    is_there = view is not None and leader.by_id.is_in(view.partitions)
    ends_here = view if is_open and is_there else None
    client = opener.client if opener is not None else view.client if view is not None else None
    transactional_id = _transactional_id(opener, view)
    # Kafka names neither the id nor its client.
    if transactional_id is not None and not context.access.shows(DESCRIBE_ID, transactional_id):
        transactional_id = client = None
    if opener is not None:
        since_ms = opener.since_ms
    else:
        since_ms = NONE if ends_here is None else ends_here.started_ms
    times_out_in_ms = None if ends_here is None else ends_here.times_out_in_ms
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.first_offset,
        transactional_id=transactional_id,
        client_id=None if client is None else client.client_id,
        client_host=None if client is None else client.host,
        open_since_ms=since_ms,
        times_out_in_ms=NONE if times_out_in_ms is None else max(times_out_in_ms, 0),
        records_behind=leader.log.log_end_offset - entry.first_offset if is_open else NONE,
    )


def _transactional_id(opener: Opener | None, view: TransactionView | None) -> str | None:
    if opener is not None and opener.transactional_id is not None:
        return opener.transactional_id
    return None if view is None else view.transactional_id


def _coordinator_view(context: RequestContext, producer_id: int) -> TransactionView | None:
    """Return the coordinator's view of a producer, if this broker is its coordinator."""
    transactional_id = context.core.transactions.owner_of(producer_id)
    if not transactional_id:
        return None
    try:
        return context.core.transactions.describe(transactional_id)
    except KafkaError:
        return None


SERVED: Final = (
    ServedApi(
        DESCRIBE_PRODUCERS,
        describe_producers,
        (
            Need(READ_TOPIC),
            Need(DESCRIBE_ID, "for the id of a producer, and its client"),
        ),
        on=Listeners.ALL,
    ),
)
