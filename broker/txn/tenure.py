"""The transactional ids of one tenure, and how they change (`coordination/runtime.py`).

`TransactionTenure.replay` alone changes what requests see of an id. It runs when a batch of the log
is committed, and when the log is read.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final
from uuid import UUID
from weakref import WeakValueDictionary

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.runtime import Runtime
from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import LOG_ERRORS
from odradek.broker.environment.env import Clock
from odradek.broker.environment.work import Work
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.counts import TransactionCounts
from odradek.broker.txn.markers import Debt, MarkersUnderWay
from odradek.broker.txn.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    State,
    TransactionMetadata,
)
from odradek.protocol.errors import ErrorCode, KafkaError

APPEND_FAILED: Final = {**LOG_ERRORS, ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR}
"""The error of a request whose record the log refused; UNKNOWN_SERVER_ERROR for other codes."""

UNREAD: Final = TransactionMetadata(producer_id=NO_PRODUCER_ID, timeout_ms=0)
"""The transaction of an id that the log has, before its record is replayed."""

LOGGER: Final = logging.getLogger("odradek.txn")

ENTRY_BYTES: Final = 2_048
"""The size that a transactional id counts for, besides its text."""
PARTITION_BYTES: Final = 512
"""The size that a partition of a transaction counts for, with the marker that it is owed."""


def size_of(transactional_id: str) -> int:
    """Return the size that an id without an open transaction counts for in memory limits."""
    return ENTRY_BYTES + len(transactional_id)


class Entry:
    """One transactional id under one tenure.

    `transaction` is the durable metadata, which requests see. `pending` is the metadata that is
    being made durable. `is_followed`: records were appended to other logs in the turn of its
    append, as if it counted. `debt` has the markers that a decided transaction still owes. `early`
    are those that were appended with its decision. `expires_at` is a time of trio's clock, infinity
    for none. `clock` is that of its transaction group, if it is in one.
    """

    __slots__ = (
        "_changed",
        "_timeout_at",
        "clock",
        "debt",
        "early",
        "expires_at",
        "is_followed",
        "pending",
        "size_bytes",
        "span",
        "tenure",
        "transaction",
        "transactional_id",
    )

    def __init__(
        self,
        tenure: "TransactionTenure",
        transactional_id: str,
        transaction: TransactionMetadata,
        clock: "GroupClock | None" = None,
    ) -> None:
        self.clock = clock
        self.tenure = tenure
        self.transactional_id = transactional_id
        self.transaction = transaction
        self.pending: TransactionMetadata | None = None
        self.debt: Debt | None = None
        self.early: MarkersUnderWay | None = None
        self.is_followed = False
        self.span: Any = None
        """The span of its transaction (`spans.py`), if somebody traces transactions."""
        self.size_bytes = 0
        """The size that its tenure has counted for it."""
        self._timeout_at = inf
        self.expires_at = inf
        self._changed: trio.Event | None = None

    @property
    def timeout_at(self) -> float:
        """The time of trio's clock at which the open transaction is aborted, infinity for none.

        Members of a group share a clock: as long as one of them is heard, none times out. So a long
        stage does not lose what its first tasks have written, and a dead run ends by itself.
        """
        if self.clock is None or self._timeout_at == inf:
            return self._timeout_at
        return max(self._timeout_at, self.clock.heard_at + self.transaction.timeout_ms / 1000)

    def time_out_at(self, time: float) -> None:
        """Set the time-out. For a member of a group it is the earliest time."""
        self._timeout_at = time

    @property
    def for_leaders(self) -> TransactionMetadata:
        """The transaction as leaders may act on it.

        A change that is being made durable counts, if records follow it already. What came to a
        partition behind an early marker would open the transaction again.
        """
        # invariant admission 1
        # plant a batch gets into a transaction behind its marker
        if self.pending is not None and self.is_followed:
            return self.pending
        return self.transaction

    @property
    def is_new(self) -> bool:
        """Return True until the first InitProducerId is durable: no request has seen it yet."""
        return self.transaction.producer_epoch == NO_PRODUCER_EPOCH

    async def wait_changed(self) -> None:
        """Wait for the next change, the failure of a change, or the end of the tenure."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


