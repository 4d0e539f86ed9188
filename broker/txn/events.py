"""What can happen to a transaction, and whose doing it is.

`init_event`, `add_event`, `end_event` and `disconnect_event` compare a request with the transaction
and say which event it is. They look at identities only (is this producer id ours? is this epoch the
current one, the one before, another?) and decide nothing: the table in `state.py` does.
"""

from dataclasses import dataclass
from enum import Enum, auto

from odradek.broker.client_identity import ClientIdentity
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.transaction import (
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BumpCause,
    ProducerIdAndEpoch,
    State,
    Transaction,
)


class Event(Enum):
    """Everything that can happen. Down to END_FOREIGN requests, told apart by whose they are."""

    INIT_NEW = auto()  # InitProducerId that expects nothing: a new instance
    INIT_CURRENT = auto()  # ... expects the current epoch: the same instance wants the next one
    INIT_LAST = auto()  # ... expects the epoch before: a retry of an answered request
    INIT_STALE = auto()  # ... expects another epoch of our producer id
    INIT_FOREIGN = auto()  # ... expects a producer id that is not ours
    KEEP_NEW = auto()  # the same five with KeepPreparedTxn: leave open what is open (KIP-939)
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
    FENCE = auto()  # its time is over
    DISCONNECT = auto()  # the last connection of its producer was closed
    DISCONNECT_STALE = auto()  # ... of a producer that is not the current one any more, or that
    # commits in two phases, and so may be away for as long as it likes
    ABORT_FENCED = auto()  # second half of a fence
    MARKED = auto()  # every partition has acknowledged its marker, or is gone
    EXPIRE = auto()  # nobody used the id for transactional.id.expiration.ms


class Answer(Enum):
    """Why nothing changes."""

    DONE = auto()  # it is so already: success
    BUSY = auto()  # CONCURRENT_TRANSACTIONS, after waiting for what is under way
    INVALID = auto()  # INVALID_TXN_STATE
    FENCED = auto()  # PRODUCER_FENCED
    FOREIGN = auto()  # INVALID_PRODUCER_ID_MAPPING
    LATE = auto()  # an event of our own that came too late to matter
    NEVER = auto()  # cannot happen: a bug of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An event and what it brings. `producer_id`: a fresh one if the move `needs_producer_id`."""

    event: Event
    now_ms: int
    transaction_version: int = 2
    partitions: frozenset[TopicPartition] = frozenset()
    timeout_ms: int = 0
    producer_id: int = NO_PRODUCER_ID
    client: ClientIdentity | None = None
    cause: BumpCause | None = None


def init_event(
    transaction: Transaction, expected: ProducerIdAndEpoch | None, *, keep: bool = False
) -> Event:
    """`keep`: with KeepPreparedTxn.

    In an open transaction the epoch before is a retry only if the transaction was kept: only then
    has an InitProducerId been answered since it began.
    """
    current = transaction.current
    if expected is None or current.producer_epoch == NO_PRODUCER_EPOCH:
        return Event.KEEP_NEW if keep else Event.INIT_NEW
    epoch = expected.producer_epoch
    is_rotated_away = (
        expected.producer_id == transaction.previous_producer_id and epoch >= LAST_EPOCH
    )
    if expected.producer_id != current.producer_id and not is_rotated_away:
        return Event.KEEP_FOREIGN if keep else Event.INIT_FOREIGN
    if epoch == current.producer_epoch:
        return Event.KEEP_CURRENT if keep else Event.INIT_CURRENT
    if epoch != transaction.last_producer_epoch:
        return Event.KEEP_STALE if keep else Event.INIT_STALE
    if keep and transaction.state is State.ONGOING and not transaction.is_kept:
        return Event.KEEP_STALE
    return Event.KEEP_LAST if keep else Event.INIT_LAST


def add_event(
    transaction: Transaction, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
) -> Event:
    current = transaction.current
    if producer.producer_id != current.producer_id:
        return Event.ADD_FOREIGN
    if producer.producer_epoch != current.producer_epoch:
        return Event.ADD_STALE
    if transaction.is_kept:
        return Event.ADD_KEPT
    return Event.ADD_KNOWN if partitions <= transaction.partitions else Event.ADD


def end_event(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    transaction_version: int,
    *,
    committed: bool,
) -> Event:
    """Epochs must be equal, not just new enough: nobody has a higher one (KAFKA-9600).

    One behind is a retry only if the last end was of generation 2, for no other spends an epoch.
    (Kafka does not look. There, the commit of a transaction that was aborted by a fence succeeds
    when the same client, by then of generation 0, has committed its next one.)
    """
    epoch, current = producer.producer_epoch, transaction.current
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
    if epoch != current.producer_epoch:
        return Event.END_STALE
    return Event.COMMIT if committed else Event.ABORT


def disconnect_event(transaction: Transaction, producer: ProducerIdAndEpoch) -> Event:
    """An epoch has one producer, so a connection of an older epoch closes nothing of today's."""
    is_current = producer == transaction.current and not transaction.never_times_out
    return Event.DISCONNECT if is_current else Event.DISCONNECT_STALE
