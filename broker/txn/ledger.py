"""The transactional ids that this broker coordinates: read from the log, changed through the log.

A transaction changes only through `append`, which makes the change durable before it is visible.
`append` also starts what follows from the change: it watches the new deadline, and has a decided
transaction finished.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import Final

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.coordination.tenure import LOG_ERRORS, Tenures
from odradek.broker.env import Clock
from odradek.broker.txn import loading, store
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.tenure import Entry, TransactionTenure
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    tag_of,
    transaction_partition,
)

APPEND_FAILED: Final = {**LOG_ERRORS, ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR}
"""The error of a request whose record the log refused; UNKNOWN_SERVER_ERROR for other codes."""

RETRY_FIRST_S: Final = 0.05
RETRY_LAST_S: Final = 5.0
"""The pause between two attempts of `retry_until_written`."""

TAKEN_UP_AT_ONCE: Final = 1_000
"""Ids between two checkpoints: about 5 ms."""

NO_EPOCH: Final = -1
LOGGER: Final = logging.getLogger("odradek.txn")


class Ledger:
    """The entries of all tenures of this broker.

    `on_decided` is called with each entry that must be finished; it may not raise. `is_by_tag` says
    whether ids are kept where their tag hashes to.
    """

    def __init__(
        self,
        state_partitions: StatePartitions,
        clock: Clock,
        config: TransactionConfig,
        on_decided: Callable[[Entry], None],
        is_by_tag: Callable[[], bool],
    ) -> None:
        self.timeouts: Final[Deadlines[Entry]] = Deadlines(lambda entry: entry.timeout_at)
        self.expirations: Final[Deadlines[Entry]] = Deadlines(lambda entry: entry.expires_at)
        self._tenures: Final[Tenures[TransactionTenure]] = Tenures(
            TRANSACTION_STATE_TOPIC,
            self.partition_for,
            state_partitions,
            lambda partition, name: TransactionTenure(
                partition, name, self.timeouts, self.expirations
            ),
        )
        self._clock = clock
        self._config = config
        self._on_decided = on_decided
        self._is_by_tag = is_by_tag

    async def load(self, index: int) -> None:
        """Begin a tenure, as `Tenures.load` describes."""
        await self._tenures.load(index, self._read)

    async def _read(self, tenure: TransactionTenure) -> None:
        started = trio.current_time()
        transactions = await loading.load(tenure.partition)
        # Cancelling takes effect at a checkpoint only. A tenure that ended after the last read must
        # not resume transactions: the broker that leads the partition now does it (KAFKA-9307).
        if tenure.is_over:
            return
        for count, (transactional_id, transaction) in enumerate(transactions.items(), 1):
            self._take_up(Entry(tenure, transactional_id, transaction))
            if count % TAKEN_UP_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        seconds = trio.current_time() - started
        LOGGER.debug("%d ids of %s read in %.3f s", len(transactions), tenure.name, seconds)

    def unload(self, index: int) -> None:
        self._tenures.unload(index)

    def unload_all(self) -> None:
        self._tenures.unload_all()

    def tenure_of(self, transactional_id: str) -> TransactionTenure:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        return self._tenures.find(transactional_id)

    def find(self, transactional_id: str) -> Entry | None:
        """Return the entry of an id, None if no producer has it. Raises as `tenure_of`."""
        entry = self.tenure_of(transactional_id).entries.get(transactional_id)
        return None if entry is None or entry.is_new else entry

    def entries(self) -> Iterator[Entry]:
        """Go through all entries; they may change meanwhile."""
        for tenure in self._tenures:
            for entry in list(tenure.entries.values()):
                if not entry.is_new:
                    yield entry

    @property
    def count(self) -> int:
        """The number of entries, with those whose first record is not written yet."""
        return sum(len(tenure.entries) for tenure in self._tenures)

    def owner_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has this producer id; None if none here has it."""
        for tenure in self._tenures:
            if producer_id in tenure.owners:
                return tenure.owners[producer_id]
        return None

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that keeps an id."""
        count = self._config.transaction_state_log_num_partitions
        return transaction_partition(transactional_id, count, by_tag=self._is_by_tag())

    def group_of(self, transactional_id: str) -> str | None:
        """Return the transaction group of an id, which its tag names; None if it is in none."""
        return tag_of(transactional_id) if self._is_by_tag() else None

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the epoch in which this broker coordinates an id; -1 if it does not."""
        tenure = self._tenures.get(self.partition_for(transactional_id))
        return NO_EPOCH if tenure is None else tenure.coordinator_epoch

    @property
    def is_loading(self) -> bool:
        return self._tenures.is_loading

    async def append(self, entry: Entry, after: TransactionMetadata) -> None:
        """Make `after` durable, then visible. Raises KafkaError; nothing has changed then.

        A record whose flush failed may survive all the same. That is harmless: it was not
        acknowledged, the id's next record supersedes it, and it did not make an epoch smaller.
        """
        assert entry.pending is None, entry.transactional_id
        entry.pending = after
        try:
            await self._make_durable(entry.tenure, [store.encode(entry.transactional_id, after)])
            self._apply(entry, after)
        finally:
            # Also after a failure: an id that stayed pending would answer CONCURRENT_TRANSACTIONS
            # for ever (KAFKA-5351, KAFKA-7519).
            entry.pending = None
            if entry.is_new:
                # The first InitProducerId failed: an entry with epoch -1 never expires
                # (KAFKA-14880).
                entry.tenure.entries.pop(entry.transactional_id, None)
            entry.wake()

    async def confirm(self, entry: Entry) -> None:
        """Write the visible value once more, to prove that this broker leads the state partition.

        Raises KafkaError if the log did not take it.
        """
        record = store.encode(entry.transactional_id, entry.transaction)
        await self._make_durable(entry.tenure, [record])

    async def remove(
        self, tenure: TransactionTenure, buried: Sequence[tuple[Entry, TransactionMetadata]]
    ) -> None:
        """Remove entries with one batch of tombstones. Raises KafkaError; all are still there then.

        `buried` has each entry with its Dead transaction.
        """
        if not buried:
            return
        for entry, dead in buried:
            assert entry.pending is None, entry.transactional_id
            entry.pending = dead
        now_ms = self._clock.wall_ms()
        tombstones = [store.tombstone(entry.transactional_id, now_ms) for entry, _ in buried]
        try:
            await self._make_durable(tenure, tombstones)
            for entry, _ in buried:
                del tenure.entries[entry.transactional_id]
                tenure.owners.pop(entry.transaction.producer_id, None)
        finally:
            for entry, _ in buried:
                entry.pending = None
                entry.wake()

    async def _make_durable(self, tenure: TransactionTenure, records: list[Record]) -> None:
        try:
            appended = tenure.partition.append_records(records)
            await tenure.flushed(appended.last_offset + 1)
        except KafkaError as error:
            code = APPEND_FAILED.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
            message = f"{tenure.name} did not take a record: {error}"
            LOGGER.warning("%s", message)
            raise KafkaError(code, message) from error

    def _apply(self, entry: Entry, after: TransactionMetadata) -> None:
        """Make `after` visible and start what follows from it."""
        before = entry.transaction
        entry.transaction = after
        if before.producer_id != after.producer_id or before.producer_epoch < 0:
            owners = entry.tenure.owners
            owners.pop(before.producer_id, None)
            owners[after.producer_id] = entry.transactional_id
        # The clock runs from the first partition, not from the last one: a producer that adds a
        # partition every minute would otherwise never time out.
        if after.state is not State.ONGOING:
            entry.timeout_at = inf
        elif before.state is not State.ONGOING:
            self._watch_timeout(entry, after.timeout_ms)
        elif after.never_times_out:
            entry.timeout_at = inf
        if after.state.may_expire:
            self.watch_expiration(entry, self._config.transactional_id_expiration_ms)
        else:
            entry.expires_at = inf
        if after.state.is_prepared:
            self._on_decided(entry)

    def _take_up(self, entry: Entry) -> None:
        """Resume a transaction that was found in the log."""
        entry.tenure.entries[entry.transactional_id] = entry
        transaction = entry.transaction
        entry.tenure.owners[transaction.producer_id] = entry.transactional_id
        now_ms = self._clock.wall_ms()
        # The times come from the clock of another broker or of an earlier day. What is left of a
        # time-out is therefore limited to the whole of it, and is not negative.
        if transaction.state is State.ONGOING:
            whole_ms = transaction.timeout_ms
            self._watch_timeout(entry, _left(transaction.started_ms, whole_ms, now_ms))
        elif transaction.state.may_expire:
            whole_ms = self._config.transactional_id_expiration_ms
            self.watch_expiration(entry, _left(transaction.updated_ms, whole_ms, now_ms))
        else:
            # Prepare*: the decision is durable, and the coordinator before died or was deposed
            # before it had written all markers. Its successor writes them again; a repeat is
            # harmless.
            self._on_decided(entry)

    def _watch_timeout(self, entry: Entry, left_ms: int) -> None:
        if not entry.transaction.never_times_out:
            entry.timeout_at = trio.current_time() + left_ms / 1000
            self.timeouts.watch(entry)

    def watch_expiration(self, entry: Entry, left_ms: int) -> None:
        entry.expires_at = trio.current_time() + left_ms / 1000
        self.expirations.watch(entry)


async def retry_until_written(attempt: Callable[[], Awaitable[None]]) -> None:
    """Retry `attempt` until the log takes its record.

    For changes that the coordinator makes on its own: no client would retry them.
    """
    wait_s = RETRY_FIRST_S
    while True:
        try:
            return await attempt()
        except KafkaError:
            await trio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_LAST_S)


def _left(since_ms: int, whole_ms: int, now_ms: int) -> int:
    return min(max(since_ms + whole_ms - now_ms, 0), whole_ms)
