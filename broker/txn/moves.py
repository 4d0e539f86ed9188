"""The effect of each move on the metadata of a transaction. Pure: no value is changed in place.

The table in `state.py` has the state and the event of each move; its docstring has the reasons.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from odradek.broker.txn.events import Event, StepRequest
from odradek.broker.txn.transaction import (
    FENCED_LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    BumpCause,
    EpochBump,
    State,
    TransactionMetadata,
)
from odradek.late import dataclass

Change = Callable[[TransactionMetadata, StepRequest], TransactionMetadata]


@dataclass(frozen=True, slots=True)
class Move:
    """A target state and a change of the fields.

    After the last epoch, a move that spends an epoch takes a new producer id.
    """

    target: State
    change: Change
    spends_epoch: bool = False


def _to_empty(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    return replace(
        transaction,
        state=State.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        timeout_ms=request.timeout_ms,
        client=request.client,
        decision_id=None,
    )


def _with_next_epoch(
    transaction: TransactionMetadata, request: StepRequest, last: int
) -> TransactionMetadata:
    emptied = replace(_to_empty(transaction, request), last_producer_epoch=last)
    # invariant epochs 4
    if transaction.is_exhausted:
        return replace(emptied, producer_id=request.producer_id, producer_epoch=0)
    return replace(emptied, producer_epoch=transaction.producer_epoch + 1)


def _to_new_instance(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    """Assign the next epoch to a new instance. The instance before gets no retry."""
    is_first = transaction.producer_epoch == NO_PRODUCER_EPOCH
    after = _with_next_epoch(transaction, request, NO_PRODUCER_EPOCH)
    return after if is_first else _with_cause(after, request, _why(request))


def _why(request: StepRequest) -> BumpCause:
    """Return the cause of a bump: a new instance, unless an administrator sent the request."""
    is_administrator = request.cause is BumpCause.ADMINISTRATOR
    return BumpCause.ADMINISTRATOR if is_administrator else BumpCause.NEW_INSTANCE


def _to_same_instance(
    transaction: TransactionMetadata, request: StepRequest
) -> TransactionMetadata:
    """Assign the next epoch to the same instance, whose retry names the epoch before (KIP-360)."""
    after = _with_next_epoch(transaction, request, transaction.producer_epoch)
    return _with_cause(after, request, BumpCause.RESUMED)


def _to_same_identity(
    transaction: TransactionMetadata, request: StepRequest
) -> TransactionMetadata:
    """Keep the identity: the answer was lost, and the retry gets the same one."""
    return _to_empty(transaction, request)


def _with_kept_transaction(
    transaction: TransactionMetadata, request: StepRequest, last: int
) -> TransactionMetadata:
    """Leave the transaction open under its identity, and give the new instance the next one."""
    current = transaction.current
    # Once an instance that commits in two phases has kept the transaction, it never gets a time-out
    # again: the outside coordinator may decide at any later time (KIP-939).
    is_lifted = request.timeout_ms == NO_TIMEOUT_MS
    after = replace(
        transaction,
        next_producer_id=current.producer_id,
        next_producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=last,
        timeout_ms=NO_TIMEOUT_MS if is_lifted else transaction.timeout_ms,
        client=request.client,
    )
    if transaction.is_exhausted:
        return replace(after, next_producer_id=request.producer_id, next_producer_epoch=0)
    return after


def _kept_for_new(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    after = _with_kept_transaction(transaction, request, NO_PRODUCER_EPOCH)
    return _with_cause(after, request, BumpCause.NEW_INSTANCE)


def _kept_for_same(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    after = _with_kept_transaction(transaction, request, transaction.current.producer_epoch)
    return _with_cause(after, request, BumpCause.RESUMED)


# invariant epochs 3
def _to_fenced(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    assert request.cause is not None
    after = replace(
        transaction,
        state=State.PREPARE_EPOCH_FENCE,
        client=request.client or transaction.client,
    )
    return _with_cause(after, request, request.cause)


def _with_cause(
    transaction: TransactionMetadata, request: StepRequest, cause: BumpCause
) -> TransactionMetadata:
    return replace(transaction, bump=EpochBump(cause=cause, at_ms=request.now_ms))


def _with_partitions(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    """Add partitions. The time of a transaction starts with its first partition.

    What it has of a topic that was made anew since stays in, too. The leader that asks, or this
    broker's image, may not know yet which of two topics of a name is the newer one.
    """
    is_open = transaction.state is State.ONGOING
    return replace(
        transaction,
        state=State.ONGOING,
        partitions=transaction.partitions | request.partitions,
        started_ms=transaction.started_ms if is_open else request.now_ms,
        transaction_version=request.transaction_version,
        decision_id=None,
    )


def _decision(target: State) -> Change:
    """Return the change to Prepare* in generations 0 and 1: the epoch stays."""

    def change(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
        return replace(
            transaction,
            state=target,
            next_producer_id=(
                transaction.next_producer_id if transaction.is_kept else NO_PRODUCER_ID
            ),
            transaction_version=request.transaction_version,
            decision_id=None,
        )

    return change


def _decided_with_next_epoch(target: State) -> Change:
    """Return the change to Prepare* in generation 2: the end spends an epoch (KIP-890)."""

    def change(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
        # The minimum is for an id that an older Kafka has left at epoch 32,767 (KAFKA-20090).
        # invariant epochs 1: Each end of a TV2 transaction spends an epoch, so that a delayed
        # EndTxn cannot end the next transaction.
        # plant KAFKA-17754
        after = replace(
            transaction,
            state=target,
            producer_epoch=min(transaction.producer_epoch + 1, FENCED_LAST_EPOCH),
            last_producer_epoch=transaction.current.producer_epoch,
            next_producer_id=request.producer_id,
            transaction_version=2,
            decision_id=request.decision_id,
        )
        # Of a kept transaction both epochs are spent. The markers need an epoch above that of the
        # records. The producer needs an epoch above that of its request, or else that request,
        # delayed, could end the next transaction (KAFKA-17754).
        if transaction.is_kept and transaction.is_exhausted:
            after = replace(after, next_producer_epoch=0)
        elif transaction.is_kept:
            after = replace(
                after,
                next_producer_id=transaction.next_producer_id,
                next_producer_epoch=transaction.next_producer_epoch + 1,
            )
        if transaction.is_exhausted and request.event is not Event.ABORT_FENCED:
            return _with_cause(after, request, BumpCause.EXHAUSTED)
        return after

    return change


def _to_void_abort(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    """Spend the epoch by an abort without a transaction, which still needs a start time."""
    after = _decided_with_next_epoch(State.PREPARE_ABORT)(transaction, request)
    return replace(after, started_ms=request.now_ms)


def _completion(target: State) -> Change:
    """Return the change to Complete*, which makes the assigned identity the current one."""

    def change(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
        assigned = transaction.assigned_producer
        return replace(
            transaction,
            state=target,
            partitions=frozenset(),
            producer_id=assigned.producer_id,
            producer_epoch=assigned.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )

    return change


def _to_dead(transaction: TransactionMetadata, request: StepRequest) -> TransactionMetadata:
    return replace(transaction, state=State.DEAD, partitions=frozenset())


BUMP: Final = Move(State.EMPTY, _to_new_instance, spends_epoch=True)
GO_ON: Final = Move(State.EMPTY, _to_same_instance, spends_epoch=True)
REPEAT: Final = Move(State.EMPTY, _to_same_identity)
KEEP: Final = Move(State.ONGOING, _kept_for_new, spends_epoch=True)
KEEP_ON: Final = Move(State.ONGOING, _kept_for_same, spends_epoch=True)
FENCE: Final = Move(State.PREPARE_EPOCH_FENCE, _to_fenced)
ADD: Final = Move(State.ONGOING, _with_partitions)
COMMIT1: Final = Move(State.PREPARE_COMMIT, _decision(State.PREPARE_COMMIT))
ABORT1: Final = Move(State.PREPARE_ABORT, _decision(State.PREPARE_ABORT))
COMMIT2: Final = Move(
    State.PREPARE_COMMIT, _decided_with_next_epoch(State.PREPARE_COMMIT), spends_epoch=True
)
ABORT2: Final = Move(
    State.PREPARE_ABORT, _decided_with_next_epoch(State.PREPARE_ABORT), spends_epoch=True
)
VOID: Final = Move(State.PREPARE_ABORT, _to_void_abort, spends_epoch=True)
CLOSE_C: Final = Move(State.COMPLETE_COMMIT, _completion(State.COMPLETE_COMMIT))
CLOSE_A: Final = Move(State.COMPLETE_ABORT, _completion(State.COMPLETE_ABORT))
BURY: Final = Move(State.DEAD, _to_dead)
