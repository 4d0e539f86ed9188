"""Produce, key 0, versions 3-13 (listed from 0: KAFKA-18659).

Behaviour: appends one record batch to each partition named, in order, and answers each for itself.
With acks=-1 the answer waits until the high watermark covers everything, which is then on disk
(unless log.flush=os), while the connection takes its next request. acks=1 waits for the same: this
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

Differs from Kafka:

- Durable by default. Every acknowledged write is on disk (`log.flush=journal` or `ack`). Kafka
  relies on replication for this.
- Null or empty records are INVALID_RECORD. Kafka does not answer at all.
- A transactional batch has a producer id. One without is refused, as is a producer id without an
  epoch (INVALID_RECORD or INVALID_PRODUCER_ID_MAPPING). Kafka appends such a batch: no coordinator
  knows it, and nothing ends its transaction.
- More batches are refused. A batch followed by a part of another is INVALID_RECORD; so is one of
  more than 1,000,000 records (the most that librdkafka makes) for a compacted topic. Codecs 5 to 7
  are UNSUPPORTED_COMPRESSION_TYPE.
- `compression.type` changes the codec of a batch and nothing else. The records are not looked into.
  A batch that decompresses to more than 64 MiB is refused (MESSAGE_TOO_LARGE), and so is one for a
  compacted topic. Kafka reads such a batch piece by piece.
- A batch that cannot be decompressed is CORRUPT_MESSAGE. Kafka answers by the exceptions of its
  libraries, mostly UNKNOWN_SERVER_ERROR.
- Less is checked. The broker reads the single records of a batch only for compacted topics. In
  other topics the number of records and their contents are what the producer says, as long as the
  CRC is correct and the size of the batch allows the number. Kafka reads every record of a
  compressed batch.
- A refused batch names up to 1,000 bad records. Kafka names all. A batch that is refused for a
  wrong count of records names none, as in Kafka.
- Several batches for one partition in a request are all stored. Each is answered. Kafka keeps only
  the last, and does not say so.
- A refused or repeated batch does not block its producer. Kafka remembers its sequence, and refuses
  every higher one as out of order until the producer's next marker: a late retry spoils the next
  transaction.
- A partition of an internal topic is refused before its coordinator is asked. So Produce 12 does
  not add it to the transaction.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import trio

from odradek.broker.api.context import Deferred, RequestContext
from odradek.broker.api.leaders import LeaderHints
from odradek.broker.api.needs import Need
from odradek.broker.api.produce_lookup import batch_of, check_may_commit, name_of
from odradek.broker.api.produce_response import (
    TOPIC_STEPS,
    partition_response,
    response_of,
    topic_response,
    with_endpoints,
)
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.transactional import (
    PRODUCE_ADDS_FROM,
    log_refusal,
    ms_until,
    note_opener,
    produce_code,
    producer_of,
    waits_for_transaction_until,
)
from odradek.broker.api.usage import count_produced
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.request_appends import (
    ACKS_ALL,
    OWN_DISK_MS,
    Producer,
    append_all,
    check_all,
    deadline_of,
    has_outcome,
    wait_for_outcomes,
)
from odradek.broker.partitions.request_batches import BATCHES_AT_ONCE, Batch, name_refused
from odradek.broker.security.rights import WRITE_ID, WRITE_TOPIC
from odradek.broker.txn.admission import refusal_words
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.produce import PRODUCE, ProduceRequest, ProduceResponse
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

NAMES_RECORDS_FROM: Final = 8
"""The first version whose answer names the records for which a batch is refused."""
LOOK_UP_STEPS: Final = 3  # of a turn, for one partition


async def produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Deferred | None:
    count_produced(context)
    batches: list[Batch] = []
    is_replicated = False
    clock, turns = context.core.clock, Turns()
    for topic in request.topic_data:
        await turns.take(TOPIC_STEPS)
        name, error = name_of(context, topic)
        for data in topic.partition_data:
            await turns.take(LOOK_UP_STEPS)
            batch = batch_of(context, name, topic.topic_id, data, error)
            # The only replica is all of them: what it has counts once the high watermark is there.
            batch.by_all = request.acks == ACKS_ALL or batch.is_alone
            is_replicated |= batch.has_followers
            batches.append(batch)
    producer = None
    try:
        await check_may_commit(context, request, batches, turns)
        producer = await check_all(
            batches,
            acks=request.acks,
            transactional_id=request.transactional_id,
            clock=clock,
            turns=turns,
        )
    except KafkaError as error:
        refusal = error.with_traceback(None)
        for batch in batches:
            batch.error = refusal
    admitted_by = waits_for_transaction_until(context, request.timeout_ms)
    is_of_transaction = request.transactional_id is not None
    await append_all(
        batches,
        clock=clock,
        transaction_version=2 if context.api_version >= PRODUCE_ADDS_FROM else 0,
        admit=partial(_admit, context, request, producer, admitted_by) if producer else None,
        on_appended=partial(_note_producers, context, request) if is_of_transaction else None,
    )
    if request.acks == 0:
        _close_on_error(batches)
        return None
    if context.api_version >= NAMES_RECORDS_FROM:
        await name_refused(clock, batches, turns)
    if len(batches) <= BATCHES_AT_ONCE and all(map(has_outcome, batches)):
        return await response_of(context, request, batches)

    deadline = deadline_of(request.timeout_ms, since=trio.current_time())
    finish = partial(answer_in_time, context, request, batches, deadline)
    if len(batches) > 1 or len(request.topic_data) > 1:  # of which all but one are empty
        return Deferred(finish, is_replicated=is_replicated)
    [batch] = batches
    assert batch.leader is not None, "an appended batch has a leader"
    if batch.has_followers:  # which may take longer than the client wants to wait
        return Deferred(finish, is_replicated=True)

    def answer_now() -> ProduceResponse | None:
        if not has_outcome(batch):
            return None
        hints = LeaderHints(context)
        answers = iter([partition_response(hints, batch)])
        return with_endpoints([topic_response(answers, request.topic_data[0])], hints)

    return Deferred(finish, batch.leader.call_when_committed, answer_now)


async def answer_in_time(
    context: RequestContext, request: ProduceRequest, batches: Sequence[Batch], deadline: float
) -> ProduceResponse:
    """Return the answer to a request whose batches were appended, once they count.

    Those that do not until `deadline` are REQUEST_TIMED_OUT.
    """
    if not all(map(has_outcome, batches)):
        await wait_for_outcomes(batches, deadline, max(request.timeout_ms, OWN_DISK_MS))
    return await response_of(context, request, batches)


async def _admit(
    context: RequestContext,
    request: ProduceRequest,
    asks: Producer,
    admitted_by: float,
    batches: Sequence[Batch],
) -> None:
    """Refuse the transactional batches whose partitions their transaction does not have."""
    assert request.transactional_id is not None
    # invariant admission 4: Only transactional batches count for admission, whatever stands beside
    # them.
    # plant KAFKA-14916
    asking = [batch for batch in batches if batch.error is None and batch.is_transactional]
    if not asking:
        return
    producer = ProducerIdAndEpoch(producer_id=asks[0], producer_epoch=asks[1])
    verdicts = await context.core.admission.admit(
        transactional_id=request.transactional_id,
        producer=producer,
        leaders={batch.leader.by_id: batch.leader for batch in asking if batch.leader is not None},
        adds=context.api_version >= PRODUCE_ADDS_FROM,
        patience_ms=ms_until(admitted_by),
    )
    for batch in asking:
        assert batch.leader is not None
        code, batch.verified_after = verdicts[batch.leader.by_id]
        if code is not ErrorCode.NONE:
            batch.error = KafkaError(
                produce_code(code, context.api_version),
                refusal_words(producer, batch.where, code),
            )


def _note_producers(
    context: RequestContext, request: ProduceRequest, batches: Iterable[Batch]
) -> None:
    """Note the producers that were served on this connection, and log those that were refused."""
    transactional_id = request.transactional_id
    assert transactional_id is not None
    for batch in batches:
        if batch.header is None or not batch.is_transactional:
            continue
        producer = producer_of(batch.header)
        if batch.error is None:
            assert batch.leader is not None, "an appended batch has a leader"
            note_opener(context, batch.leader, producer.producer_id, transactional_id)
            context.note_served(transactional_id, producer)
        else:
            what = f"a batch for {batch.where}"
            why = log_refusal(context, transactional_id, producer, what, batch.error)
            batch.error = KafkaError(batch.error.code, why)


def _close_on_error(batches: Iterable[Batch]) -> None:
    for batch in batches:
        if batch.error is not None:
            raise ProtocolError(
                f"records for {batch.where} with acks=0 were refused: {batch.error}"
            )


SERVED: Final = (
    ServedApi(
        PRODUCE,
        produce,
        (Need(WRITE_TOPIC), Need(WRITE_ID, "for transactional batches")),
    ),
)
