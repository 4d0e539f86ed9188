"""Shared by the transaction APIs and Produce: codes by version, and notes of openers.

The core raises the newest code for every refusal. Older versions of a request do not know some of
them: PRODUCER_FENCED (KIP-588) was INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE (KIP-890) was
INVALID_TXN_STATE.
"""

from typing import Final, Protocol

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.partitions.leader import Leader
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode, KafkaError

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
"""The codes that a coordinator answers while it cannot decide."""

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


class NamesProducer(Protocol):
    """A request, or a part of one, that names a producer."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


def producer_of(request: NamesProducer) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )


def code_for(
    error: KafkaError, version: int, *, fenced_from: int, abortable_from: int
) -> ErrorCode:
    """Return the code of a refusal as `version` of a request knows it."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error.code is ErrorCode.TRANSACTION_ABORTABLE and version < abortable_from:
        return ErrorCode.INVALID_TXN_STATE
    return error.code


def log_refusal(
    context: RequestContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    what: str,
    error: KafkaError,
) -> str:
    """Log a request that a partition or the coordinator refused, and return the cause in words."""
    if error.code not in REFUSED_FOR_GOOD:
        return error.message
    transactions = context.core.transactions
    why = transactions.why_refused(transactional_id, producer) or error.message
    transactions.log_refused(transactional_id, what, context.client, why)
    return why


def waits_for_transaction_until(context: RequestContext, timeout_ms: int | None = None) -> float:
    """Return the time until which a request waits while a transaction is being completed.

    It is one time for all parts of the request. `timeout_ms`: the request's own time-out, if it has
    one, which is only a limit here: what the request may wait for is replicas.
    """
    patience_ms = context.core.config.transaction_concurrent_wait_ms
    if timeout_ms is not None:
        patience_ms = min(patience_ms, max(timeout_ms, 0))
    return trio.current_time() + patience_ms / 1000


def ms_until(time: float) -> int:
    """Return the milliseconds that are left until a time of trio's clock; 0 if it is over."""
    return max(0, round((time - trio.current_time()) * 1000))


def produce_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code of a refusal as `version` of Produce knows it.

    NOT_ENOUGH_REPLICAS makes old producers retry without asking for metadata.
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
    context: RequestContext, leader: Leader, producer_id: int, transactional_id: str | None
) -> None:
    """Note the client that opened a transaction in a partition, once its batch is appended."""
    if leader.openers.are_known(producer_id):
        return
    leader.openers.note(
        producer_id,
        transactional_id=transactional_id,
        client=context.client,
        now_ms=context.core.clock.wall_ms(),
    )
