"""The transactional ids that this broker coordinates: read from the log, changed through the log.

A transaction changes only through `Ledger.write`. The change is visible when its record is
committed; `TransactionTenure.replay` then also starts what follows from it: it watches the new
deadline, and has a decided transaction finished. Its end alone takes a shorter way,
`Ledger.complete`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final

import trio

from odradek.broker.coordination.state_partition import StatePartitions
from odradek.broker.coordination.tenure import Tenures
from odradek.broker.environment.env import Clock
from odradek.broker.environment.turns import Turns
from odradek.broker.txn import loading, store
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.counts import TransactionCounts
from odradek.broker.txn.tenure import (
    UNREAD,
    Change,
    Entry,
    OnChanged,
    TransactionDeadlines,
    TransactionTenure,
)
from odradek.broker.txn.transaction import TransactionMetadata
from odradek.broker.values.member_ids import member_id
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, batch_of
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    tag_of,
    transaction_partition,
)

RETRY_FIRST_S: Final = 0.05
RETRY_LAST_S: Final = 5.0
"""The pause between two attempts of `retry_until_written`."""

NO_EPOCH: Final = -1
LOGGER: Final = logging.getLogger("odradek.txn")


class Ledger:
    """The entries of all tenures of this broker.

    `on_decided` is called with the entries of each decision, which must be finished; it may not
    raise. `on_uncertain` is called with a partition that must be read anew. `is_by_tag` says
    whether ids are kept where their tag hashes to. `on_appended` is called with a decision of one
    id as soon as it is in the log. `commit_later` is called with the rest of a change that records
    follow already. `on_changed` is called with each entry that has changed.
    """

    def __init__(
        self,
        state_partitions: StatePartitions,
        clock: Clock,
        config: TransactionConfig,
        on_decided: Callable[[Sequence[Entry]], None],
        on_uncertain: Callable[[int], None],
        is_by_tag: Callable[[], bool],
        on_appended: Callable[[Entry, TransactionMetadata], None],
        commit_later: Callable[[Callable[[], Awaitable[None]]], None],
        on_changed: OnChanged | None = None,
    ) -> None:
        self.deadlines: Final = TransactionDeadlines(clock, config)
        self.counts: Final = TransactionCounts()
        self._tenures: Final[Tenures[TransactionTenure]] = Tenures(
            TRANSACTION_STATE_TOPIC,
            self.partition_for,
            state_partitions,
            lambda partition, name: TransactionTenure(
                partition, name, self.deadlines, on_decided, self.counts, on_changed
            ),
        )
        self._config = config
        self._on_uncertain = on_uncertain
        self._on_appended = on_appended
        self._commit_later = commit_later
        self._is_by_tag = is_by_tag

    async def load(self, index: int) -> None:
        """Begin a tenure, as `Tenures.load` describes."""
        await self._tenures.load(index, self._read)

    async def _read(self, tenure: TransactionTenure) -> None:
        started = trio.current_time()
        transactions = await loading.load(tenure.partition)
        # invariant tenures 4
        await self._tenures.check_places(tenure, transactions)
        # Cancelling takes effect at a checkpoint only. A tenure that ended after the last read must
        # not resume transactions: the broker that leads the partition now does it (KAFKA-9307).
        if tenure.is_over:
            return
        change: dict[Entry, TransactionMetadata] = {}
        turns = Turns()
        for transactional_id, transaction in transactions.items():
            await turns.take()
            entry = self.new_entry(tenure, transactional_id, UNREAD)
            tenure.entries[transactional_id] = entry
            change[entry] = transaction
        await turns.do(tenure.replay(change, 0))
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
        """Yield all entries; they may change meanwhile."""
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

    def note_heard(self, transactional_id: str) -> None:
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

    async def write(
        self,
        change: Change,
        records: Sequence[Record] | None = None,
        *,
        may_follow: Callable[[], bool] = lambda: False,
    ) -> None:
        """Append what ids of one tenure become as one batch. Return when it is visible.

        Until then the ids are pending. `records` are those of the change, if they are made already.
        `may_follow` is called when they are appended. If it returns True, this returns at once, and
        the caller may append to other logs in this turn what follows from the change.

        Raises KafkaError; the ids are then as they were, and not pending. For a few hundred ids,
        unless they are pending before (`reserved` in `transaction_group.py`): nothing else runs
        until they are appended.
        """
        if not change:
            return
        tenure = next(iter(change)).tenure
        for entry, after in change.items():
            assert entry.pending is None or entry.pending is after, entry.transactional_id
            if entry.pending is None:
                entry.pending = after
                tenure.count(entry)
        try:
            if records is None:
                records = [store.record_of(each.transactional_id, change[each]) for each in change]
            # invariant transaction-groups 1: The Prepare records of a group are one batch, so that
            # a crash leaves all of the decision or nothing.
            # plant half of a group is decided
            next_offset = tenure.append(batch_of(records), change)
            if len(change) == 1:
                ((entry, after),) = change.items()
                if after.state.is_prepared:
                    self._on_appended(entry, after)
            if may_follow():
                for entry in change:
                    entry.is_followed = True
                self._commit_later(partial(self._commit, tenure, change, next_offset))
                return
        except BaseException:
            _release(tenure, change)
            raise
        await self._commit(tenure, change, next_offset)

    async def _commit(self, tenure: TransactionTenure, change: Change, next_offset: int) -> None:
        """Wait until a change that is in the log is visible. Raises KafkaError."""
        try:
            await tenure.wait_committed(next_offset)
        except KafkaError:
            self._on_doubt(tenure, change)
            raise
        finally:
            _release(tenure, change)

    # invariant durable 1
    def complete(self, change: Change) -> None:
        """Append the Complete* records of ids of one tenure as one batch. They are visible at once.

        Raises KafkaError; the ids are then still in Prepare*.
        """
        # What a record of Complete* says is true before it is durable: all markers are committed,
        # and after the durable decision nothing else can follow. A coordinator that finds only the
        # decision sends the markers again, and the partitions recognise them. That must be over
        # before the id's next transaction begins. It is: no record of the next transaction can be
        # committed without this one, which stands before it in the same log, and nothing is written
        # in that transaction before such a record is, or it does not count before. So the records
        # share a flush.
        assert all(entry.pending is None for entry in change), change
        tenure = next(iter(change)).tenure
        records = [store.record_of(entry.transactional_id, change[entry]) for entry in change]
        tenure.append(batch_of(records), change, at_once=True, flush_later=True)

    def _on_doubt(self, tenure: TransactionTenure, change: Change) -> None:
        """Handle a change that is in the log, and may be committed or not."""
        if tenure.is_over:
            return
        entry, first = next(iter(change.items()))
        is_of_group = first.state.is_prepared and first.decision_id is not None
        if is_of_group or entry.is_followed:
            # One of the members could go on (its time-out could abort it), and supersede its part
            # of a decision that has survived. So could an id that records follow in other logs.
            # invariant transaction-groups 3: A decision that may have survived is never superseded:
            # if its append is neither durable nor refused, the tenure ends, and the partition is
            # read anew.
            # plant a decision of unknown outcome is superseded
            index = self.partition_for(entry.transactional_id)
            self._tenures.unload(index)
            self._on_uncertain(index)
        else:
            # A record that survives all the same is harmless: it was not acknowledged, the id's
            # next record supersedes it, and it did not make an epoch smaller.
            tenure.forget(change)

    async def confirm(self, entry: Entry) -> None:
        """Write the visible value once more, to prove that this broker leads the state partition.

        Raises KafkaError if the log did not take it.
        """
        record = store.encode(entry.transactional_id, entry.transaction)
        await entry.tenure.write(batch_of([record]))


def _release(tenure: TransactionTenure, change: Change) -> None:
    """End what is still pending of a change."""
    # Also after a failure: an id that stayed pending would answer CONCURRENT_TRANSACTIONS for ever
    # (KAFKA-5351, KAFKA-7519).
    # invariant durable 2: A failed append changes nothing. No epoch is spent, and nothing stays
    # pending.
    # plant KAFKA-5351
    # plant KAFKA-14880
    for entry, after in change.items():
        if entry.pending is after:
            tenure.release(entry)


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
