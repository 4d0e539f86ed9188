"""The epochs of two producers with one transactional id, from the table of transactions. Pure.

The first writes and leaves its transaction open, the second starts and commits one of its own.
"""

from typing import Final

from odradek.broker.txn.events import Event, StepRequest
from odradek.broker.txn.moves import Move
from odradek.broker.txn.state import decide, step
from odradek.broker.txn.transaction import BumpCause, State, TransactionMetadata
from odradek.broker.values.topic_partition import NO_ID, TopicIdPartition
from odradek.late import dataclass

TRANSACTION_VERSION: Final = 2
PARTITIONS: Final = frozenset({TopicIdPartition("refunds", 0, NO_ID)})


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedStory:
    """The producer epochs of what stands in the partition, in its order."""

    first: int
    """Of the records of the first producer."""
    abort: int
    """Of the marker that aborts them."""
    second: int
    commit: int


def fenced_story() -> FencedStory:
    transaction = TransactionMetadata(
        producer_id=0, timeout_ms=60_000, transaction_version=TRANSACTION_VERSION
    )
    transaction = first = _after(transaction, Event.INIT_NEW)
    transaction = _after(transaction, Event.ADD)
    transaction = _after(transaction, Event.INIT_NEW, cause=BumpCause.NEW_INSTANCE)
    transaction = aborting = _after(transaction, Event.ABORT_FENCED)
    transaction = _after(transaction, Event.MARKED)
    transaction = second = _after(transaction, Event.INIT_NEW)
    transaction = _after(transaction, Event.ADD)
    committing = _after(transaction, Event.COMMIT)
    assert (aborting.state, committing.state) == (State.PREPARE_ABORT, State.PREPARE_COMMIT)
    return FencedStory(
        first=first.producer_epoch,
        abort=aborting.producer_epoch,
        second=second.producer_epoch,
        commit=committing.producer_epoch,
    )


def _after(
    transaction: TransactionMetadata, event: Event, *, cause: BumpCause | None = None
) -> TransactionMetadata:
    move = decide(transaction, event, TRANSACTION_VERSION)
    assert isinstance(move, Move), (event, transaction)
    request = StepRequest(
        event=event,
        now_ms=0,
        transaction_version=TRANSACTION_VERSION,
        partitions=PARTITIONS,
        timeout_ms=60_000,
        cause=cause,
    )
    return step(transaction, move, request)
