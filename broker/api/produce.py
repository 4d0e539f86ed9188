"""Produce, key 0, versions 3-13 (listed from 0: KAFKA-18659).

Behaviour: appends one record batch to each partition named, in order, and answers each for itself.
With acks=-1 the answer waits until the high watermark covers everything (with `log.flush=ack`:
until it is on disk), while the connection takes its next request. acks=1 waits for the same: this
broker is the only in-sync replica, and in Kafka the high watermark of a sole replica covers a
record before its producer is answered. So a fetch or ListOffsets right after sees the record.
acks=0 has no answer; an error closes the connection, as Kafka does.

A transactional batch must belong to a transaction that its coordinator knows (KIP-890). The first
of a producer in a partition is checked: up to version 11 that the client has added the partition;
from version 12 on (transaction version 2) the partition is added for it, which waits for the
completion of the transaction before, if need be: for at most `transaction.concurrent.wait.ms`, as
the request's own time-out is for its replicas. A batch is refused if a marker was written between
check and append (KAFKA-14884).

Versions: 8 has a sentence for an error, and names the records for which a batch is refused; 10
names the leader in a refusal (KIP-951); 11 knows TRANSACTION_ABORTABLE, older ones get
INVALID_TXN_STATE; 12 adds partitions implicitly; 13 names topics by id. A fenced producer gets
INVALID_PRODUCER_EPOCH, never PRODUCER_FENCED.

Differs from Kafka: null or empty records are INVALID_RECORD, where Kafka does not answer at all.
Records are not looked into, but where the topic is compacted: their number and contents are what
the batch header says. Of a batch that is refused for its records the first 1,000 of those are
named. `compression.type` changes the codec of a batch, and nothing else in it; one that
decompresses to more than 64 MiB is MESSAGE_TOO_LARGE then. A compacted topic takes at most
1,000,000 records a batch (what librdkafka makes at most) and 64 MiB decompressed. Several batches
for one partition in a request are all appended; Kafka loses all but the last. A batch that was
refused, or was a repeat, does not make a producer's next transaction out of order; Kafka keeps its
sequence in mind until its next marker. A partition of an internal topic is refused before its
coordinator is asked, so version 12 does not add it to the transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

import trio

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.api.leaders import LeaderHints
from odradek.broker.api.parallel import for_each
from odradek.broker.api.produce_batches import (
    BATCHES_AT_ONCE,
    NAMES_RECORDS_FROM,
    NO_OFFSET,
    NO_RECORDS,
    Batch,
    check_records_of,
    name_refused,
    recompress_some,
)
from odradek.broker.api.transactional import (
    PRODUCE_ADDS_FROM,
    log_refusal,
    ms_until,
    note_opener,
    produce_code,
    waits_for_transaction_until,
)
from odradek.broker.turns import Turns
from odradek.broker.txn.admission import refusal_words
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.batch import HEADER_BYTES, Codec, read_header
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError, with_phrase
from odradek.protocol.state_topics import INTERNAL_TOPICS

ACKS_ALL: Final = -1
ACKS: Final = frozenset({ACKS_ALL, 0, 1})
ADMIN_CLIENT: Final = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""
OWN_DISK_MS: Final = 1_000
"""The least time-out for this broker's own disk: the request's is meant for other replicas."""
UNKNOWN_LOG: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of an append that are answered without the log start offset. All others have it."""


LOOK_UP_STEPS: Final = 3
"""The cost of looking up one partition, in steps of a turn."""
TOPIC_STEPS: Final = 2
"""The cost of looking up one topic, or of answering it, without its partitions."""


async def produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Deferred | None:
    batches: list[Batch] = []
    turns = Turns()
    for topic in request.topic_data:
        await turns.take(TOPIC_STEPS)
        name, error = _name_of(context, topic)
        for data in topic.partition_data:
            await turns.take(LOOK_UP_STEPS)
            batch = _batch(context, name, data, error)
            batch.by_all = request.acks == ACKS_ALL
            batches.append(batch)
    producer = None
    try:
        producer = await _check_all(context, request, batches, turns)
    except KafkaError as error:
        refusal = error.with_traceback(None)
        for batch in batches:
            batch.error = refusal
    start = 0
    admitted_by = waits_for_transaction_until(context, request.timeout_ms)
    while start < len(batches):
        if start:
            await trio.lowlevel.checkpoint()
        end = await recompress_some(context, batches, start)
        await _append_some(context, request, producer, batches[start:end], admitted_by)
        start = end

    if request.acks == 0:
        _close_on_error(batches)
        return None
    if context.api_version >= NAMES_RECORDS_FROM:
        await name_refused(context, batches, turns)
    if len(batches) <= BATCHES_AT_ONCE and all(map(_is_settled, batches)):
        return await _response(context, request, batches)

    patience_ms = max(request.timeout_ms, OWN_DISK_MS)
    deadline = trio.current_time() + patience_ms / 1000

    async def finish() -> ProduceResponse:
        if not all(map(_is_settled, batches)):
            await _wait_until_durable(batches, deadline, patience_ms)
        return await _response(context, request, batches)

    if len(batches) > 1 or len(request.topic_data) > 1:  # of which all but one are empty
        return Deferred(finish)
    [batch] = batches
    assert batch.partition is not None, "an appended batch has a partition"
    lead = batch.partition.lead
    if lead is None or not lead.is_alone:
        return Deferred(finish)  # followers may take longer than the client wants to wait

    def answer_now() -> ProduceResponse | None:
        if not _is_settled(batch):
            return None
        hints = LeaderHints(context)
        answers = iter([_partition_response(hints, batch)])
        return _with_endpoints([_topic_response(answers, request.topic_data[0])], hints)

    return Deferred(finish, batch.partition.call_when_flushed, answer_now)


