"""Time-outs of open transactions, and expiry of transactional ids without use.

Both wait for the next deadline. Kafka goes through all ids instead, every 10 s for time-outs
(`transaction.abort.timed.out.transaction.cleanup.interval.ms`) and every hour for expiry. Here a
transaction is aborted at its deadline.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import trio

from odradek.broker.env import Clock
from odradek.broker.txn import state
from odradek.broker.txn.events import Event, StepRequest
from odradek.broker.txn.ledger import RETRY_LAST_S, Ledger, retry_until_written
from odradek.broker.txn.moves import Move
from odradek.broker.txn.steps import Steps
from odradek.broker.txn.tenure import Entry, TransactionTenure
from odradek.broker.txn.transaction import BumpCause, TransactionMetadata
from odradek.protocol.errors import KafkaError

TOMBSTONES_PER_BATCH_MAX: Final = 500
TOMBSTONE_KEYS_MAX_BYTES: Final = 256 * 1024
"""Far below `max.message.bytes`, however many ids expire at once (KAFKA-13099)."""

NAMED_MAX: Final = 5
"""The number of expired ids that the log line names."""

LOGGER: Final = logging.getLogger("odradek.txn")


async def abort_timed_out(ledger: Ledger, steps: Steps) -> None:
    """Abort each transaction at its deadline; retry if the log does not take the abort."""
    async with trio.open_nursery() as nursery:
        while True:
            for entry in await ledger.timeouts.wait():
                nursery.start_soon(_time_out, ledger, entry, steps)


async def _time_out(ledger: Ledger, entry: Entry, steps: Steps) -> None:
    # Asked again after each wait: the transaction may have been committed while the log was
    # refusing, and the id may have begun its next transaction, with a deadline of its own.
    def event() -> Event | None:
        return Event.FENCE if entry.timeout_at <= trio.current_time() else None

    with entry.tenure.bound():
        await retry_until_written(lambda: steps.fence(entry, event, BumpCause.TIMEOUT, None))
        # While the log was refusing, another member of its group may have been heard.
        ledger.timeouts.watch(entry)


async def remove_expired(ledger: Ledger, clock: Clock) -> None:
    """Remove the ids without use for `transactional.id.expiration.ms`."""
    async with trio.open_nursery() as nursery:
        while True:
            by_tenure: dict[TransactionTenure, list[Entry]] = {}
            for entry in await ledger.expirations.wait():
                by_tenure.setdefault(entry.tenure, []).append(entry)
            for tenure, entries in by_tenure.items():
                nursery.start_soon(_remove, ledger, clock, tenure, entries)


async def _remove(
    ledger: Ledger, clock: Clock, tenure: TransactionTenure, entries: list[Entry]
) -> None:
    with tenure.bound():
        for batch in _batches(entries):
            buried = [pair for entry in batch if (pair := _dead(entry, clock.wall_ms()))]
            # The ledger has logged a failure. The ids are then still there, and get a new deadline
            # below.
            with suppress(KafkaError):
                await ledger.remove(tenure, buried)
                _log_removed([entry.transactional_id for entry, _ in buried])
            for entry in batch:
                is_there = tenure.entries.get(entry.transactional_id) is entry
                if is_there and entry.expires_at <= trio.current_time():
                    ledger.watch_expiration(entry, round(RETRY_LAST_S * 1000))


def _dead(entry: Entry, now_ms: int) -> tuple[Entry, TransactionMetadata] | None:
    """Return the entry with its Dead transaction; None if the id is in use after all."""
    if entry.pending is not None or entry.expires_at > trio.current_time():
        return None
    request = StepRequest(event=Event.EXPIRE, now_ms=now_ms)
    cell = state.decide(entry.transaction, request.event, request.transaction_version)
    assert isinstance(cell, Move), "only an idle id has an end"
    return entry, state.step(entry.transaction, cell, request)


def _batches(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Cut entries into batches whose tombstones fit into one record batch (KAFKA-13099)."""
    batch: list[Entry] = []
    key_bytes = 0
    for entry in entries:
        size = len(entry.transactional_id.encode())
        if batch and (
            len(batch) == TOMBSTONES_PER_BATCH_MAX or key_bytes + size > TOMBSTONE_KEYS_MAX_BYTES
        ):
            yield batch
            batch, key_bytes = [], 0
        batch.append(entry)
        key_bytes += size
    if batch:
        yield batch


def _log_removed(names: list[str]) -> None:
    if names:
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        named = ", ".join(map(repr, names[:NAMED_MAX]))
        LOGGER.info("transactional ids removed that have expired without use: %s%s", named, more)
