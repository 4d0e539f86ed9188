"""Time-outs of open transactions, and expiry of transactional ids without use.

Both wait for the next deadline. Kafka goes through all ids instead, every 10 s for time-outs
(`transaction.abort.timed.out.transaction.cleanup.interval.ms`) and every hour for expiry. Here a
transaction is aborted at its deadline.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Final

import trio

from odradek.broker.environment.env import Clock
from odradek.broker.txn import state
from odradek.broker.txn.events import Event, StepRequest
from odradek.broker.txn.ledger import RETRY_LAST_S, Ledger, retry_until_written
from odradek.broker.txn.moves import Move
from odradek.broker.txn.steps import Steps
from odradek.broker.txn.tenure import PARTITION_BYTES, Entry, TransactionTenure, size_of
from odradek.broker.txn.transaction import BumpCause, TransactionMetadata
from odradek.protocol.errors import ErrorCode, KafkaError

TOMBSTONES_PER_BATCH_MAX: Final = 500
TOMBSTONE_KEYS_MAX_BYTES: Final = 256 * 1024
"""Far below `max.message.bytes`, however many ids expire at once (KAFKA-13099)."""

NAMED_MAX: Final = 5
"""The number of expired ids that the log line names."""
NAME_SHOWN_MAX: Final = 200
"""The characters of an id that it shows."""

REMOVED_EARLY_MAX: Final = 100
"""The most ids that are removed at once to make room; of few ids, one in a hundred."""

LOGGER: Final = logging.getLogger("odradek.txn")


async def abort_timed_out(ledger: Ledger, steps: Steps) -> None:
    """Abort each transaction at its deadline; retry if the log does not take the abort."""
    async with trio.open_nursery() as nursery:
        while True:
            for entry in await ledger.deadlines.timeouts.wait():
                nursery.start_soon(_time_out, ledger, entry, steps)


async def _time_out(ledger: Ledger, entry: Entry, steps: Steps) -> None:
    # Asked again after each wait: the transaction may have been committed while the log was
    # refusing, and the id may have begun its next transaction, with a deadline of its own.
    def event() -> Event | None:
        return Event.FENCE if entry.timeout_at <= trio.current_time() else None

    with entry.tenure.bound():
        await retry_until_written(lambda: steps.fence(entry, event, BumpCause.TIMEOUT, None))
        # While the log was refusing, another member of its group may have been heard.
        ledger.deadlines.timeouts.watch(entry)


async def remove_expired(ledger: Ledger, clock: Clock) -> None:
    """Remove the ids without use for `transactional.id.expiration.ms`."""
    async with trio.open_nursery() as nursery:
        while True:
            by_tenure: dict[TransactionTenure, list[Entry]] = {}
            for entry in await ledger.deadlines.expirations.wait():
                by_tenure.setdefault(entry.tenure, []).append(entry)
            for tenure, entries in by_tenure.items():
                nursery.start_soon(_remove, ledger, clock, tenure, entries)


async def _remove(
    ledger: Ledger, clock: Clock, tenure: TransactionTenure, entries: list[Entry]
) -> None:
    with tenure.bound():
        for batch in _batches(entries):
            due = [entry for entry in batch if entry.expires_at <= trio.current_time()]
            buried = _dead(due, clock.wall_ms())
            # The ledger has logged a failure. The ids are then still there, and get a new deadline
            # below.
            with suppress(KafkaError):
                await ledger.write(buried)
                _log_removed([entry.transactional_id for entry in buried])
            for entry in batch:
                is_there = tenure.entries.get(entry.transactional_id) is entry
                if is_there and entry.expires_at <= trio.current_time():
                    ledger.deadlines.watch_expiration(entry, round(RETRY_LAST_S * 1000))


# invariant bounds 2: What clients leave behind has a bound, too: producers, transactional ids with
# the partitions of their transactions, groups.
# plant a transactional id is made although there is no room
class RoomForIds:
    """Room for ids and the partitions of their transactions: ids that expire next go early."""

    def __init__(self, ledger: Ledger, clock: Clock, max_bytes: int) -> None:
        self._ledger = ledger
        self._clock = clock
        self._max_bytes = max_bytes
        self._making = trio.Lock()

    async def make(self, transactional_id: str) -> None:
        """Make room for an id, unless it is there.

        Raises KafkaError: as `Ledger.find`, and COORDINATOR_LOAD_IN_PROGRESS, which clients retry,
        if every id is in use, or none could be removed.
        """

        def growth() -> int:
            is_there = transactional_id in self._ledger.tenure_of(transactional_id).entries
            return 0 if is_there else size_of(transactional_id)

        await self._make(transactional_id, growth)

    async def make_for(self, entry: Entry, after: TransactionMetadata) -> bool:
        """Make room for the partitions that `after` has more than the entry.

        Return True if there was room. Otherwise anything may have changed meanwhile. Raises
        KafkaError as `make`.
        """

        def growth() -> int:
            added = len(after.partitions) - len(entry.transaction.partitions)
            return max(0, added) * PARTITION_BYTES

        if self._has_room(growth()):
            return True
        await self._make(entry.transactional_id, growth)
        return False

    async def _make(self, transactional_id: str, growth: Callable[[], int]) -> None:
        while not self._has_room(growth()):
            async with self._making:
                if not self._has_room(growth()) and not await self._remove_some(transactional_id):
                    raise KafkaError(
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                        f"there is no room for {transactional_id!r}: the ids of this broker and "
                        f"the partitions of their transactions take {self._ledger.size_bytes} of "
                        f"{self._max_bytes} bytes (transactional.ids.max.bytes), and all are in "
                        "use; try again",
                    )

    def _has_room(self, needed_bytes: int) -> bool:
        return not needed_bytes or self._ledger.size_bytes + needed_bytes <= self._max_bytes

    async def _remove_some(self, but_not: str) -> int:
        """Remove the ids that would expire next. Return the number of those that have gone."""
        by_tenure: dict[TransactionTenure, list[Entry]] = {}
        count = min(1 + self._ledger.count // 100, REMOVED_EARLY_MAX)
        soonest = self._ledger.deadlines.expirations.take_soonest(count)
        if any(entry.transactional_id == but_not for entry in soonest):
            soonest += self._ledger.deadlines.expirations.take_soonest(1)
        for entry in soonest:
            if entry.transactional_id != but_not:
                by_tenure.setdefault(entry.tenure, []).append(entry)
        gone: list[str] = []
        try:
            for entries in by_tenure.values():
                buried = _dead(entries, self._clock.wall_ms())
                with suppress(KafkaError):
                    await self._ledger.write(buried)
                    gone += [entry.transactional_id for entry in buried]
        finally:
            for entry in soonest:
                if entry.tenure.entries.get(entry.transactional_id) is entry:
                    self._ledger.deadlines.expirations.watch(entry)
        if gone:
            LOGGER.warning(
                "%d transactional ids are forgotten before their time, because all of them and the "
                "partitions of transactions take more than transactional.ids.max.bytes: %s",
                len(gone),
                _quote_names(gone),
            )
        return len(gone)


def _dead(entries: list[Entry], now_ms: int) -> dict[Entry, TransactionMetadata]:
    """Return those entries that are not in use, each with its Dead transaction."""
    request = StepRequest(event=Event.EXPIRE, now_ms=now_ms)
    buried = {}
    for entry in entries:
        if entry.pending is None and entry.expires_at < inf:
            cell = state.decide(entry.transaction, request.event, request.transaction_version)
            assert isinstance(cell, Move), "only an idle id has an end"
            buried[entry] = state.step(entry.transaction, cell, request)
    return buried


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
        LOGGER.info(
            "transactional ids removed that have expired without use: %s", _quote_names(names)
        )


def _quote_names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(repr(name[:NAME_SHOWN_MAX]) for name in names[:NAMED_MAX]) + more
