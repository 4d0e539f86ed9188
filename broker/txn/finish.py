"""The end of a decided transaction: a marker in every partition, then the Complete* record.

A retry does not help against two answers of a partition:

- INVALID_PRODUCER_EPOCH: the partition knows a higher epoch of this producer id. Only a coordinator
  makes epochs, and an id has one decided transaction at a time. So an administrator has written a
  marker with that epoch, and what is open in the partition is not this transaction. The coordinator
  logs this, counts the partition as done, and completes the transaction as decided.
- TRANSACTION_COORDINATOR_FENCED: the partition knows a higher coordinator epoch. It comes from a
  newer coordinator or from an administrator's marker. To find out which, the coordinator appends
  the decision once more: only the leader of the state partition can do that. If the append
  succeeds, there is no newer coordinator, and the open transaction would pin the partition's last
  stable offset for good. The coordinator then sends the marker with the epoch that the partition
  knows.

Kafka stops at both answers, and leaves the id in Prepare* until the coordinator is loaded anew.

A deposed coordinator does no harm with either answer: it can write neither the decision nor the
completion.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from odradek.broker.environment.env import Clock
from odradek.broker.environment.turns import Turns
from odradek.broker.txn import state
from odradek.broker.txn.events import Event, StepRequest
from odradek.broker.txn.ledger import Ledger, retry_until_written
from odradek.broker.txn.markers import BACKOFF_LAST_S, Debt, Markers, MarkerSender
from odradek.broker.txn.moves import Move
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.broker.values.topic_partition import TopicIdPartition

OVERTAKEN: Final = (
    "the markers of %r for %s were refused: an administrator has written markers with a higher "
    "epoch of producer id %d there. This part of the transaction may have ended otherwise than by "
    "the %s that was decided; compare the records of these partitions with the other ones"
)
COMPLETED_AT_ONCE: Final = 200
"""Ids whose Complete* records are one batch: the work of a few milliseconds."""
DEBT_STEPS: Final = 2
"""The cost of one member of a group, in steps of a turn."""
NAMED_MAX: Final = 20
"""The number of partitions that the log line about refused markers names."""


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

    async def finish(self, entries: Sequence[Entry]) -> None:
        """Return when the ids of one decision are complete, or their tenure has ended."""
        turns = Turns()
        # invariant tenures 1
        with entries[0].tenure.bound():
            debts = []
            with trio.CancelScope() as delivering:
                for entry in entries:
                    await turns.take(DEBT_STEPS)
                    debt = entry.debt = debt_of(entry, entry.transaction, delivering)
                    debts.append(debt)
                    if entry.early is not None:
                        debt.owed.difference_update(await entry.early.wait())
                        entry.early = None
                await self._markers.deliver(*debts)
                for entry, debt in zip(entries, debts, strict=True):
                    await turns.take()
                    if debt.fenced:
                        await self._outbid_all(entry, debt)
                    self._log_overtaken(debt)
            if delivering.cancelled_caught:
                self._log_given_up(debts)
            for start in range(0, len(entries), COMPLETED_AT_ONCE):
                some = entries[start : start + COMPLETED_AT_ONCE]
                # No client waits for these records, so no request would retry them. Without them
                # the ids stay in Prepare* and answer CONCURRENT_TRANSACTIONS (KAFKA-5351).
                await retry_until_written(partial(self._complete, some))
                for entry in some:
                    entry.debt = None

    async def _outbid_all(self, entry: Entry, debt: Debt) -> None:
        """Send the markers again that partitions have fenced."""
        while debt.fenced:
            # Only the leader of the state partition can append. A deposed coordinator never gets
            # past this line: its tenure ends, and the scope around it is cancelled.
            await retry_until_written(lambda: self._ledger.confirm(entry))
            for partition in sorted(debt.fenced):
                await self._outbid(debt, partition)
            if debt.fenced:
                self._markers.log_late([(debt, partition) for partition in sorted(debt.fenced)])
                await trio.sleep(BACKOFF_LAST_S)

    async def _outbid(self, debt: Debt, partition: TopicIdPartition) -> None:
        """Send one marker again, with the coordinator epoch that the partition knows."""
        known = await self._sender.coordinator_epoch_of(partition, debt.producer_id)
        if known <= debt.coordinator_epoch:
            # The leader did not answer, or the partition's producer state has expired meanwhile.
            # The marker with the coordinator's own epoch may succeed now.
            known = debt.coordinator_epoch
        else:
            self._log_outbid(debt, partition, known)
        again = replace(debt, coordinator_epoch=known, owed={partition}, fenced=set(), overtaken=[])
        await self._markers.deliver(again)
        debt.overtaken += again.overtaken
        if not again.fenced:
            debt.fenced.discard(partition)
            debt.owed.discard(partition)

    def _log_outbid(self, debt: Debt, partition: TopicIdPartition, known: int) -> None:
        self._narrator.log(
            Kind.OUTBID,
            debt.transactional_id,
            f"{partition} refused the marker of {debt.transactional_id!r}: it knows coordinator "
            f"epoch {known} from an administrator's marker, and this coordinator's is "
            f"{debt.coordinator_epoch}; as there is no newer coordinator, the marker is written "
            f"with epoch {known}",
            level=logging.WARNING,
        )

    def _log_overtaken(self, debt: Debt) -> None:
        if not debt.overtaken:
            return
        end = "commit" if debt.committed else "abort"
        where = _to_words(debt.overtaken)
        line = OVERTAKEN % (debt.transactional_id, where, debt.producer_id, end)
        self._narrator.log(Kind.OVERTAKEN, debt.transactional_id, line, level=logging.ERROR)

    def _log_given_up(self, debts: Sequence[Debt]) -> None:
        client = next(debt.given_up_by for debt in debts if debt.given_up_by is not None)
        for debt in debts:
            if debt.owed:
                self._narrator.log(
                    Kind.GIVEN_UP,
                    debt.transactional_id,
                    f"an administrator at {client.host} gave up the markers of "
                    f"{debt.transactional_id!r}, {'a commit' if debt.committed else 'an abort'}, "
                    f"for {_to_words(debt.owed)}: the transaction of producer id "
                    f"{debt.producer_id} with epoch {debt.producer_epoch} stays "
                    "open there until a marker is written by hand",
                    level=logging.WARNING,
                )

    async def _complete(self, entries: Sequence[Entry]) -> None:
        """Append the Complete* records, in one batch. They count at once."""
        request = StepRequest(event=Event.MARKED, now_ms=self._clock.wall_ms())
        change = {}
        for entry in entries:
            cell = state.decide(entry.transaction, request.event, request.transaction_version)
            assert isinstance(cell, Move)
            change[entry] = state.step(entry.transaction, cell, request)
        self._ledger.complete(change)


def _to_words(partitions: Collection[TopicIdPartition]) -> str:
    where = ", ".join(map(str, sorted(partitions)[:NAMED_MAX]))
    more = len(partitions) - NAMED_MAX
    return f"{where} and {more} more" if more > 0 else where


def debt_of(entry: Entry, transaction: TransactionMetadata, delivering: trio.CancelScope) -> Debt:
    """Return the markers that the decision owes which `transaction` is, or is to be."""
    return Debt(
        transactional_id=entry.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=transaction.state is State.PREPARE_COMMIT,
        coordinator_epoch=entry.tenure.coordinator_epoch,
        transaction_version=transaction.transaction_version,
        owed=set(transaction.partitions),
        delivering=delivering,
    )
