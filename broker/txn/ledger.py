"""The transactional ids that this broker coordinates: read from the log, changed through the log.

A transaction changes only through `append`, which makes the change durable before it is visible.
`append` also starts what follows from the change: it watches the new deadline, and has a decided
transaction finished.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Final
from uuid import UUID

import trio

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.coordination.tenure import LOG_ERRORS, Tenures
from odradek.broker.env import Clock
from odradek.broker.member_ids import member_id
from odradek.broker.turns import Turns
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

    `on_decided` is called with the entries of each decision, which must be finished; it may not
    raise. `on_uncertain` is called with a partition that must be read anew. `is_by_tag` says
    whether ids are kept where their tag hashes to.
    """

    def __init__(
        self,
        state_partitions: StatePartitions,
        clock: Clock,
        config: TransactionConfig,
        on_decided: Callable[[Sequence[Entry]], None],
        on_uncertain: Callable[[int], None],
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
        self._on_uncertain = on_uncertain
        self._is_by_tag = is_by_tag

    async def load(self, index: int) -> None:
        """Begin a tenure, as `Tenures.load` describes."""
        await self._tenures.load(index, self._read)

    async def _read(self, tenure: TransactionTenure) -> None:
        started = trio.current_time()
        transactions = await loading.load(tenure.partition)
        await self._tenures.check_places(tenure, transactions)
        # Cancelling takes effect at a checkpoint only. A tenure that ended after the last read must
        # not resume transactions: the broker that leads the partition now does it (KAFKA-9307).
        if tenure.is_over:
            return
        decided: dict[UUID | str, list[Entry]] = {}
        for count, (transactional_id, transaction) in enumerate(transactions.items(), 1):
            entry = self.new_entry(tenure, transactional_id, transaction)
            self._take_up(entry)
            if transaction.state.is_prepared:
                decided.setdefault(transaction.decision_id or transactional_id, []).append(entry)
            if count % TAKEN_UP_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        # The decisions are durable, and the coordinator before died or was deposed before it had
        # written all markers. Its successor writes them again; a repeat is harmless.
        for entries in decided.values():
            self._on_decided(entries)
        seconds = trio.current_time() - started
        LOGGER.debug("%d ids of %s read in %.3f s", len(transactions), tenure.name, seconds)

    def unload(self, index: int) -> None:
        self._tenures.unload(index)

    def unload_all(self) -> None:
        self._tenures.unload_all()

    def tenure_of(self, transactional_id: str) -> TransactionTenure:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        return self._tenures.find(transactional_id)

    def new_entry(
        self, tenure: TransactionTenure, transactional_id: str, transaction: TransactionMetadata
    ) -> Entry:
        """Return the entry of an id under a tenure, which does not have it yet."""
        clock = tenure.clock_of(self.group_of(transactional_id))
        return Entry(tenure, transactional_id, transaction, clock)

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

    @property
    def size_bytes(self) -> int:
        """The size that all entries count for in memory limits."""
        return sum(tenure.size_bytes for tenure in self._tenures)

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

    def producer_id(self, transactional_id: str, number: int) -> int:
        """Return the producer id that an id gets with a number of the counter."""
        is_member = self.group_of(transactional_id) is not None
        return member_id(number) if is_member else number

    def check_groups(self) -> None:
        """Raise KafkaError(UNSUPPORTED_VERSION) if ids are not kept by their tags."""
        if not self._is_by_tag():
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "transaction groups are not served here: a version of the broker that did not have "
                "them has made __transaction_state",
            )

    def heard(self, transactional_id: str) -> None:
        """Note that the producer of an open transaction is there."""
        if self.group_of(transactional_id) is None:
            return
        entry = self.find(transactional_id)
        if entry is not None and entry.clock is not None:
            entry.clock.heard_at = trio.current_time()

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
        await self.append_all([(entry, after)])
        if after.state.is_prepared:
            self._on_decided([entry])

    async def append_all(self, changes: Sequence[tuple[Entry, TransactionMetadata]]) -> None:
        """Do what `append` does for several ids of one tenure, in one batch.

        It finishes no decision. For a few hundred ids: nothing else runs meanwhile.
        """
        for entry, after in changes:
            assert entry.pending is None, entry.transactional_id
            entry.pending = after
            entry.tenure.count(entry)
        try:
            records = [store.encode(entry.transactional_id, after) for entry, after in changes]
            await self._make_durable(changes[0][0].tenure, records)
            for entry, after in changes:
                self._apply(entry, after)
        finally:
            # Also after a failure: an id that stayed pending would answer CONCURRENT_TRANSACTIONS
            # for ever (KAFKA-5351, KAFKA-7519).
            for entry, _ in changes:
                release(entry)

    async def decide(
        self,
        tenure: TransactionTenure,
        decided: Mapping[Entry, TransactionMetadata],
        records: Sequence[Record],
    ) -> None:
        """Append the decision of a group as one batch, and make it visible.

        `decided` has what each entry becomes. All are pending, and stay so if this raises. Raises
        KafkaError. If the append is then neither durable nor refused, this tenure ends, and the
        partition is read anew. Otherwise one of the members could go on (its time-out could abort
        it), and supersede its part of a decision that has survived.
        """
        try:
            appended = tenure.partition.append_records(records)
        except KafkaError as error:
            raise _refused(tenure, error) from error
        try:
            await tenure.flushed(appended.last_offset + 1)
        except KafkaError as error:
            if not tenure.is_over:
                index = self.partition_for(next(iter(decided)).transactional_id)
                self._tenures.unload(index)
                self._on_uncertain(index)
            raise _refused(tenure, error) from error
        # It is durable: all of it becomes visible, though not in the same moment. A request for a
        # member waits until its turn has come.
        turns = Turns()
        with tenure.bound(shield=True):
            for entry, after in decided.items():
                await turns.take()
                self._apply(entry, after)
                release(entry)
            self._on_decided(list(decided))
        tenure.check()

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
                tenure.drop(entry.transactional_id)
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
            raise _refused(tenure, error) from error

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
            entry.time_out_at(inf)
        elif before.state is not State.ONGOING:
            self._watch_timeout(entry, after.timeout_ms)
        elif after.never_times_out:
            entry.time_out_at(inf)
        if after.state.may_expire:
            self.watch_expiration(entry, self._expiration_ms(entry))
        else:
            entry.expires_at = inf

    def _take_up(self, entry: Entry) -> None:
        """Resume a transaction that was found in the log."""
        entry.tenure.add(entry)
        transaction = entry.transaction
        entry.tenure.owners[transaction.producer_id] = entry.transactional_id
        now_ms = self._clock.wall_ms()
        # The times come from the clock of another broker or of an earlier day. What is left of a
        # time-out is therefore limited to the whole of it, and is not negative.
        if transaction.state is State.ONGOING:
            whole_ms = transaction.timeout_ms
            # It is not known when a group was last heard: its members have the whole time anew.
            left_ms = _left(transaction.started_ms, whole_ms, now_ms)
            self._watch_timeout(entry, left_ms if entry.clock is None else whole_ms)
        elif transaction.state.may_expire:
            whole_ms = self._expiration_ms(entry)
            self.watch_expiration(entry, _left(transaction.updated_ms, whole_ms, now_ms))

    def _watch_timeout(self, entry: Entry, left_ms: int) -> None:
        if not entry.transaction.never_times_out:
            entry.time_out_at(trio.current_time() + left_ms / 1000)
            self.timeouts.watch(entry)

    def _expiration_ms(self, entry: Entry) -> int:
        """Return the time without use after which an id is forgotten.

        A group's ids are used once, and there are many.
        """
        config = self._config
        if entry.clock is None:
            return config.transactional_id_expiration_ms
        return config.transaction_group_id_expiration_ms

    def watch_expiration(self, entry: Entry, left_ms: int) -> None:
        entry.expires_at = trio.current_time() + left_ms / 1000
        self.expirations.watch(entry)


def release(entry: Entry) -> None:
    """End what is under way for an id: other requests for it go on."""
    entry.pending = None
    entry.tenure.count(entry)
    if entry.is_new:
        # The first InitProducerId failed: an entry with epoch -1 never expires (KAFKA-14880).
        entry.tenure.drop(entry.transactional_id)
    entry.wake()


def _refused(tenure: TransactionTenure, error: KafkaError) -> KafkaError:
    code = APPEND_FAILED.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    message = f"{tenure.name} did not take a record: {error}"
    LOGGER.warning("%s", message)
    return KafkaError(code, message)


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
