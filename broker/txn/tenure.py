"""One leader epoch of one state partition: the transactional ids that this broker coordinates.

A coordinator's memory is worth something only as long as it leads the partition that the memory was
read from. So all of it hangs from a `Tenure`: made when the partition is loaded, ended when the
leadership goes or comes anew, never revived. What was begun under one tenure can only ever change
that tenure's own entries, which nobody looks at after its end (KAFKA-9235, KAFKA-9307, KAFKA-15468,
KAFKA-5280). Its coordinator epoch, the leader epoch of the partition, goes with each marker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

import trio

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.txn.markers import Debt
from odradek.broker.txn.transaction import NO_PRODUCER_EPOCH, Transaction
from odradek.protocol.errors import ErrorCode, KafkaError


class Entry:
    """One transactional id under one tenure.

    `transaction` is what others see; `pending` is what is being made durable; `debt` has the
    markers that a decided transaction still owes. `timeout_at` and `expires_at` are times of trio's
    clock, infinity for none.
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

    def __init__(self, tenure: "Tenure", transactional_id: str, transaction: Transaction) -> None:
        self.tenure = tenure
        self.transactional_id = transactional_id
        self.transaction = transaction
        self.pending: Transaction | None = None
        self.debt: Debt | None = None
        self.timeout_at = inf
        self.expires_at = inf
        self._changed: trio.Event | None = None

    @property
    def is_new(self) -> bool:
        """Its first InitProducerId is not durable yet: nobody has seen it."""
        return self.transaction.producer_epoch == NO_PRODUCER_EPOCH

    async def changed(self) -> None:
        """Return after the next change, or the failure of one, or the end of the tenure."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


class Tenure:
    def __init__(self, partition: StatePartition, index: int) -> None:
        self.partition: Final = partition
        self.index: Final = index
        self.coordinator_epoch: Final = partition.leader_epoch
        self.entries: Final[dict[str, Entry]] = {}
        self.is_loaded = False
        self.is_over = False
        self._scopes: Final[dict[trio.CancelScope, None]] = {}

    @contextmanager
    def bound(self, *, shield: bool = False) -> Iterator[None]:
        """What is done inside is silently broken off when the tenure ends."""
        with trio.CancelScope(shield=shield) as scope:
            if self.is_over:
                scope.cancel()
            self._scopes[scope] = None
            try:
                yield
            finally:
                del self._scopes[scope]

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Only the end of the tenure breaks this off: not a client that asked and went away.

        A record that was appended is going to be there, and memory must not stay behind it. Raises
        KafkaError(NOT_COORDINATOR) if the tenure is over in the end.
        """
        with self.bound(shield=True):
            yield
        if self.is_over:
            message = f"this broker does not coordinate __transaction_state-{self.index} any more"
            raise KafkaError(ErrorCode.NOT_COORDINATOR, message)

    def end(self) -> None:
        """Everything that was begun under it stops here."""
        self.is_over = True
        for scope in list(self._scopes):
            scope.cancel()
        for entry in self.entries.values():
            entry.timeout_at = entry.expires_at = inf
            entry.wake()
