"""The end of a decided transaction: a marker in every partition, then the record that says so.

Two answers of a partition are not a matter of trying again:

- INVALID_PRODUCER_EPOCH: the partition has heard of a higher epoch of this producer id. Only a
  coordinator makes epochs and an id has one decided transaction at a time, so that somebody else
  did: an administrator, with a marker of his own. Whatever is open there is not this transaction.
  The partition is let off, with a line in the log, and the transaction is completed as decided.
- TRANSACTION_COORDINATOR_FENCED: it has heard of a higher coordinator epoch. If that is a newer
  coordinator, this one has nothing to say any more. It finds out by writing the decision once more:
  who does not lead the state partition cannot. If it can, nobody else coordinates, the epoch came
  from an administrator's marker, and what is open in the partition would pin its last stable offset
  for good. So the marker is sent with the epoch that the partition knows.

Kafka stops at both, and leaves the id in Prepare* until the coordinator is loaded anew.

A deposed coordinator does no harm with either: neither the decision nor the completion can be
written by one.
"""

import logging
from dataclasses import replace
from typing import Final

import trio

from odradek.broker.env import Clock
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn import state
from odradek.broker.txn.events import Event, Request
from odradek.broker.txn.ledger import Ledger, insist
from odradek.broker.txn.markers import BACKOFF_LAST_S, Debt, Markers, MarkerSender
from odradek.broker.txn.moves import Move
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import State

OVERTAKEN: Final = (
    "the markers of %r for %s were refused: somebody else has written some with a higher epoch of "
    "producer id %d there, so that this part of the transaction may have ended otherwise than by "
    "the %s that was decided"
)
NAMED_MAX: Final = 20
"""How many of the partitions that refused their marker the log line names."""


class Finisher:
    def __init__(
        self,
        ledger: Ledger,
        sender: MarkerSender,
        clock: Clock,
        narrator: Narrator,
        nursery: trio.Nursery,
    ) -> None:
        self._ledger = ledger
        self._sender = sender
        self._markers = Markers(sender, narrator, nursery)
        self._clock = clock
        self._narrator = narrator

    async def finish(self, entry: Entry) -> None:
        """Return when `entry` is complete, or its tenure has ended."""
        with entry.tenure.bound():
            debt = entry.debt = _debt_of(entry)
            await self._markers.deliver(debt)
            while debt.fenced:
                await insist(lambda: self._ledger.confirm(entry))
                for partition in sorted(debt.fenced):
                    await self._outbid(debt, partition)
                if debt.fenced:
                    self._markers.log_late(debt, sorted(debt.fenced))
                    await trio.sleep(BACKOFF_LAST_S)
            self._tell_overtaken(debt)
            await insist(lambda: self._complete(entry))
            entry.debt = None

    async def _outbid(self, debt: Debt, partition: TopicPartition) -> None:
        known = await self._sender.coordinator_epoch_of(partition, debt.producer_id)
        if known <= debt.coordinator_epoch:
            known = debt.coordinator_epoch  # it cannot tell now, or has forgotten: try again
        else:
            self._tell_outbid(debt, partition, known)
        again = replace(debt, coordinator_epoch=known, owed={partition}, fenced=set(), overtaken=[])
        await self._markers.deliver(again)
        debt.overtaken += again.overtaken
        if not again.fenced:
            debt.fenced.discard(partition)
            debt.owed.discard(partition)

    def _tell_outbid(self, debt: Debt, partition: TopicPartition, known: int) -> None:
        self._narrator.say(
            Kind.OUTBID,
            debt.transactional_id,
            f"{partition} refused the marker of {debt.transactional_id!r}: it knows coordinator "
            f"epoch {known} from somebody, and this coordinator's is {debt.coordinator_epoch}; as "
            f"nobody else coordinates, the marker is written with that epoch",
            level=logging.WARNING,
        )

    def _tell_overtaken(self, debt: Debt) -> None:
        if not debt.overtaken:
            return
        end = "commit" if debt.committed else "abort"
        where = ", ".join(map(str, sorted(debt.overtaken)[:NAMED_MAX]))
        if len(debt.overtaken) > NAMED_MAX:
            where += f" and {len(debt.overtaken) - NAMED_MAX} more"
        line = OVERTAKEN % (debt.transactional_id, where, debt.producer_id, end)
        self._narrator.say(Kind.OVERTAKEN, debt.transactional_id, line, level=logging.ERROR)

    async def _complete(self, entry: Entry) -> None:
        request = Request(event=Event.MARKED, now_ms=self._clock.wall_ms())
        cell = state.decide(entry.transaction, request.event, request.transaction_version)
        assert isinstance(cell, Move)
        await self._ledger.append(entry, state.step(entry.transaction, cell, request))


def _debt_of(entry: Entry) -> Debt:
    transaction = entry.transaction
    return Debt(
        transactional_id=entry.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=transaction.state is State.PREPARE_COMMIT,
        coordinator_epoch=entry.tenure.coordinator_epoch,
        transaction_version=transaction.transaction_version,
        owed=set(transaction.partitions),
    )
