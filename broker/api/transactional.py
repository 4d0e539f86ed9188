"""What the transaction APIs and Produce have in common: codes by version, and admission.

The core raises the newest code for every refusal. Older versions of a request do not know some of
them: PRODUCER_FENCED (KIP-588) was INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE (KIP-890) was
INVALID_TXN_STATE.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.partition import Partition
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.transaction import ClientIdentity, ProducerIdAndEpoch
from odradek.protocol.apis.produce import ProduceRequest
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.produce import Batch

RETRY_SECONDS: Final = 0.02
"""Between two attempts to add a partition whose last transaction is not complete yet."""

PRODUCE_ADDS_FROM: Final = 12
PRODUCE_ABORTABLE_FROM: Final = 11

COORDINATOR_TROUBLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


REFUSED_FOR_GOOD: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Refusals of records and offsets that a line in the log explains."""


def code_for(
    error: KafkaError, version: int, *, fenced_from: int, abortable_from: int
) -> ErrorCode:
    """The code of a refusal as `version` of a request knows it."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error.code is ErrorCode.TRANSACTION_ABORTABLE and version < abortable_from:
        return ErrorCode.INVALID_TXN_STATE
    return error.code


def transaction_version_of_produce(version: int) -> int:
    """From Produce 12 on a client speaks transaction version 2."""
    return 2 if version >= PRODUCE_ADDS_FROM else 0


async def admit(
    context: RequestContext, request: ProduceRequest, batches: Sequence["Batch"]
) -> None:
    """Let transactional batches into their transaction; `error` is set on those that may not.

    No other task runs between the last check and the return. Raises KafkaError for all of them.
    """
    producer = one_producer(batches)
    for batch in batches:
        batch.error = _fenced_here(batch)
    unknown = [batch for batch in batches if _must_be_admitted(context, batch)]
    if producer is None or not unknown:
        return
    transactional_id = request.transactional_id
    assert transactional_id is not None
    if context.api_version >= PRODUCE_ADDS_FROM:
        partitions = [_where(batch) for batch in unknown]
        try:
            await _add(context, request, producer, partitions)
        except KafkaError as error:
            _set_errors(context, unknown, dict.fromkeys(partitions, error.code))
        # Others had their turn: what was open may have ended, and must be asked about now.
        unknown = [batch for batch in batches if _must_be_admitted(context, batch)]
    verified = context.core.transactions.verify(
        transactional_id=transactional_id,
        producer=producer,
        partitions=[_where(batch) for batch in unknown],
    )
    _set_errors(context, unknown, verified)


def _where(batch: "Batch") -> TopicPartition:
    return TopicPartition(batch.topic, batch.index)


def _fenced_here(batch: "Batch") -> KafkaError | None:
    """What the partition itself knows comes first: the coordinator may know the producer by another
    id by now and would say so, which no producer recovers from (KAFKA-19690)."""
    header, partition = batch.header, batch.partition
    if header is None or partition is None or not header.is_transactional:
        return None
    if not partition.has_newer_epoch(header.producer_id, header.producer_epoch):
        return None
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"A later epoch than {header.producer_epoch} of producer {header.producer_id} was here.",
    )


def _must_be_admitted(context: RequestContext, batch: "Batch") -> bool:
    """Only the first batch of a transaction in a partition: the log knows the others."""
    header, partition = batch.header, batch.partition
    if batch.error is not None or header is None or partition is None:
        return False
    if not header.is_transactional:
        return False
    if not context.core.config.transaction_partition_verification_enable:
        return context.api_version >= PRODUCE_ADDS_FROM
    return not partition.has_open_transaction(header.producer_id, header.producer_epoch)


def one_producer(
    batches: Iterable["Batch"], before: ProducerIdAndEpoch | None = None
) -> ProducerIdAndEpoch | None:
    """Return whose transactional batches these are, None if none is (KAFKA-14916: of one producer).

    `before`: whose others of the same request are. Raises KafkaError for several producers.
    """
    producers = {} if before is None else {before: None}
    producers |= {
        ProducerIdAndEpoch(
            producer_id=batch.header.producer_id, producer_epoch=batch.header.producer_epoch
        ): None
        for batch in batches
        if batch.header is not None and batch.header.is_transactional
    }
    if len(producers) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "One request has transactional batches of several producers.",
        )
    return next(iter(producers), None)


async def _add(
    context: RequestContext,
    request: ProduceRequest,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
) -> None:
    """Add partitions to the transaction of a version 2 client.

    While the transaction before is being completed the coordinator answers
    CONCURRENT_TRANSACTIONS; it is asked again until the request's own time is up (KAFKA-18654).
    """
    assert request.transactional_id is not None
    deadline = trio.current_time() + max(request.timeout_ms, 0) / 1000
    while True:
        try:
            await context.core.transactions.add_partitions(
                transactional_id=request.transactional_id,
                producer=producer,
                partitions=partitions,
                transaction_version=2,
                max_wait_ms=max(0, int((deadline - trio.current_time()) * 1000)),
            )
            return
        except KafkaError as error:
            is_late = trio.current_time() + RETRY_SECONDS > deadline
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or is_late:
                raise
        await trio.sleep(RETRY_SECONDS)


def tell_refused(
    context: RequestContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    what: str,
    error: KafkaError,
) -> str:
    """A line in the log for what a partition or the coordinator refused. Returns the cause, in
    words."""
    if error.code not in REFUSED_FOR_GOOD:
        return error.message
    transactions = context.core.transactions
    why = transactions.why_refused(transactional_id, producer) or error.message
    transactions.tell_refused(transactional_id, what, context.client, why)
    return why


def tell(context: RequestContext, transactional_id: str, batches: Iterable["Batch"]) -> None:
    """After a transactional Produce: its producer was seen here, or it was refused, and hears why
    (from version 8 on)."""
    for batch in batches:
        header = batch.header
        if header is None or not header.is_transactional:
            continue
        producer = ProducerIdAndEpoch(
            producer_id=header.producer_id, producer_epoch=header.producer_epoch
        )
        if batch.error is None:
            context.saw(transactional_id, producer)
        else:
            what = f"a batch for {_where(batch)}"
            why = tell_refused(context, transactional_id, producer, what, batch.error)
            batch.error = KafkaError(batch.error.code, why)


def _set_errors(
    context: RequestContext,
    batches: Iterable["Batch"],
    verified: Mapping[TopicPartition, ErrorCode],
) -> None:
    for batch in batches:
        code = verified[_where(batch)]
        if code is not ErrorCode.NONE:
            batch.error = KafkaError(
                produce_code(code, context.api_version),
                f"The transaction coordinator does not vouch for this batch: {code.name}.",
            )


def produce_code(code: ErrorCode, version: int) -> ErrorCode:
    """A coordinator's refusal as a producer understands it.

    NOT_ENOUGH_REPLICAS makes old producers try again without asking for metadata.
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < PRODUCE_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code in COORDINATOR_TROUBLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS_FROM:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


def note_opener(
    context: RequestContext, partition: Partition, producer_id: int, transactional_id: str | None
) -> None:
    """A transactional batch was appended: remember who opened the transaction in the partition."""
    if partition.openers.are_known(producer_id):
        return
    partition.openers.note(
        producer_id,
        transactional_id=transactional_id,
        client=ClientIdentity(client_id=context.client_id, host=context.host),
        now_ms=context.core.clock.wall_ms(),
    )
