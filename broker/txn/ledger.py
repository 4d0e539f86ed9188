"""The transactional ids of this broker: read from the log, changed through the log, watched.

`append` is the only way in which a transaction changes: durable first, visible afterwards. What
follows from a change is arranged here too: which deadline is watched, and that a decided
transaction is finished.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.env import Clock
from odradek.broker.txn import loading, store
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.tenure import Entry, Tenure
from odradek.broker.txn.transaction import State, Transaction
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record
from odradek.protocol.state_topics import state_partition

APPEND_FAILED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
}
"""What a client is told when the log did not take a record; for the rest UNKNOWN_SERVER_ERROR."""

RETRY_FIRST_S: Final = 0.05
RETRY_LAST_S: Final = 5.0
"""Between two attempts at an append that the coordinator itself wants."""

LOADED_AT_ONCE: Final = 2
"""Partitions: one may wait for the disk while the other is decoded, and the first ones are there
long before the last."""
TAKEN_UP_AT_ONCE: Final = 1_000
"""Ids, between two chances for others to run: about 5 ms."""

log = logging.getLogger("odradek.txn")


class Ledger:
    """`on_decided` is called with each entry that must be finished; it may not raise."""

    def __init__(
        self,
        state_partitions: StatePartitions,
        clock: Clock,
        config: TransactionConfig,
        on_decided: Callable[[Entry], None],
    ) -> None:
        self.timeouts: Final[Deadlines[Entry]] = Deadlines(lambda entry: entry.timeout_at)
        self.expirations: Final[Deadlines[Entry]] = Deadlines(lambda entry: entry.expires_at)
        self._state_partitions = state_partitions
        self._clock = clock
        self._config = config
        self._on_decided = on_decided
        self._loading = trio.CapacityLimiter(LOADED_AT_ONCE)
        self._tenures: dict[int, Tenure] = {}
        self._owners: dict[int, str] = {}

    async def load(self, index: int) -> None:
        """Begin a tenure. Raises KafkaError if the partition cannot be read: there is none then.

        Nothing happens, and nothing is raised, if the partition goes elsewhere meanwhile.
        """
        tenure = Tenure(self._state_partitions.get(index), index)
        previous = self._tenures.get(index)
        if previous is not None and previous.coordinator_epoch > tenure.coordinator_epoch:
            return
        self.unload(index)
        self._tenures[index] = tenure
        started = trio.current_time()
        try:
            async with self._loading:
                transactions = await loading.load(tenure.partition)
                for count, (transactional_id, transaction) in enumerate(transactions.items(), 1):
                    if tenure.is_over:
                        return
                    self._take_up(Entry(tenure, transactional_id, transaction))
                    if count % TAKEN_UP_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
            if tenure.is_over:
                return
            tenure.is_loaded = True
        except KafkaError:
            if not tenure.is_over:
                raise
            return
        finally:
            if not (tenure.is_loaded or tenure.is_over):
                self.unload(index)
        count, seconds = len(transactions), trio.current_time() - started
        log.debug("%d ids of __transaction_state-%d read in %.3f s", count, index, seconds)

    def unload(self, index: int) -> None:
        tenure = self._tenures.pop(index, None)
        if tenure is not None:
            self._end([tenure])

    def unload_all(self) -> None:
        tenures = list(self._tenures.values())
        self._tenures.clear()
        self._end(tenures)

    def _end(self, tenures: Iterable[Tenure]) -> None:
        """All at once: deadlines are looked through once, and not for each of fifty."""
        for tenure in tenures:
            tenure.end()
            for entry in tenure.entries.values():
                self._owners.pop(entry.transaction.producer_id, None)
        self.timeouts.keep(lambda entry: not entry.tenure.is_over)
        self.expirations.keep(lambda entry: not entry.tenure.is_over)

    def tenure_of(self, transactional_id: str) -> Tenure:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        index = state_partition(transactional_id, self._config.transaction_state_log_num_partitions)
        name = f"__transaction_state-{index}"
        tenure = self._tenures.get(index)
        if tenure is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate {name}")
        if not tenure.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is being read")
        return tenure

    def find(self, transactional_id: str) -> Entry | None:
        """The entry of an id that somebody has. Raises as `tenure_of`."""
        entry = self.tenure_of(transactional_id).entries.get(transactional_id)
        return None if entry is None or entry.is_new else entry

    def entries(self) -> Iterator[Entry]:
        """Every entry; whoever goes through them may rest in between."""
        for tenure in list(self._tenures.values()):
            for entry in list(tenure.entries.values()):
                if not entry.is_new:
                    yield entry

    @property
    def count(self) -> int:
        """How many entries there are, with those whose first record is not written yet."""
        return sum(len(tenure.entries) for tenure in self._tenures.values())

    def owner_of(self, producer_id: int) -> str | None:
        return self._owners.get(producer_id)

    @property
    def is_loading(self) -> bool:
        return any(not tenure.is_loaded for tenure in self._tenures.values())

    async def append(self, entry: Entry, after: Transaction) -> None:
        """Make `after` durable, then let it be seen. Raises KafkaError: nothing has changed then.

        A record whose flush failed may have survived all the same. Nobody was told of it, the id's
        next record supersedes it, and it made no epoch smaller.
        """
        assert entry.pending is None, entry.transactional_id
        entry.pending = after
        try:
            await self._make_durable(entry.tenure, [store.encode(entry.transactional_id, after)])
            self._apply(entry, after)
        finally:
            entry.pending = None
            if entry.is_new:  # leave nothing behind that would have to expire (KAFKA-14880)
                entry.tenure.entries.pop(entry.transactional_id, None)
            entry.wake()

    async def confirm(self, entry: Entry) -> None:
        """Write what is visible once more: only who still leads the state partition can. Raises
        KafkaError."""
        record = store.encode(entry.transactional_id, entry.transaction)
        await self._make_durable(entry.tenure, [record])

    async def bury(self, tenure: Tenure, buried: Sequence[tuple[Entry, Transaction]]) -> None:
        """Remove entries, all with one batch of tombstones. Raises KafkaError: all are still there.

        `buried` has each entry with the Dead transaction that it is about to be.
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
                self._owners.pop(entry.transaction.producer_id, None)
        finally:
            for entry, _ in buried:
                entry.pending = None
                entry.wake()

    async def _make_durable(self, tenure: Tenure, records: list[Record]) -> None:
        try:
            with tenure.uninterrupted():
                appended = tenure.partition.append_records(records)
                await tenure.partition.flushed(appended.last_offset + 1)
        except KafkaError as error:
            code = APPEND_FAILED.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
            message = f"__transaction_state-{tenure.index} did not take a record: {error}"
            log.warning("%s", message)
            raise KafkaError(code, message) from error

    def _apply(self, entry: Entry, after: Transaction) -> None:
        before = entry.transaction
        entry.transaction = after
        if before.producer_id != after.producer_id or before.producer_epoch < 0:
            self._owners.pop(before.producer_id, None)
            self._owners[after.producer_id] = entry.transactional_id
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
        """Go on with what was found in the log.

        The time of a stored start may have been another clock's: what is left of a time-out is
        never more than the whole of it, and never less than nothing.
        """
        entry.tenure.entries[entry.transactional_id] = entry
        transaction = entry.transaction
        self._owners[transaction.producer_id] = entry.transactional_id
        now_ms = self._clock.wall_ms()
        if transaction.state is State.ONGOING:
            whole_ms = transaction.timeout_ms
            self._watch_timeout(entry, _left(transaction.started_ms, whole_ms, now_ms))
        elif transaction.state.may_expire:
            whole_ms = self._config.transactional_id_expiration_ms
            self.watch_expiration(entry, _left(transaction.updated_ms, whole_ms, now_ms))
        else:
            self._on_decided(entry)

    def _watch_timeout(self, entry: Entry, left_ms: int) -> None:
        if not entry.transaction.never_times_out:
            entry.timeout_at = trio.current_time() + left_ms / 1000
            self.timeouts.watch(entry)

    def watch_expiration(self, entry: Entry, left_ms: int) -> None:
        entry.expires_at = trio.current_time() + left_ms / 1000
        self.expirations.watch(entry)


async def insist(attempt: Callable[[], Awaitable[None]]) -> None:
    """Try again until the log takes it, for what nobody else would try again."""
    wait_s = RETRY_FIRST_S
    while True:
        try:
            return await attempt()
        except KafkaError:
            await trio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_LAST_S)


def _left(since_ms: int, whole_ms: int, now_ms: int) -> int:
    return min(max(since_ms + whole_ms - now_ms, 0), whole_ms)
