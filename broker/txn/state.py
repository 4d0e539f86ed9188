"""The states of a transaction: the whole specification, as one table, without I/O.

Theory of operation
===================
A transactional id has one `TransactionMetadata`: an immutable value. Everything that happens to it
(a request, a time-out, the last marker acknowledged) is an `Event`. The coordinator goes through
the same five steps each time:

1. *Classify.* The functions of `events.py` compare a request with the transaction and say which
   event it is. They look at identities only and decide nothing.
2. *Decide.* `decide` looks up the cell of the table for the event, the protocol generation of the
   client and the state. A cell is a `Move` (what the transaction becomes), an `Answer` (why it
   stays as it is) or `NEVER` (it cannot come: the broker has a bug, and stops). Whether the id is
   *pending*, that is, has an append under way, comes on top.
3. *Step.* `step` makes the next value out of a `Move`; how, is in `moves.py`.
4. The coordinator appends that value to `__transaction_state` and waits until it is durable. Only
   then
5. it becomes the current one, and others see it.

The diagram in docs/transactions.md is made from the table, by `diagram.py`.

PrepareCommit and PrepareAbort are the decision. Once one of them is durable there is no way back:
if the coordinator dies, its successor finishes the transaction. Complete* means that each partition
has its marker.

Protocol generations ("transaction versions", KIP-890). With 0 and 1 an epoch lasts from one
InitProducerId to the next, and a retried EndTxn is known by the state it finds. With 2 each end of
a transaction spends an epoch: Prepare* and the markers carry epoch + 1, which the producer gets as
the answer, so that no delayed request of one transaction can meet the next one (KAFKA-17754). A
retry is then known by its epoch, which is one behind.

Epochs end at 32,766: a move that would spend one more takes a new producer id with epoch 0 instead,
so that 32,767 is left for fencing a producer at 32,766. From InitProducerId the new id is current
at once. From the end of a transaction it waits in `next_producer_id` while the markers travel under
the old one, and becomes current with Complete*; EndTxn returns (new id, 0) already (KAFKA-5283,
KAFKA-18660, KAFKA-20090). `previous_producer_id` is the id before the last change, by which the
coordinator recognises the retry of a request whose answer was lost.

Fencing. An id is taken from its producer while a transaction is open in two moves,
PrepareEpochFence and then PrepareAbort with the next epoch. Both spend one epoch together, not two
(KAFKA-19367). PrepareEpochFence is never stored. Neither is visible before PrepareAbort is durable,
so a fence whose append fails spends no epoch, however often it is retried (KAFKA-9666). A fence is
always an abort of generation 2, whichever generation the fenced client is.

Two-phase commit (KIP-939). A producer that has prepared its transaction may be killed. Its next
instance sends InitProducerId with KeepPreparedTxn, which leaves the transaction open, and ends it
as an outside coordinator has decided. The new instance must lock the old one out, so it gets the
next epoch, while records and markers keep the old epoch: two identities, until the end of the
transaction. The new instance may only end the transaction, because no leader accepts records of two
epochs in one transaction. Nothing but its own state keeps the old instance from writing more
records: it is dead, or has flushed before it prepared. A leader does not ask the coordinator about
partitions in which the transaction has begun (as in Kafka). Unlike in Kafka, a transaction with a
time-out may be kept as well. It loses its time-out if the new instance commits in two phases.

Sources: Apache Kafka 4.3 (TransactionState, TransactionMetadata, TransactionCoordinator), KIP-98,
KIP-360, KIP-588, KIP-890, KIP-939 (and
apache/kafka#21735, not merged when this was written).
"""

from dataclasses import replace
from typing import Final

from odradek.broker.txn.events import Answer, Event, StepRequest
from odradek.broker.txn.moves import (
    ABORT1,
    ABORT2,
    ADD,
    BUMP,
    BURY,
    CLOSE_A,
    CLOSE_C,
    COMMIT1,
    COMMIT2,
    FENCE,
    GO_ON,
    KEEP,
    KEEP_ON,
    REPEAT,
    VOID,
    Move,
)
from odradek.broker.txn.transaction import (
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    State,
    TransactionMetadata,
)
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.transition_table import NEVER, Impossible, TransitionTable

