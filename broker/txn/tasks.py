"""The background tasks of a transaction coordinator.

`CoordinatorTasks` is made when the coordinator starts to run. The tasks run in its nursery, so none
outlives it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from odradek.broker.environment.env import Clock
from odradek.broker.txn.early_delivery import EarlyDelivery
from odradek.broker.txn.events import Event, disconnect_event
from odradek.broker.txn.expiry import abort_timed_out, remove_expired
from odradek.broker.txn.finish import Finisher
from odradek.broker.txn.ledger import Ledger, retry_until_written
from odradek.broker.txn.markers import MarkerSender
from odradek.broker.txn.narrator import Narrator
from odradek.broker.txn.steps import Steps
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import BumpCause, ProducerIdAndEpoch, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger("odradek.txn")


class CoordinatorTasks:
    """Time-outs, expiry and withheld log lines from the start; the rest when it is called."""

    def __init__(
        self,
        nursery: trio.Nursery,
        ledger: Ledger,
        steps: Steps,
        sender: MarkerSender,
        clock: Clock,
        narrator: Narrator,
    ) -> None:
        self._nursery = nursery
        self._ledger = ledger
        self._steps = steps
        self._early = EarlyDelivery(sender, ledger, nursery)
        self._finisher = Finisher(ledger, sender, clock, narrator, nursery)
        nursery.start_soon(narrator.run)
        nursery.start_soon(abort_timed_out, ledger, steps)
        nursery.start_soon(remove_expired, ledger, clock)

    def finish(self, entries: Sequence[Entry]) -> None:
        """Write the markers of a decision, which several ids may have, then Complete* records."""
        self._nursery.start_soon(self._finisher.finish, entries)

    def mark_early(self, entry: Entry, decision: TransactionMetadata) -> None:
        """Append the markers of a decision that was appended in this turn, if that is safe."""
        entry.early = self._early.begin(entry, decision)
        entry.is_followed = entry.early is not None

    def commit_later(self, commit: Callable[[], Awaitable[None]]) -> None:
        """Wait in the background for a change that records follow already."""
        self._nursery.start_soon(self._commit_later, commit)

    async def _commit_later(self, commit: Callable[[], Awaitable[None]]) -> None:
        try:
            await commit()
        except KafkaError as error:
            # The records that follow it do not count either. The partition is read anew.
            LOGGER.debug("a change that records follow is not committed: %s", error)

    def read_anew(self, partition_index: int) -> None:
        """Begin another tenure of a partition whose memory may lack what its log has."""
        self._nursery.start_soon(self._read_anew, partition_index)

    async def _read_anew(self, partition_index: int) -> None:
        try:
            await self._ledger.load(partition_index)
        except KafkaError as error:
            # Each reason lasts as long as this lead: the partition is led elsewhere, or its log has
            # failed or is damaged. The next lead, or the next start, reads it. Until then there is
            # no tenure, so none of its ids is decided, and nothing is lost or decided twice.
            LOGGER.warning(
                "partition %d of the transaction log is not coordinated here, as it cannot be read "
                "anew: %s",
                partition_index,
                error,
            )

    def abort_disconnected(
        self, entry: Entry, producer: ProducerIdAndEpoch, client: ClientIdentity
    ) -> None:
        """Abort the open transaction of a producer that has closed its last connection."""
        self._nursery.start_soon(self._abort_disconnected, entry, producer, client)

    async def _abort_disconnected(
        self, entry: Entry, producer: ProducerIdAndEpoch, client: ClientIdentity
    ) -> None:
        def event() -> Event:
            return disconnect_event(entry.transaction, producer)

        async def attempt() -> None:
            await self._steps.fence(entry, event, BumpCause.DISCONNECTED, client)

        with entry.tenure.bound():
            await retry_until_written(attempt)