class GroupClock:
    """The time at which an open member of a transaction group was last heard."""

    __slots__ = ("__weakref__", "heard_at")

    def __init__(self) -> None:
        self.heard_at = -inf


OnChanged = Callable[[Entry, TransactionMetadata], None]
Change = Mapping[Entry, TransactionMetadata]
"""What entries become by the records of one batch. A Dead transaction removes its entry."""


class TransactionDeadlines:
    """The deadlines of all entries of a coordinator: time-outs and expirations."""

    def __init__(self, clock: Clock, config: TransactionConfig) -> None:
        self.timeouts: Final[Deadlines[Entry]] = Deadlines(lambda entry: entry.timeout_at)
        self.expirations: Final[Deadlines[Entry]] = Deadlines(lambda entry: entry.expires_at)
        self._clock = clock
        self._config = config

    def follow(self, entry: Entry, before: TransactionMetadata, *, is_read: bool) -> None:
        """Watch the deadline of what an entry has become. `is_read`: it was found in the log."""
        after = entry.transaction
        # The clock runs from the first partition, not from the last one: a producer that adds a
        # partition every minute would otherwise never time out.
        if after.state is not State.ONGOING:
            entry.time_out_at(inf)
        elif before.state is not State.ONGOING:
            whole_ms = after.timeout_ms
            # It is not known when a group was last heard: its members have the whole time anew.
            is_old = is_read and entry.clock is None
            left_ms = self._left_ms(after.started_ms, whole_ms, is_old)
            self._watch_timeout(entry, left_ms)
        elif after.never_times_out:
            entry.time_out_at(inf)
        if after.state.may_expire:
            whole_ms = self._expiration_ms(entry)
            self.watch_expiration(entry, self._left_ms(after.updated_ms, whole_ms, is_read))
        else:
            entry.expires_at = inf

    def watch_expiration(self, entry: Entry, left_ms: int) -> None:
        entry.expires_at = trio.current_time() + left_ms / 1000
        self.expirations.watch(entry)

    def forget(self, entry: Entry) -> None:
        """Stop watching an entry, whose tenure has ended."""
        entry.time_out_at(inf)
        entry.expires_at = inf
        self.timeouts.forget(entry)
        self.expirations.forget(entry)

    def _watch_timeout(self, entry: Entry, left_ms: int) -> None:
        if not entry.transaction.never_times_out:
            entry.time_out_at(trio.current_time() + left_ms / 1000)
            self.timeouts.watch(entry)

    def _expiration_ms(self, entry: Entry) -> int:
        """Return the time without use after which an id is forgotten.

        A group's ids are used once, and there are many.
        """
        config = self._config
        if entry.clock is None:
            return config.transactional_id_expiration_ms
        return config.transaction_group_id_expiration_ms

    def _left_ms(self, since_ms: int, whole_ms: int, is_old: bool) -> int:
        """Return what is left of a time that has just begun, or in an earlier tenure (`is_old`)."""
        if not is_old:
            return whole_ms
        # The times come from the clock of another broker or of an earlier day. What is left is
        # therefore limited to the whole of it, and is not negative.
        return min(max(since_ms + whole_ms - self._clock.wall_ms(), 0), whole_ms)


class TransactionTenure(Runtime[Change]):
    """One tenure's entries. `owners` has the transactional id of each producer id.

    `on_decided` is called with the entries of each decision that is committed, `on_changed` with
    each entry that has changed, and what it was before. They may not raise.
    """

    def __init__(
        self,
        partition: StatePartition,
        name: str,
        deadlines: TransactionDeadlines,
        on_decided: Callable[[Sequence[Entry]], None],
        counts: TransactionCounts,
        on_changed: OnChanged | None = None,
    ) -> None:
        super().__init__(partition, name)
        self.entries: Final[dict[str, Entry]] = {}
        self.size_bytes = 0
        """The size that the entries count for in memory limits."""
        self.owners: Final[dict[int, str]] = {}
        self._clocks: Final[WeakValueDictionary[str, GroupClock]] = WeakValueDictionary()
        self._deadlines: Final = deadlines
        self._on_decided: Final = on_decided
        self._counts: Final = counts
        self._on_changed: Final = on_changed

    def clock_of(self, group: str | None) -> GroupClock | None:
        """Return the clock that the members of a group share; None for no group."""
        if group is None:
            return None
        clock = self._clocks.get(group)
        if clock is None:
            clock = self._clocks[group] = GroupClock()
        return clock

    # Changes

    def replay(self, change: Change, base_offset: int) -> Work[None]:
        """Make visible what entries have become, and what follows from it.

        Of many ids all become visible, though not in the same moment: they are pending until their
        turn has come. A decision is acted on when all of it is visible.
        """
        decided: dict[UUID | str, list[Entry]] = {}
        for entry, after in change.items():
            yield 1
            self.apply(entry, after)
            if after.state.is_prepared:
                decision = after.decision_id or entry.transactional_id
                decided.setdefault(decision, []).append(entry)
        # A decision that is read here is one whose coordinator died or was deposed before it had
        # written all markers. They are written again; a repeat is harmless.
        for entries in decided.values():
            self._on_decided(entries)

    def apply(self, entry: Entry, after: TransactionMetadata) -> None:
        """Make `after` visible; other requests for the id go on."""
        before, entry.pending, entry.is_followed = entry.transaction, None, False
        if after.state is State.DEAD:
            self.drop(entry.transactional_id)
            self.owners.pop(before.producer_id, None)
        else:
            entry.transaction = after
            if before.producer_id != after.producer_id or before.producer_epoch < 0:
                self.owners.pop(before.producer_id, None)
                self.owners[after.producer_id] = entry.transactional_id
            self.count(entry)
            self._deadlines.follow(entry, before, is_read=not self.is_loaded)
            if self.is_loaded:
                self._counts.note(before, after)
            if self._on_changed is not None:
                self._on_changed(entry, before)
        entry.wake()

    # invariant durable 2
    def release(self, entry: Entry) -> None:
        """End a change that does not come: other requests for the id go on."""
        entry.pending = None
        entry.is_followed = False
        self.count(entry)
        if entry.is_new:
            # The first InitProducerId failed: an entry with epoch -1 never expires (KAFKA-14880).
            self.drop(entry.transactional_id)
        entry.wake()

    def refusal(self, error: KafkaError, change: Change | None) -> KafkaError:
        """Return the error of a request whose record the log did not take, and log it."""
        code = APPEND_FAILED.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
        message = f"{self.name} did not take a record: {error}"
        LOGGER.warning("%s", message)
        return KafkaError(code, message)

    # Entries

    def add(self, entry: Entry) -> None:
        self.entries[entry.transactional_id] = entry
        self.count(entry)

    def count(self, entry: Entry) -> None:
        """Count the size of an entry that has changed, or is to change."""
        partitions = len(entry.transaction.partitions)
        if entry.pending is not None:
            partitions = max(partitions, len(entry.pending.partitions))
        size_bytes = size_of(entry.transactional_id) + partitions * PARTITION_BYTES
        self.size_bytes += size_bytes - entry.size_bytes
        entry.size_bytes = size_bytes

    def drop(self, transactional_id: str) -> None:
        """Forget an id, if it is there."""
        entry = self.entries.pop(transactional_id, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes

    def end(self) -> None:
        super().end()
        for entry in self.entries.values():
            self._deadlines.forget(entry)
            entry.wake()
