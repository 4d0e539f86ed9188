"""The events of a transaction, and how requests are classified as events.

`init_event`, `add_event`, `end_event` and `disconnect_event` compare a request with the transaction
and return its event. They look at identities only: is this the transaction's producer id? is this
epoch the current one, the one before, another? They decide nothing: the table in `state.py` does.
"""

from enum import Enum, auto
from uuid import UUID

from odradek.broker.txn.transaction import (
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BumpCause,
    ProducerIdAndEpoch,
    State,
    TransactionMetadata,
)
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.late import dataclass


class Event(Enum):
    """All events. Down to END_FOREIGN they are requests, classified by their identity."""

    INIT_NEW = auto()  # InitProducerId without an expected identity: a new instance
    INIT_CURRENT = auto()  # ... expects the current epoch: the same instance wants the next one
    INIT_LAST = auto()  # ... expects the epoch before: a retry of an answered request
    INIT_STALE = auto()  # ... expects another epoch of the producer id
    INIT_FOREIGN = auto()  # ... expects another producer id
    KEEP_NEW = auto()  # the same five with KeepPreparedTxn: an open one stays open (KIP-939)
    KEEP_CURRENT = auto()
    KEEP_LAST = auto()
    KEEP_STALE = auto()
    KEEP_FOREIGN = auto()
    ADD = auto()  # AddPartitionsToTxn, AddOffsetsToTxn, or implied by Produce, TxnOffsetCommit
    ADD_KNOWN = auto()  # ... and all of them are in already
    ADD_KEPT = auto()  # ... to a transaction that was kept, and may only be ended
    ADD_STALE = auto()  # ... with another epoch
    ADD_FOREIGN = auto()  # ... with another producer id
    COMMIT = auto()  # EndTxn(committed=true) with the current epoch
    COMMIT_RETRY = auto()  # ... with the epoch before, which the commit of generation 2 spent
    ABORT = auto()  # EndTxn(committed=false) with the current epoch
    ABORT_RETRY = auto()
    END_STALE = auto()  # EndTxn with any other epoch
    END_FOREIGN = auto()  # EndTxn with another producer id
    FENCE = auto()  # its time-out has passed
    DISCONNECT = auto()  # the last connection of its producer was closed
    DISCONNECT_STALE = auto()  # ... of a producer that is not current any more, or that commits in
    # two phases and may therefore be disconnected for any time
    ABORT_FENCED = auto()  # second half of a fence
    MARKED = auto()  # every partition has acknowledged its marker, or is gone
    EXPIRE = auto()  # transactional.id.expiration.ms have passed without use


class Answer(Enum):
    """The reasons why nothing changes."""

    DONE = auto()  # the change has been made before: success
    BUSY = auto()  # CONCURRENT_TRANSACTIONS, after a wait for what is under way
    INVALID = auto()  # INVALID_TXN_STATE
    FENCED = auto()  # PRODUCER_FENCED
    FOREIGN = auto()  # INVALID_PRODUCER_ID_MAPPING
    LATE = auto()  # an event of the coordinator that came too late to matter


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A request to step the table: an event and its fields.

    `producer_id` is a fresh one if the move `needs_producer_id`.
    """

    event: Event
    now_ms: int
    transaction_version: int = 2
    partitions: frozenset[TopicIdPartition] = frozenset()
    timeout_ms: int = 0
    producer_id: int = NO_PRODUCER_ID
    client: ClientIdentity | None = None
    cause: BumpCause | None = None
    decision_id: UUID | None = None


def init_event(
    transaction: TransactionMetadata, expected: ProducerIdAndEpoch | None, *, keep: bool = False
) -> Event:
    """Classify InitProducerId. `keep`: it has KeepPreparedTxn."""
    current = transaction.current
    if expected is None or current.producer_epoch == NO_PRODUCER_EPOCH:
        return Event.KEEP_NEW if keep else Event.INIT_NEW
    epoch = expected.producer_epoch
    # A client whose answer was lost still names the producer id whose epochs were used up
    # (KIP-360).
    is_rotated_away = (
        expected.producer_id == transaction.previous_producer_id and epoch >= LAST_EPOCH
    )
    if expected.producer_id != current.producer_id and not is_rotated_away:
        return Event.KEEP_FOREIGN if keep else Event.INIT_FOREIGN
    if epoch == current.producer_epoch:
        return Event.KEEP_CURRENT if keep else Event.INIT_CURRENT
    if epoch != transaction.last_producer_epoch:
        return Event.KEEP_STALE if keep else Event.INIT_STALE
    # In an open transaction the epoch before is a retry only if the transaction was kept: only then
    # was an InitProducerId answered since the transaction began.
    if keep and transaction.state is State.ONGOING and not transaction.is_kept:
        return Event.KEEP_STALE
    return Event.KEEP_LAST if keep else Event.INIT_LAST


def add_event(
    transaction: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    partitions: frozenset[TopicIdPartition],
) -> Event:
    """Classify a request that adds partitions."""
    current = transaction.current
    if producer.producer_id != current.producer_id:
        return Event.ADD_FOREIGN
    # invariant admission 1
    if producer.producer_epoch != current.producer_epoch:
        return Event.ADD_STALE
    if transaction.is_kept:
        return Event.ADD_KEPT
    return Event.ADD_KNOWN if partitions <= transaction.partitions else Event.ADD


def end_event(
    transaction: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    transaction_version: int,
    *,
    committed: bool,
) -> Event:
    """Classify EndTxn.

    The epochs must be equal: only the coordinator makes epochs, so a higher one is wrong too
    (KAFKA-9600).
    """
    epoch, current = producer.producer_epoch, transaction.current
    # An epoch one behind is a retry only if the last end was of generation 2: no other end spends
    # an epoch. Kafka does not check that. There, a client whose transaction was aborted by a fence
    # may get success for its commit, after it has committed the next transaction as a client of
    # generation 0.
    is_ours = producer.producer_id == current.producer_id
    if transaction_version == 2 and transaction.transaction_version == 2:
        is_overflow = (
            producer.producer_id == transaction.previous_producer_id
            and epoch == LAST_EPOCH
            and current.producer_epoch == 0
        )
        if is_overflow or (is_ours and epoch == current.producer_epoch - 1):
            return Event.COMMIT_RETRY if committed else Event.ABORT_RETRY
    if not is_ours:
        return Event.END_FOREIGN
    # invariant epochs 2: EndTxn compares epochs for equality.
    # plant KAFKA-9600
    if epoch != current.producer_epoch:
        return Event.END_STALE
    return Event.COMMIT if committed else Event.ABORT


def disconnect_event(transaction: TransactionMetadata, producer: ProducerIdAndEpoch) -> Event:
    """Classify the loss of a producer's last connection. An older epoch ends no transaction."""
    is_current = producer == transaction.current and not transaction.never_times_out
    return Event.DISCONNECT if is_current else Event.DISCONNECT_STALE
