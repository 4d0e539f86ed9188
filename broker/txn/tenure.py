"""The transactional ids of one tenure, which `coordination/tenure.py` explains."""

from math import inf
from typing import Final

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import Tenure
from odradek.broker.txn.markers import Debt
from odradek.broker.txn.transaction import NO_PRODUCER_EPOCH, TransactionMetadata


class Entry:
    """One transactional id under one tenure.

    `transaction` is the durable metadata, which requests see. `pending` is the metadata that is
    being made durable. `debt` has the markers that a decided transaction still owes. `timeout_at`
    and `expires_at` are times of trio's clock, infinity for none.
    """

    __slots__ = (
        "_changed",
        "debt",
        "expires_at",
        "pending",
        "tenure",
        "timeout_at",
        "transaction",
        "transactional_id",
    )

    def __init__(
        self, tenure: "TransactionTenure", transactional_id: str, transaction: TransactionMetadata
    ) -> None:
        self.tenure = tenure
        self.transactional_id = transactional_id
        self.transaction = transaction
        self.pending: TransactionMetadata | None = None
        self.debt: Debt | None = None
        self.timeout_at = inf
        self.expires_at = inf
        self._changed: trio.Event | None = None

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
        self.owners: Final[dict[int, str]] = {}
        self._timeouts: Final = timeouts
        self._expirations: Final = expirations

    def end(self) -> None:
        super().end()
        for entry in self.entries.values():
            entry.timeout_at = entry.expires_at = inf
            self._timeouts.forget(entry)
            self._expirations.forget(entry)
            entry.wake()
