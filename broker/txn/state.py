"""What a transaction may do: the whole specification, as one table, and no I/O.

Theory of operation
===================
A transactional id has one `Transaction`: an immutable value. Whatever happens to it (a request, a
time-out, the last marker acknowledged) is an `Event`. The coordinator goes through the same five
steps each time:

1. *Classify.* `init_event`, `add_event` and `end_event` compare a request with the transaction and
   say which event it is. They look at identities only (is this producer id ours? is this epoch the
   current one, the one before, another?) and decide nothing.
2. *Decide.* `decide` looks up the cell of the table for the event, the protocol generation of the
   client and the state. A cell is a `Move` (what the transaction becomes) or an `Answer` (why it
   stays as it is). Whether the id is *pending*, that is, has an append under way, comes on top.
3. *Step.* `step` makes the next value out of a `Move`.
4. The coordinator appends that value to `__transaction_state` and waits until it is durable. Only
   then
5. it becomes the current one, and others see it.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                   \\-> (PrepareEpochFence ->) PrepareAbort -> CompleteAbort -> Ongoing ...
    Empty, Complete* -> Dead: the id was idle too long

PrepareCommit and PrepareAbort are the decision: once one of them is durable there is no way back,
and whoever coordinates next finishes it. Complete* says that each partition has its marker.

Protocol generations ("transaction versions", KIP-890). With 0 and 1 an epoch lasts from one
InitProducerId to the next, and a retried EndTxn is known by the state it finds. With 2 each end of
a transaction spends an epoch: Prepare* and the markers carry epoch + 1, which the producer gets as
the answer, so that no delayed request of one transaction can meet the next one (KAFKA-17754). A
retry is then known by its epoch, which is one behind.

Epochs end at 32,766: what would spend one more takes a new producer id with epoch 0 instead, so
that 32,767 is left for fencing a producer at 32,766. From InitProducerId the new id is current at
once. From the end of a transaction it waits in `next_producer_id` while the markers travel under
the old one, and becomes current with Complete*; the producer is told (new id, 0) already
(KAFKA-5283, KAFKA-18660, KAFKA-20090). `previous_producer_id` is the id before the last change, so
that a lost answer can be asked for again.

Fencing. To take an id from its producer while a transaction is open, PrepareEpochFence says what
will happen and PrepareAbort, with the next epoch, does it: one epoch, not two (KAFKA-19367). The
former is never stored, and neither is visible before the latter is durable, so that a fence that
could not be written spends no epoch however often it is tried (KAFKA-9666). A fence is always an
abort of generation 2, whichever generation the fenced client is.

Sources: Apache Kafka 4.3 (TransactionState, TransactionMetadata, TransactionCoordinator), KIP-98,
KIP-360, KIP-588, KIP-890.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.transaction import (
    FENCED_LAST_EPOCH,
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BumpCause,
    ClientIdentity,
    EpochBump,
    ProducerIdAndEpoch,
    State,
    Transaction,
)
from odradek.protocol.errors import ErrorCode


class Event(Enum):
    """Everything that can happen. The first fifteen are requests, told apart by whose they are."""

    INIT_NEW = auto()  # InitProducerId that expects nothing: a new instance
    INIT_CURRENT = auto()  # ... expects the current epoch: the same instance wants the next one
    INIT_LAST = auto()  # ... expects the epoch before: a retry of an answered request
    INIT_STALE = auto()  # ... expects another epoch of our producer id
    INIT_FOREIGN = auto()  # ... expects a producer id that is not ours
    ADD = auto()  # AddPartitionsToTxn, AddOffsetsToTxn, or implied by Produce, TxnOffsetCommit
    ADD_KNOWN = auto()  # ... and all of them are in already
    ADD_STALE = auto()  # ... with another epoch
    ADD_FOREIGN = auto()  # ... with another producer id
    COMMIT = auto()  # EndTxn(committed=true) with the current epoch
    COMMIT_RETRY = auto()  # ... with the epoch before, which the commit of generation 2 spent
    ABORT = auto()  # EndTxn(committed=false) with the current epoch
    ABORT_RETRY = auto()
    END_STALE = auto()  # EndTxn with any other epoch
    END_FOREIGN = auto()  # EndTxn with another producer id
    FENCE = auto()  # it timed out, or somebody with the right to asks for its end
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


Change = Callable[[Transaction, Request], Transaction]


@dataclass(frozen=True, slots=True)
class Move:
    """To a state, by a change of the fields. After the last epoch, one that spends an epoch
    takes a new producer id."""

    target: State
    change: Change
    spends_epoch: bool = False


Cell = Move | Answer


def _emptied(transaction: Transaction, request: Request) -> Transaction:
    return replace(
        transaction,
        state=State.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        timeout_ms=request.timeout_ms,
        client=request.client,
    )


def _with_next_epoch(transaction: Transaction, request: Request, last: int) -> Transaction:
    emptied = replace(_emptied(transaction, request), last_producer_epoch=last)
    if transaction.is_exhausted:
        return replace(emptied, producer_id=request.producer_id, producer_epoch=0)
    return replace(emptied, producer_epoch=transaction.producer_epoch + 1)


def _bumped(transaction: Transaction, request: Request) -> Transaction:
    """A new instance: nobody may go on from the epoch before."""
    is_first = transaction.producer_epoch == NO_PRODUCER_EPOCH
    after = _with_next_epoch(transaction, request, NO_PRODUCER_EPOCH)
    return after if is_first else _explained(after, request, BumpCause.NEW_INSTANCE)


def _continued(transaction: Transaction, request: Request) -> Transaction:
    """The same instance; its retry will name the epoch that is current now (KIP-360)."""
    after = _with_next_epoch(transaction, request, transaction.producer_epoch)
    return _explained(after, request, BumpCause.RESUMED)


def _repeated(transaction: Transaction, request: Request) -> Transaction:
    """The answer was lost: give the same one again."""
    return _emptied(transaction, request)


def _fenced(transaction: Transaction, request: Request) -> Transaction:
    assert request.cause is not None
    after = replace(
        transaction,
        state=State.PREPARE_EPOCH_FENCE,
        client=request.client or transaction.client,
    )
    return _explained(after, request, request.cause)


def _explained(transaction: Transaction, request: Request, cause: BumpCause) -> Transaction:
    return replace(transaction, bump=EpochBump(cause=cause, at_ms=request.now_ms))


def _joined(transaction: Transaction, request: Request) -> Transaction:
    """The clock of a transaction starts with its first partition."""
    is_open = transaction.state is State.ONGOING
    return replace(
        transaction,
        state=State.ONGOING,
        partitions=transaction.partitions | request.partitions,
        started_ms=transaction.started_ms if is_open else request.now_ms,
        transaction_version=request.transaction_version,
    )


def _decided(target: State) -> Change:
    """Generations 0 and 1: the epoch stays."""

    def change(transaction: Transaction, request: Request) -> Transaction:
        return replace(
            transaction,
            state=target,
            next_producer_id=NO_PRODUCER_ID,
            transaction_version=request.transaction_version,
        )

    return change


def _decided_with_next_epoch(target: State) -> Change:
    """Generation 2: the epoch is spent.

    The minimum is for what an older Kafka may have left behind at 32,767 (KAFKA-20090).
    """

    def change(transaction: Transaction, request: Request) -> Transaction:
        after = replace(
            transaction,
            state=target,
            producer_epoch=min(transaction.producer_epoch + 1, FENCED_LAST_EPOCH),
            last_producer_epoch=transaction.producer_epoch,
            next_producer_id=request.producer_id,
            transaction_version=2,
        )
        if transaction.is_exhausted and request.event is not Event.ABORT_FENCED:
            return _explained(after, request, BumpCause.EXHAUSTED)
        return after

    return change


def _voided(transaction: Transaction, request: Request) -> Transaction:
    """An abort without a transaction only spends the epoch; it still needs a start time."""
    after = _decided_with_next_epoch(State.PREPARE_ABORT)(transaction, request)
    return replace(after, started_ms=request.now_ms)


def _completed(target: State) -> Change:
    def change(transaction: Transaction, request: Request) -> Transaction:
        after = replace(
            transaction,
            state=target,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
        )
        if transaction.next_producer_id == NO_PRODUCER_ID:
            return after
        return replace(after, producer_id=transaction.next_producer_id, producer_epoch=0)

    return change


def _buried(transaction: Transaction, request: Request) -> Transaction:
    return replace(transaction, state=State.DEAD, partitions=frozenset())


BUMP: Final = Move(State.EMPTY, _bumped, spends_epoch=True)
GO_ON: Final = Move(State.EMPTY, _continued, spends_epoch=True)
REPEAT: Final = Move(State.EMPTY, _repeated)
FENCE: Final = Move(State.PREPARE_EPOCH_FENCE, _fenced)
ADD: Final = Move(State.ONGOING, _joined)
COMMIT1: Final = Move(State.PREPARE_COMMIT, _decided(State.PREPARE_COMMIT))
ABORT1: Final = Move(State.PREPARE_ABORT, _decided(State.PREPARE_ABORT))
COMMIT2: Final = Move(
    State.PREPARE_COMMIT, _decided_with_next_epoch(State.PREPARE_COMMIT), spends_epoch=True
)
ABORT2: Final = Move(
    State.PREPARE_ABORT, _decided_with_next_epoch(State.PREPARE_ABORT), spends_epoch=True
)
VOID: Final = Move(State.PREPARE_ABORT, _voided, spends_epoch=True)
CLOSE_C: Final = Move(State.COMPLETE_COMMIT, _completed(State.COMPLETE_COMMIT))
CLOSE_A: Final = Move(State.COMPLETE_ABORT, _completed(State.COMPLETE_ABORT))
BURY: Final = Move(State.DEAD, _buried)

E = Event
OLD: Final = (0, 1)
TV2: Final = (2,)
ANY: Final = (0, 1, 2)
DONE, BUSY, INVALID, FENCED = Answer.DONE, Answer.BUSY, Answer.INVALID, Answer.FENCED
FOREIGN, LATE, NEVER = Answer.FOREIGN, Answer.LATE, Answer.NEVER

Row = tuple[Cell, Cell, Cell, Cell, Cell, Cell, Cell, Cell]

# fmt: off
ROWS: Final[tuple[tuple[Event, tuple[int, ...], Row], ...]] = (
    #                       Empty    Ongoing  PrepComm PrepAbor ComplCom ComplAbo Dead   EpochFence
    (E.INIT_NEW,     ANY, (BUMP,    FENCE,   BUSY,    BUSY,    BUMP,    BUMP,    NEVER, NEVER)),
    (E.INIT_CURRENT, ANY, (GO_ON,   FENCE,   BUSY,    BUSY,    GO_ON,   GO_ON,   NEVER, NEVER)),
    (E.INIT_LAST,    ANY, (REPEAT,  FENCE,   BUSY,    BUSY,    REPEAT,  REPEAT,  NEVER, NEVER)),
    (E.INIT_STALE,   ANY, (FENCED,  FENCE,   BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),
    (E.INIT_FOREIGN, ANY, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),

    (E.ADD,          ANY, (ADD,     ADD,     BUSY,    BUSY,    ADD,     ADD,     NEVER, NEVER)),
    (E.ADD_KNOWN,    ANY, (ADD,     DONE,    BUSY,    BUSY,    ADD,     ADD,     NEVER, NEVER)),
    (E.ADD_STALE,    ANY, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),
    (E.ADD_FOREIGN,  ANY, (FOREIGN, FOREIGN, BUSY,    BUSY,    FOREIGN, FOREIGN, NEVER, NEVER)),

    (E.COMMIT,       OLD, (INVALID, COMMIT1, BUSY,    INVALID, DONE,    INVALID, NEVER, NEVER)),
    (E.COMMIT,       TV2, (INVALID, COMMIT2, FENCED,  FENCED,  INVALID, INVALID, NEVER, NEVER)),
    (E.COMMIT_RETRY, OLD, (FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  NEVER, NEVER)),
    (E.COMMIT_RETRY, TV2, (FENCED,  FENCED,  BUSY,    INVALID, DONE,    INVALID, NEVER, NEVER)),
    (E.ABORT,        OLD, (INVALID, ABORT1,  INVALID, BUSY,    INVALID, DONE,    NEVER, NEVER)),
    (E.ABORT,        TV2, (VOID,    ABORT2,  FENCED,  FENCED,  VOID,    VOID,    NEVER, NEVER)),
    (E.ABORT_RETRY,  OLD, (FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  NEVER, NEVER)),
    (E.ABORT_RETRY,  TV2, (FENCED,  FENCED,  INVALID, BUSY,    INVALID, DONE,    NEVER, NEVER)),
    (E.END_STALE,    ANY, (FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  NEVER, NEVER)),
    (E.END_FOREIGN,  ANY, (FOREIGN, FOREIGN, FOREIGN, FOREIGN, FOREIGN, FOREIGN, NEVER, NEVER)),

    (E.FENCE,        ANY, (LATE,    FENCE,   LATE,    LATE,    LATE,    LATE,    NEVER, NEVER)),
    (E.ABORT_FENCED, ANY, (NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER, ABORT2)),
    (E.MARKED,       ANY, (NEVER,   NEVER,   CLOSE_C, CLOSE_A, NEVER,   NEVER,   NEVER, NEVER)),
    (E.EXPIRE,       ANY, (BURY,    LATE,    LATE,    LATE,    BURY,    BURY,    NEVER, NEVER)),
)
# fmt: on


def _expanded() -> dict[int, dict[Event, dict[State, Cell]]]:
    """The table by version, event and state. A cell left out or given twice ends the import."""
    table: dict[int, dict[Event, dict[State, Cell]]] = {version: {} for version in ANY}
    for event, versions, row in ROWS:
        for version in versions:
            assert event not in table[version], f"two rows for {event.name} in version {version}"
            table[version][event] = dict(zip(State, row, strict=True))
    for version, events in table.items():
        missing = [event.name for event in Event if event not in events]
        assert not missing, f"no row for {missing} in version {version}"
    return table


TABLE: Final = _expanded()

_OUTRANK_PENDING: Final = frozenset({Answer.FENCED, Answer.FOREIGN})
_ENDS: Final = frozenset(
    {E.COMMIT, E.COMMIT_RETRY, E.ABORT, E.ABORT_RETRY, E.END_STALE, E.END_FOREIGN}
)


def decide(
    transaction: Transaction, event: Event, transaction_version: int, *, is_pending: bool = False
) -> Cell:
    """What `event` does to `transaction`. `is_pending`: an append for it is under way.

    EndTxn looks at whose it is before it looks at what is pending; every other request waits first,
    because the identity itself may be about to change (KAFKA-18660).
    """
    cell = TABLE[transaction_version][event][transaction.state]
    assert cell is not NEVER, f"{event.name} in {transaction.state.label}: {transaction}"
    if is_pending and not (event in _ENDS and cell in _OUTRANK_PENDING):
        return BUSY
    return cell


def needs_producer_id(transaction: Transaction, move: Move) -> bool:
    return move.spends_epoch and transaction.is_exhausted


def step(transaction: Transaction, move: Move, request: Request) -> Transaction:
    """What `transaction` becomes. Pure: nothing is changed."""
    assert not needs_producer_id(transaction, move) or request.producer_id != NO_PRODUCER_ID
    after = replace(
        move.change(transaction, request),
        previous_producer_id=transaction.producer_id,
        updated_ms=request.now_ms,
    )
    assert after.state is move.target, f"{transaction} became {after}"
    return after


def init_event(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> Event:
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return Event.INIT_NEW
    epoch = expected.producer_epoch
    is_rotated_away = (
        expected.producer_id == transaction.previous_producer_id and epoch >= LAST_EPOCH
    )
    if expected.producer_id != transaction.producer_id and not is_rotated_away:
        return Event.INIT_FOREIGN
    if epoch == transaction.producer_epoch:
        return Event.INIT_CURRENT
    return Event.INIT_LAST if epoch == transaction.last_producer_epoch else Event.INIT_STALE


def add_event(
    transaction: Transaction, producer: ProducerIdAndEpoch, partitions: frozenset[TopicPartition]
) -> Event:
    if producer.producer_id != transaction.producer_id:
        return Event.ADD_FOREIGN
    if producer.producer_epoch != transaction.producer_epoch:
        return Event.ADD_STALE
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
    epoch = producer.producer_epoch
    is_ours = producer.producer_id == transaction.producer_id
    if transaction_version == 2 and transaction.transaction_version == 2:
        is_overflow = (
            producer.producer_id == transaction.previous_producer_id
            and epoch == LAST_EPOCH
            and transaction.producer_epoch == 0
        )
        if is_overflow or (is_ours and epoch == transaction.producer_epoch - 1):
            return Event.COMMIT_RETRY if committed else Event.ABORT_RETRY
    if not is_ours:
        return Event.END_FOREIGN
    if epoch != transaction.producer_epoch:
        return Event.END_STALE
    return Event.COMMIT if committed else Event.ABORT


def verify(
    transaction: Transaction, producer: ProducerIdAndEpoch, partition: TopicPartition
) -> ErrorCode:
    """May `producer` write to `partition` now (KIP-890 part 1)? What is pending does not matter."""
    if producer.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_in = partition in transaction.partitions
    return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE
