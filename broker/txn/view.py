"""A description of one transactional id, for administrators, the log and the web page."""

from collections.abc import Collection
from math import inf

import trio

from odradek.broker.txn import explain
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import EpochBump, State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionView:
    """One transactional id at one moment. Times are wall-clock milliseconds."""

    transactional_id: str
    transaction: TransactionMetadata
    coordinator_epoch: int
    pending: TransactionMetadata | None
    """The metadata that is being made durable now."""
    partitions: Collection[TopicIdPartition]
    """Those of an open transaction; of a decided one those without a marker yet, as in Kafka."""
    times_out_in_ms: int | None
    """The time until the open transaction is aborted; None if it has no deadline."""
    now_ms: int

    @property
    def state(self) -> State:
        return self.transaction.state

    @property
    def pending_state(self) -> State | None:
        """The state that is being made durable, which requests do not see yet."""
        return None if self.pending is None else self.pending.state

    @property
    def is_pending(self) -> bool:
        return self.pending is not None

    @property
    def is_open(self) -> bool:
        """Return True if the last stable offset of partitions may wait for it."""
        return self.state is State.ONGOING or self.state.is_prepared

    @property
    def timeout_ms(self) -> int:
        return self.transaction.timeout_ms

    @property
    def never_times_out(self) -> bool:
        """Return True if its producer commits in two phases (KIP-939)."""
        return self.transaction.never_times_out

    @property
    def started_ms(self) -> int:
        """The time of its first partition; -1 if no transaction was ever begun."""
        return self.transaction.started_ms

    @property
    def open_for_ms(self) -> int:
        """The age of a transaction that is open or not completed yet; -1 without one."""
        if not self.is_open or self.transaction.started_ms < 0:
            return -1
        return max(0, self.now_ms - self.transaction.started_ms)

    @property
    def client(self) -> ClientIdentity | None:
        """The sender of the last InitProducerId; None if an older record does not have it."""
        return self.transaction.client

    @property
    def bump(self) -> EpochBump | None:
        """The last change of epoch that fenced a producer; None if there was none."""
        return self.transaction.bump

    @property
    def explanation(self) -> str | None:
        """One sentence about `bump`; None if there was none."""
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
