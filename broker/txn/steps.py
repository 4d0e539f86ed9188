"""Carry one event through: look up its move, make the result durable, log it.

A request waits while an append for its id is under way, or while markers are. Nothing is decided
during such a wait: after it, the event is classified and looked up again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

import trio

from odradek.broker.environment.env import Clock
from odradek.broker.txn import explain, state
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.events import Answer, Event, StepRequest
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.moves import Move
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import BumpCause, State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.protocol.errors import ErrorCode, KafkaError

REFUSALS: Final = {
    Answer.INVALID: ErrorCode.INVALID_TXN_STATE,
    Answer.FENCED: ErrorCode.PRODUCER_FENCED,
    Answer.FOREIGN: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

BEFORE_PREPARE: Final = "before-prepare"
AFTER_PREPARE: Final = "after-prepare"


class RoomForPartitions(Protocol):
    """The memory for transactions, which `expiry.RoomForIds` implements."""

    async def make_for(self, entry: Entry, after: TransactionMetadata) -> bool: ...


class Steps:
    """Perform events. `reached` is called at the fault points `before-prepare`, `after-prepare`."""

    def __init__(
        self,
        ledger: Ledger,
        room: RoomForPartitions,
        producer_ids: ProducerIds,
        clock: Clock,
        config: TransactionConfig,
        narrator: Narrator,
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._room = room
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self._narrator = narrator
        self._reached = reached

    async def perform(
        self,
        entry_of: Callable[[], Entry | None],
        request_for: Callable[[TransactionMetadata], StepRequest],
        max_wait_ms: int | None = None,
        may_follow: Callable[[], bool] = lambda: False,
    ) -> TransactionMetadata:
        """Carry a request through. Return the transaction as the request left it.

        `max_wait_ms` shortens the wait for what is under way. `may_follow` is as in `Ledger.write`.
        Raises KafkaError: the refusal, or
        CONCURRENT_TRANSACTIONS after the wait, or what the ledger raises.
        """
        limit_ms = self._config.transaction_concurrent_wait_ms
        if max_wait_ms is not None:
            limit_ms = min(limit_ms, max_wait_ms)
        # One deadline for all waits: the client counts the time since it has sent the request.
        give_up_at = trio.current_time() + limit_ms / 1000
        has_fenced = False
        while True:
            entry = entry_of()
            if entry is None:
                await self._producer_ids.refill()
                continue
            # Classified in each turn: during a wait another request may have spent the epoch, or
            # have ended the transaction, and what was a valid request is a stale one then
            # (KAFKA-17754).
            request = request_for(entry.transaction)
            version = request.transaction_version
            cell = state.decide(
                entry.transaction, request.event, version, is_pending=entry.pending is not None
            )
            if isinstance(cell, Move):
                before = entry.transaction
                is_fence = cell.target is State.PREPARE_EPOCH_FENCE
                if not await self._move(entry, cell, request, may_follow):
                    continue
                if not has_fenced:
                    self._log_move(entry, before, request)
                if not is_fence:
                    return entry.transaction
                # InitProducerId has fenced an open transaction. It waits for the end of that abort,
                # as the client's retry would, and then gets its epoch in the same call. Kafka
                # returns CONCURRENT_TRANSACTIONS here and leaves the retry to the client
                # (KAFKA-5477).
                has_fenced = True
            elif cell is Answer.DONE:
                # Before transaction version 2 all transactions of a producer have one epoch. What
                # repeats a commit here may be the commit of the next one, of which only a newer
                # coordinator knows.
                # invariant tenures 3: What is answered from memory, without an append, is answered
                # after a proof that this broker still leads.
                # plant a deposed coordinator takes a commit for the repeated one of the transaction
                # before
                done = entry.transaction
                await entry.tenure.prove()
                return done
            elif cell is Answer.BUSY:
                await wait_for_change(entry, give_up_at)
            else:
                raise refusal(entry, request, REFUSALS[cell])

    async def _move(
        self,
        entry: Entry,
        move: Move,
        request: StepRequest,
        may_follow: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Make a move durable and visible.

        Return False if nothing was done: the move needs a producer id or room, and while that was
        made everything may have changed. Raises KafkaError if there is no room, or if the log did
        not take the record.
        """
        transaction = entry.transaction
        if move.target is State.PREPARE_EPOCH_FENCE:
            # PrepareEpochFence is never stored and never seen. The one append is that of the abort,
            # so a fence that fails leaves no half behind, and spends no epoch (KAFKA-9666,
            # KAFKA-19367).
            # invariant epochs 3: A fence spends one epoch, in one append, and is an abort of
            # generation 2.
            # plant KAFKA-19367
            # plant KAFKA-6119
            transaction = state.step(transaction, move, request)
            request = replace(request, event=Event.ABORT_FENCED, transaction_version=2)
            abort = state.decide(transaction, request.event, request.transaction_version)
            assert isinstance(abort, Move)
            move = abort
        if state.needs_producer_id(transaction, move):
            # The last epoch is used up (KAFKA-5283). Between the decision and the append there must
            # be no checkpoint: if no id is at hand, the caller decides again.
            number = self._producer_ids.next_nowait()
            if number is None:
                await self._producer_ids.refill()
                return False
            producer_id = self._ledger.producer_id(entry.transactional_id, number)
            request = replace(request, producer_id=producer_id)
        following = state.step(transaction, move, request)
        if not await self._room.make_for(entry, following):
            return False
        if following.state.is_prepared:
            self._reached(BEFORE_PREPARE)
        await self._ledger.write({entry: following}, may_follow=may_follow)
        if following.state.is_prepared:
            self._reached(AFTER_PREPARE)
        return True

    async def fence(
        self,
        entry: Entry,
        event: Callable[[], Event | None],
        cause: BumpCause,
        client: ClientIdentity | None,
    ) -> None:
        """Abort the open transaction of `entry`, unless `event` returns None when its turn comes.

        `event` is called after each wait: a time-out may have been overtaken by a commit. Raises
        KafkaError if the log did not take the record.
        """
        while (happened := event()) is not None:
            if entry.pending is not None:
                await entry.wait_changed()
                continue
            now_ms = self._clock.wall_ms()
            request = StepRequest(event=happened, now_ms=now_ms, cause=cause, client=client)
            cell = state.decide(entry.transaction, happened, request.transaction_version)
            if not isinstance(cell, Move):
                assert cell is Answer.LATE, cell
                return
            before = entry.transaction
            if await self._move(entry, cell, request):
                self._log_move(entry, before, request)
                return

    def _log_move(self, entry: Entry, before: TransactionMetadata, request: StepRequest) -> None:
        """Log a move that locks a producer out."""
        name, after = entry.transactional_id, entry.transaction
        line = explain.what_happened(name, before, after, request.now_ms)
        if line is not None:
            self._narrator.log(Kind.FENCED, name, line)


async def wait_for_change(entry: Entry, give_up_at: float) -> None:
    """Wait until `entry` changes. Raises KafkaError(CONCURRENT_TRANSACTIONS) at `give_up_at`."""
    with trio.move_on_at(give_up_at):
        await entry.wait_changed()
        return
    what = "being written" if entry.pending else f"still {entry.transaction.state.label}"
    message = f"the transaction of {entry.transactional_id!r} is {what}; retry the request"
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def refusal(entry: Entry, request: StepRequest, code: ErrorCode) -> KafkaError:
    """Return the error for a request that the table refuses."""
    name, transaction = entry.transactional_id, entry.transaction
    if code is ErrorCode.INVALID_TXN_STATE:
        what = request.event.name.split("_")[0].lower()
        return KafkaError(code, f"{name!r} is {transaction.state.label}: nothing to {what}")
    return KafkaError(code, explain.why_locked_out(name, transaction, request.now_ms))