async def _check_all(
    context: RequestContext, request: ProduceRequest, batches: Sequence[Batch], turns: Turns
) -> ProducerIdAndEpoch | None:
    """Refuse what is wrong with a request whatever its partitions hold.

    Return the producer of its transactional batches, None if there are none. Raises KafkaError,
    which refuses the whole request.
    """
    producer = None
    for batch in batches:
        await turns.take()
        if request.acks not in ACKS:
            batch.error = batch.error or KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {request.acks}."
            )
        if batch.is_transactional:
            producer = _one_producer(request, batch, producer)
        if batch.partition is not None and batch.partition.config.is_compacted:
            await check_records_of(context, batch, turns)
    return producer


def _one_producer(
    request: ProduceRequest, batch: Batch, before: ProducerIdAndEpoch | None
) -> ProducerIdAndEpoch | None:
    """Return the producer of a transactional batch, which is `before` if that is given.

    Plain batches do not count (KAFKA-14916). Raises KafkaError for a second producer.
    """
    if request.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "A transactional batch came without a transactional id.",
        )
    if batch.error is not None:
        return before
    if before not in (None, batch.producer):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "One request has transactional batches of several producers.",
        )
    return batch.producer


async def _append_some(
    context: RequestContext,
    request: ProduceRequest,
    producer: ProducerIdAndEpoch | None,
    batches: Sequence[Batch],
    admitted_by: float,
) -> None:
    """Let batches into the transaction of `producer` and append them.

    There is no checkpoint between the two.
    """
    if producer is not None:
        await _admit(context, request, producer, batches, admitted_by)
    for batch in batches:
        if batch.error is None:
            _append(context, request, batch)
        if not batch.may_be_named:
            batch.records = NO_RECORDS  # which may be much, if they were compressed anew
    if request.transactional_id is not None:
        _note_producers(context, request.transactional_id, batches)


async def _admit(
    context: RequestContext,
    request: ProduceRequest,
    producer: ProducerIdAndEpoch,
    batches: Sequence[Batch],
    admitted_by: float,
) -> None:
    """Refuse the transactional batches whose partitions their transaction does not have."""
    assert request.transactional_id is not None
    asking = [batch for batch in batches if batch.error is None and batch.is_transactional]
    if not asking:
        return
    verdicts = await context.core.admission.admit(
        transactional_id=request.transactional_id,
        producer=producer,
        leaders={
            batch.partition.by_id: batch.partition
            for batch in asking
            if batch.partition is not None
        },
        adds=context.api_version >= PRODUCE_ADDS_FROM,
        patience_ms=ms_until(admitted_by),
    )
    for batch in asking:
        assert batch.partition is not None
        code, batch.verified_after = verdicts[batch.partition.by_id]
        if code is not ErrorCode.NONE:
            batch.error = KafkaError(
                produce_code(code, context.api_version),
                refusal_words(producer, batch.where, code),
            )


def _note_producers(
    context: RequestContext, transactional_id: str, batches: Iterable[Batch]
) -> None:
    """Note the producers that were served on this connection, and log those that were refused."""
    for batch in batches:
        producer = batch.producer
        if producer is None:
            continue
        if batch.error is None:
            context.saw(transactional_id, producer)
        else:
            what = f"a batch for {batch.where}"
            why = log_refusal(context, transactional_id, producer, what, batch.error)
            batch.error = KafkaError(batch.error.code, why)


def _name_of(context: RequestContext, asked: TopicProduceData) -> tuple[str, KafkaError | None]:
    """Return the name of a topic, and an error if no topic has its id."""
    if context.api_version < 13:
        return asked.name, None
    topic = context.core.cluster.image.topic_by_id(asked.topic_id)
    if topic is None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has id {asked.topic_id}.")
        return asked.name, error
    return topic.name, None