E = Event
OLD: Final = (0, 1)
TV2: Final = (2,)
ANY: Final = (0, 1, 2)
DONE, BUSY, INVALID, FENCED = Answer.DONE, Answer.BUSY, Answer.INVALID, Answer.FENCED
FOREIGN, LATE = Answer.FOREIGN, Answer.LATE

Cell = Move | Answer
Row = tuple[Cell | Impossible, ...]

# fmt: off
ROWS: Final[tuple[tuple[Event, tuple[int, ...], Row], ...]] = (
    #                       Empty    Ongoing  PrepComm PrepAbor ComplCom ComplAbo Dead   EpochFence
    (E.INIT_NEW,     ANY, (BUMP,    FENCE,   BUSY,    BUSY,    BUMP,    BUMP,    NEVER, NEVER)),
    (E.INIT_CURRENT, ANY, (GO_ON,   FENCE,   BUSY,    BUSY,    GO_ON,   GO_ON,   NEVER, NEVER)),
    (E.INIT_LAST,    ANY, (REPEAT,  FENCE,   BUSY,    BUSY,    REPEAT,  REPEAT,  NEVER, NEVER)),
    (E.INIT_STALE,   ANY, (FENCED,  FENCE,   BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),
    (E.INIT_FOREIGN, ANY, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),

    (E.KEEP_NEW,     ANY, (BUMP,    KEEP,    BUSY,    BUSY,    BUMP,    BUMP,    NEVER, NEVER)),
    (E.KEEP_CURRENT, ANY, (GO_ON,   KEEP_ON, BUSY,    BUSY,    GO_ON,   GO_ON,   NEVER, NEVER)),
    (E.KEEP_LAST,    ANY, (REPEAT,  DONE,    BUSY,    BUSY,    REPEAT,  REPEAT,  NEVER, NEVER)),
    (E.KEEP_STALE,   ANY, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),
    (E.KEEP_FOREIGN, ANY, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),

    (E.ADD,          ANY, (ADD,     ADD,     BUSY,    BUSY,    ADD,     ADD,     NEVER, NEVER)),
    (E.ADD_KNOWN,    ANY, (ADD,     DONE,    BUSY,    BUSY,    ADD,     ADD,     NEVER, NEVER)),
    (E.ADD_KEPT,     ANY, (NEVER,   INVALID, BUSY,    BUSY,    NEVER,   NEVER,   NEVER, NEVER)),
    (E.ADD_STALE,    ANY, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),
    (E.ADD_FOREIGN,  ANY, (FOREIGN, FOREIGN, BUSY,    BUSY,    FOREIGN, FOREIGN, NEVER, NEVER)),

    (E.COMMIT,       OLD, (INVALID, COMMIT1, BUSY,    BUSY,    DONE,    INVALID, NEVER, NEVER)),
    (E.COMMIT,       TV2, (INVALID, COMMIT2, BUSY,    BUSY,    INVALID, INVALID, NEVER, NEVER)),
    (E.COMMIT_RETRY, OLD, (FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  NEVER, NEVER)),
    (E.COMMIT_RETRY, TV2, (FENCED,  FENCED,  BUSY,    BUSY,    DONE,    INVALID, NEVER, NEVER)),
    (E.ABORT,        OLD, (INVALID, ABORT1,  BUSY,    BUSY,    INVALID, DONE,    NEVER, NEVER)),
    (E.ABORT,        TV2, (VOID,    ABORT2,  BUSY,    BUSY,    VOID,    VOID,    NEVER, NEVER)),
    (E.ABORT_RETRY,  OLD, (FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  NEVER, NEVER)),
    (E.ABORT_RETRY,  TV2, (FENCED,  FENCED,  BUSY,    BUSY,    INVALID, DONE,    NEVER, NEVER)),
    (E.END_STALE,    OLD, (FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  FENCED,  NEVER, NEVER)),
    (E.END_STALE,    TV2, (FENCED,  FENCED,  BUSY,    BUSY,    FENCED,  FENCED,  NEVER, NEVER)),
    (E.END_FOREIGN,  OLD, (FOREIGN, FOREIGN, FOREIGN, FOREIGN, FOREIGN, FOREIGN, NEVER, NEVER)),
    (E.END_FOREIGN,  TV2, (FOREIGN, FOREIGN, BUSY,    BUSY,    FOREIGN, FOREIGN, NEVER, NEVER)),

    (E.FENCE,        ANY, (LATE,    FENCE,   LATE,    LATE,    LATE,    LATE,    NEVER, NEVER)),
    (E.DISCONNECT,   ANY, (LATE,    FENCE,   LATE,    LATE,    LATE,    LATE,    NEVER, NEVER)),
    (E.DISCONNECT_STALE, ANY, (LATE, LATE,   LATE,    LATE,    LATE,    LATE,    NEVER, NEVER)),
    # invariant epochs 3
    (E.ABORT_FENCED, ANY, (NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER, ABORT2)),
    (E.MARKED,       ANY, (NEVER,   NEVER,   CLOSE_C, CLOSE_A, NEVER,   NEVER,   NEVER, NEVER)),
    (E.EXPIRE,       ANY, (BURY,    LATE,    LATE,    LATE,    BURY,    BURY,    NEVER, NEVER)),
)
# fmt: on


TABLE: Final = {
    version: TransitionTable(
        State, Event, [(event, row) for event, of, row in ROWS if version in of]
    )
    for version in ANY
}
"""The table of each generation."""

_OUTRANK_PENDING: Final = frozenset({Answer.FENCED, Answer.FOREIGN})
_ENDS: Final = frozenset(
    {E.COMMIT, E.COMMIT_RETRY, E.ABORT, E.ABORT_RETRY, E.END_STALE, E.END_FOREIGN}
)


def decide(
    transaction: TransactionMetadata,
    event: Event,
    transaction_version: int,
    *,
    is_pending: bool = False,
) -> Cell:
    """Return what `event` does to `transaction`. `is_pending`: an append for it is under way."""
    cell = TABLE[transaction_version][transaction.state, event]
    # invariant epochs 5: Every cell of the table has a value. A cell that cannot happen (NEVER)
    # stops the broker.
    # tests/broker/test_broken_invariant.py
    assert cell is not NEVER, f"{event.name} in {transaction.state.label}: {transaction}"
    # Up to generation 1, EndTxn checks the producer's identity before the pending append. Every
    # other request waits first, because the append may change the identity (KAFKA-18660,
    # KAFKA-20090).
    outranks = transaction_version < 2 and event in _ENDS and cell in _OUTRANK_PENDING
    return BUSY if is_pending and not outranks else cell


# invariant epochs 4: Epochs end at 32,766. After that a new producer id starts at epoch 0.
# plant KAFKA-5283
# plant KAFKA-18660
# plant KAFKA-20090
def needs_producer_id(transaction: TransactionMetadata, move: Move) -> bool:
    """Return True if `move` needs a fresh producer id, because no epoch is left."""
    return move.spends_epoch and transaction.is_exhausted


def _previous_producer_id(transaction: TransactionMetadata) -> int:
    """Return the producer id that the producer used until now."""
    # Deciding a kept transaction has already moved it to the producer id of the new instance.
    if transaction.is_kept and transaction.state.is_prepared:
        return transaction.previous_producer_id
    return transaction.current.producer_id


def step(transaction: TransactionMetadata, move: Move, request: StepRequest) -> TransactionMetadata:
    """Return what `transaction` becomes by `move`. Pure: nothing is changed."""
    assert not needs_producer_id(transaction, move) or request.producer_id != NO_PRODUCER_ID
    after = replace(
        move.change(transaction, request),
        previous_producer_id=_previous_producer_id(transaction),
        updated_ms=request.now_ms,
    )
    assert after.state is move.target, f"{transaction} became {after}"
    return after


def verify(
    transaction: TransactionMetadata, producer: ProducerIdAndEpoch, partition: TopicIdPartition
) -> ErrorCode:
    """Return NONE if `producer` may write to `partition` now, else the error (KIP-890 part 1).

    A pending append does not matter: the answer is about what is durable.
    """
    current = transaction.current
    if producer.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.is_kept:
        return ErrorCode.INVALID_TXN_STATE
    is_in = partition.is_in(transaction.partitions)
    # invariant admission 1: A batch cannot open a transaction in a partition that its coordinator
    # does not know to be in it.
    # plant KAFKA-14402
    # plant KAFKA-12671
    return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE
