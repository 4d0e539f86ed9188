"""The transactional ids of one tenure, which `coordination/tenure.py` explains."""

from math import inf
from typing import Final
from weakref import WeakValueDictionary

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import Tenure
from odradek.broker.txn.markers import Debt
from odradek.broker.txn.transaction import NO_PRODUCER_EPOCH, TransactionMetadata

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
    being made durable. `debt` has the markers that a decided transaction still owes. `expires_at`
    is a time of trio's clock, infinity for none. `clock` is that of its transaction group, if it is
    in one.
    """

    __slots__ = (
        "_changed",
        "_timeout_at",
        "clock",
        "debt",
        "expires_at",
        "pending",
        "size_bytes",
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
    def is_new(self) -> bool:
        """Return True until the first InitProducerId is durable: no request has seen it yet."""
        return self.transaction.producer_epoch == NO_PRODUCER_EPOCH

    async def changed(self) -> None:
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


class TransactionTenure(Tenure):
    """One tenure's entries. `owners` has the transactional id of each producer id."""

    def __init__(
        self,
        partition: StatePartition,
        name: str,
        timeouts: Deadlines[Entry],
        expirations: Deadlines[Entry],
    ) -> None:
        super().__init__(partition, name)
        self.entries: Final[dict[str, Entry]] = {}
        self.size_bytes = 0
        """The size that the entries count for in memory limits."""
        self.owners: Final[dict[int, str]] = {}
        self._clocks: Final[WeakValueDictionary[str, GroupClock]] = WeakValueDictionary()
        self._timeouts: Final = timeouts
        self._expirations: Final = expirations

    def clock_of(self, group: str | None) -> GroupClock | None:
        """Return the clock that the members of a group share; None for no group."""
        if group is None:
            return None
        clock = self._clocks.get(group)
        if clock is None:
            clock = self._clocks[group] = GroupClock()
        return clock

    def add(self, entry: Entry) -> None:
        self.entries[entry.transactional_id] = entry
        self.count(entry)

    def count(self, entry: Entry) -> None:
        """Count the size of an entry that has changed, or is to change."""
        partitions = max(
            len(each.partitions) for each in (entry.transaction, entry.pending) if each is not None
        )
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
            entry.time_out_at(inf)
            entry.expires_at = inf
            self._timeouts.forget(entry)
            self._expirations.forget(entry)
            entry.wake()