def _batch(
    context: RequestContext, topic: str, data: PartitionProduceData, error: KafkaError | None
) -> Batch:
    records = memoryview(data.records or b"")
    batch = Batch(topic=topic, index=data.index, records=records, error=error)
    if len(records) >= HEADER_BYTES:
        batch.header = read_header(records)
        batch.is_transactional = batch.header.is_transactional
    if error is None:
        _look_up(context, batch)
    return batch


def _look_up(context: RequestContext, batch: Batch) -> None:
    try:
        batch.partition = context.core.partitions.get(batch.topic, batch.index)
        if batch.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{batch.topic} is internal; the broker writes it.",
            )
        if batch.header is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "There is no record batch.")
        if context.api_version < 7 and batch.header.codec == Codec.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later."
            )
    except KafkaError as error:
        batch.error = error.with_traceback(None)


def _append(context: RequestContext, request: ProduceRequest, batch: Batch) -> None:
    assert batch.partition is not None
    try:
        if batch.records_error is not None:
            raise batch.records_error
        if batch.by_all:
            batch.partition.check_in_sync()
        batch.appended = batch.partition.append_from_client(
            batch.records,
            transaction_version=2 if context.api_version >= PRODUCE_ADDS_FROM else 0,
            verified_after=batch.verified_after,
        )
        if batch.header is not None and batch.is_transactional:
            note_opener(
                context, batch.partition, batch.header.producer_id, request.transactional_id
            )
    except KafkaError as error:
        batch.error = error.with_traceback(None)
        if error.code not in UNKNOWN_LOG:
            batch.log_start_offset = batch.partition.log_start_offset


def _is_settled(batch: Batch) -> bool:
    """Return True if there is nothing to wait for: it was refused, or it counts already."""
    if batch.appended is None or batch.partition is None:
        return True
    return batch.partition.has_committed(batch.appended, by_all=batch.by_all)


async def _wait_until_durable(batches: Sequence[Batch], deadline: float, patience_ms: int) -> None:
    appended = [batch for batch in batches if batch.appended is not None]
    with trio.move_on_at(deadline):
        await for_each(appended, _wait_until_on_disk)
    for batch in appended:
        if not batch.is_settled:
            batch.error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Not on disk within {patience_ms} ms; it may still get there.",
            )


async def _wait_until_on_disk(batch: Batch) -> None:
    assert batch.partition is not None
    assert batch.appended is not None
    try:
        next_offset = batch.appended.last_offset + 1
        if batch.by_all:
            await batch.partition.flushed(next_offset, leader_epoch=batch.appended.leader_epoch)
        else:
            await batch.partition.on_disk(next_offset)
    except KafkaError as error:
        batch.error = error.with_traceback(None)
    batch.is_settled = True


def _close_on_error(batches: Iterable[Batch]) -> None:
    for batch in batches:
        if batch.error is not None:
            raise ProtocolError(
                f"records for {batch.where} with acks=0 were refused: {batch.error}"
            )


async def _response(
    context: RequestContext, request: ProduceRequest, batches: Sequence[Batch]
) -> ProduceResponse:
    turns = Turns()
    hints = LeaderHints(context)
    named = 0
    for batch in batches:
        await turns.take()
        named += len(batch.refused_records)
    await context.expect(named)
    answers = iter(await turns.map(partial(_partition_response, hints), batches))
    topics = []
    for topic in request.topic_data:
        await turns.take(TOPIC_STEPS)
        topics.append(_topic_response(answers, topic))
    return _with_endpoints(topics, hints)


def _with_endpoints(topics: Iterable[TopicProduceResponse], hints: LeaderHints) -> ProduceResponse:
    return ProduceResponse(
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in hints.addresses.items()
        ),
    )


def _topic_response(
    answers: Iterator[PartitionProduceResponse], topic: TopicProduceData
) -> TopicProduceResponse:
    """Return the answer for a topic. `answers` continues with its partitions, in their order."""
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=tuple(islice(answers, len(topic.partition_data))),
    )


def _partition_response(hints: LeaderHints, batch: Batch) -> PartitionProduceResponse:
    if batch.error is not None:
        leader, epoch = hints.leader_and_epoch(batch.error.code, batch.topic, batch.index)
        return PartitionProduceResponse(
            index=batch.index,
            error_code=batch.error.code,
            base_offset=NO_OFFSET,
            log_start_offset=batch.log_start_offset,
            record_errors=batch.named(),
            error_message=with_phrase(batch.error.code, batch.error.message) or None,
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        )
    assert batch.appended is not None
    return PartitionProduceResponse(
        index=batch.index,
        error_code=ErrorCode.NONE,
        base_offset=batch.appended.base_offset,
        log_append_time_ms=batch.appended.log_append_time_ms,
        log_start_offset=batch.appended.log_start_offset,
    )
