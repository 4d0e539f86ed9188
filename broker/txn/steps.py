"""One event carried through: look it up, make what it leads to durable, tell it.

Whoever has to wait (an append for the same id is under way, or markers are) has decided nothing
yet: after each wait the event is looked at anew.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from odradek.broker.client_identity import ClientIdentity
from odradek.broker.env import Clock
from odradek.broker.txn import explain, state
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.events import Answer, Event, Request
from odradek.broker.txn.ledger import Ledger
from odradek.broker.txn.moves import Move
from odradek.broker.txn.narrator import Kind, Narrator
from odradek.broker.txn.producer_ids import ProducerIds
from odradek.broker.txn.tenure import Entry
from odradek.broker.txn.transaction import BumpCause, State, Transaction
from odradek.protocol.errors import ErrorCode, KafkaError

REFUSALS: Final = {
    Answer.INVALID: ErrorCode.INVALID_TXN_STATE,
    Answer.FENCED: ErrorCode.PRODUCER_FENCED,
    Answer.FOREIGN: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

BEFORE_PREPARE: Final = "before-prepare"
AFTER_PREPARE: Final = "after-prepare"


class Steps:
    """`reached` is told about the fault points `before-prepare` and `after-prepare`."""

    def __init__(
        self,
        ledger: Ledger,
        producer_ids: ProducerIds,
        clock: Clock,
        config: TransactionConfig,
        narrator: Narrator,
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self._narrator = narrator
        self._reached = reached

    async def perform(
        self,
        entry_of: Callable[[], Entry | None],
        request_for: Callable[[Transaction], Request],
        max_wait_ms: int | None = None,
    ) -> Transaction:
        """Carry a request through. Return the transaction as the request left it."""
        limit_ms = self._config.transaction_concurrent_wait_ms
        if max_wait_ms is not None:
            limit_ms = min(limit_ms, max_wait_ms)
        give_up_at = trio.current_time() + limit_ms / 1000
        has_fenced = False
        while True:
            entry = entry_of()
            if entry is None:
                await self._producer_ids.refill()
                continue
            request = request_for(entry.transaction)
            version = request.transaction_version
            cell = state.decide(
                entry.transaction, request.event, version, is_pending=entry.pending is not None
            )
            if isinstance(cell, Move):
                before = entry.transaction
                is_fence = cell.target is State.PREPARE_EPOCH_FENCE
                if not await self._move(entry, cell, request):
                    continue
                if not has_fenced:
                    self._tell_move(entry, before, request)
                if not is_fence:
                    return entry.transaction
                has_fenced = True
            elif cell is Answer.DONE:
                return entry.transaction
            elif cell is Answer.BUSY:
                await _wait_for_change(entry, give_up_at)
            else:
                raise _refusal(entry, request, REFUSALS[cell])

    async def _move(self, entry: Entry, move: Move, request: Request) -> bool:
        """Make a move durable and visible. False: it needs a producer id, which had to be fetched
        first, so look at everything anew. Raises KafkaError: the log did not take it.
        """
        transaction = entry.transaction
        if move.target is State.PREPARE_EPOCH_FENCE:
            # Never stored, never seen: the abort that follows is the one append for both.
            transaction = state.step(transaction, move, request)
            request = replace(request, event=Event.ABORT_FENCED, transaction_version=2)
            abort = state.decide(transaction, request.event, request.transaction_version)
            assert isinstance(abort, Move)
            move = abort
        if state.needs_producer_id(transaction, move):
            producer_id = self._producer_ids.next_nowait()
            if producer_id is None:
                await self._producer_ids.refill()
                return False
            request = replace(request, producer_id=producer_id)
        following = state.step(transaction, move, request)
        if following.state.is_prepared:
            self._reached(BEFORE_PREPARE)
        await self._ledger.append(entry, following)
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
        """Abort the open transaction of `entry`, if `event` still says so when its turn comes.
        Raises KafkaError: the log refused."""
        while (happened := event()) is not None:
            if entry.pending is not None:
                await entry.changed()
                continue
            now_ms = self._clock.wall_ms()
            request = Request(event=happened, now_ms=now_ms, cause=cause, client=client)
            cell = state.decide(entry.transaction, happened, request.transaction_version)
            if not isinstance(cell, Move):
                assert cell is Answer.LATE, cell
                return
            before = entry.transaction
            if await self._move(entry, cell, request):
                self._tell_move(entry, before, request)
                return

    def _tell_move(self, entry: Entry, before: Transaction, request: Request) -> None:
        """A line for everything that locks a producer out, in words."""
        name, after = entry.transactional_id, entry.transaction
        line = explain.what_happened(name, before, after, request.now_ms)
        if line is not None:
            self._narrator.say(Kind.FENCED, name, line)


async def _wait_for_change(entry: Entry, give_up_at: float) -> None:
    with trio.move_on_at(give_up_at):
        await entry.changed()
        return
    what = "being written" if entry.pending else f"still {entry.transaction.state.label}"
    message = f"the transaction of {entry.transactional_id!r} is {what}: try again"
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def _refusal(entry: Entry, request: Request, code: ErrorCode) -> KafkaError:
    name, transaction = entry.transactional_id, entry.transaction
    if code is ErrorCode.INVALID_TXN_STATE:
        what = request.event.name.split("_")[0].lower()
        return KafkaError(code, f"{name!r} is {transaction.state.label}: nothing to {what}")
    return KafkaError(code, explain.why_locked_out(name, transaction, request.now_ms))
