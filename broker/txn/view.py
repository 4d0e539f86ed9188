"""What one transactional id is doing, for whoever asks: administrators, the log, the web page."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

import trio

from odradek.broker.client_identity import ClientIdentity
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn import explain
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import EpochBump, State, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionView:
    """One transactional id at one moment. Times are wall-clock milliseconds."""

    transactional_id: str
    transaction: Transaction
    coordinator_epoch: int
    pending: Transaction | None
    """What is being made durable now."""
    partitions: Collection[TopicPartition]
    """Those of an open transaction; of a decided one only those that still owe their marker, as
    Kafka tells it; else none."""
    times_out_in_ms: int | None
    """Until the open transaction is aborted; None: it is not going to be."""
    now_ms: int

    @property
    def state(self) -> State:
        return self.transaction.state

    @property
    def pending_state(self) -> State | None:
        """The state that is being made durable, and that nobody else sees yet."""
        return None if self.pending is None else self.pending.state

    @property
    def is_pending(self) -> bool:
        return self.pending is not None

    @property
    def is_open(self) -> bool:
        """Records of it may be in partitions whose last stable offset waits for it."""
        return self.state is State.ONGOING or self.state.is_prepared

    @property
    def timeout_ms(self) -> int:
        return self.transaction.timeout_ms

    @property
    def never_times_out(self) -> bool:
        """Its producer commits in two phases (KIP-939)."""
        return self.transaction.never_times_out

    @property
    def started_ms(self) -> int:
        """When its first partition was added; -1 if no transaction was ever begun."""
        return self.transaction.started_ms

    @property
    def open_for_ms(self) -> int:
        """The age of a transaction that is open or not completed yet; -1 without one."""
        if not self.is_open or self.transaction.started_ms < 0:
            return -1
        return max(0, self.now_ms - self.transaction.started_ms)

    @property
    def client(self) -> ClientIdentity | None:
        """Who asked for the producer id last; None if an older record does not say."""
        return self.transaction.client

    @property
    def bump(self) -> EpochBump | None:
        """The last change of epoch that locked somebody out; None: there was none."""
        return self.transaction.bump

    @property
    def explanation(self) -> str | None:
        """One sentence about that change; None if there was none."""
        if self.transaction.bump is None:
            return None
        return explain.why_locked_out(self.transactional_id, self.transaction, self.now_ms)


def view_of(entry: Entry, now_ms: int) -> TransactionView:
    transaction = entry.transaction
    has_deadline = entry.timeout_at < inf
    left_ms = round((entry.timeout_at - trio.current_time()) * 1000) if has_deadline else None
    owed = entry.debt.owed if entry.debt is not None else transaction.partitions
    return TransactionView(
        transactional_id=entry.transactional_id,
        transaction=transaction,
        coordinator_epoch=entry.tenure.coordinator_epoch,
        pending=entry.pending,
        partitions=frozenset(owed) if transaction.state.is_prepared else transaction.partitions,
        times_out_in_ms=left_ms,
        now_ms=now_ms,
    )
