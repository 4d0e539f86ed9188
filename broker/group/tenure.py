"""The groups of one tenure (`coordination/tenure.py`), and how their records are written.

Records are appended in the order in which they were decided, and take effect in that order when
they are durable. Until then they are in `_unapplied`, markers of transactions included, because the
tasks that wait for the disk may wake in any order. Only offsets inside a transaction are added at
once, as pending. They are not visible before their marker, and a marker that was applied before
them would leave them pending for ever. Loading applies the same records in the same order, so a
restart leads to the same groups and offsets.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import trio

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import LOG_ERRORS, Tenure
from odradek.broker.group.consumer.members import ConsumerGroup
from odradek.broker.group.consumer.records import ConsumerEntry
from odradek.broker.group.consumer.state import ConsumerEvent
from odradek.broker.group.limits import BATCH_MAX_BYTES
from odradek.broker.group.live import LiveGroup
from odradek.broker.group.live_consumer import LiveConsumer
from odradek.broker.group.loading import Replay
from odradek.broker.group.members import ClassicGroup
from odradek.broker.group.offsets import Offsets
from odradek.broker.group.rebalance import Surroundings
from odradek.broker.group.state import GroupEvent, GroupState
from odradek.broker.group.store import (
    Entry,
    GroupEntry,
    OffsetEntry,
    PartitionOffset,
    add_entries,
    add_offsets,
    write_entry_in_steps,
)
from odradek.broker.work import Work, whole
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import BatchBuilder, Record
from odradek.protocol.schema import ZERO_UUID

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

Storing = tuple[str, Sequence[PartitionOffset]]
"""A group and its offsets."""

NO_OFFSETS: Final[Storing] = ("", ())

GROUPS_AT_A_TIME: Final = 500
"""The number of groups that are made between two checkpoints."""

APPEND_FAILED: Final = {
    **LOG_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The error of a request whose record the log refused; other codes stay as they are."""

CHANGE_FAILED: Final = {
    **LOG_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The same for the records of a group of the new protocol."""


class GroupTenure(Tenure):
    def __init__(self, partition: StatePartition, name: str, around: Surroundings) -> None:
        super().__init__(partition, name)
        self.groups: Final[dict[str, LiveGroup]] = {}
        """The classic groups, and those that have only offsets."""
        self.consumers: Final[dict[str, LiveConsumer]] = {}
        """The groups of the new protocol. A group is in one of both."""
        self.beginning: Final[dict[str, LiveConsumer]] = {}
        """Groups of the new protocol whose first request is being decided."""
        self.offsets: Final = Offsets()
        self.membership_bytes = 0
        self._around = around
        self._unapplied: deque[tuple[int, Callable[[], None], Storing]] = deque()
        """What takes effect when everything below an offset is durable, and the offsets that it
        stores. While the log is being read, some of it is durable already."""
        self._durable_below = 0

    def group(self, group_id: str) -> LiveGroup:
        """Return a group. Make it, without members, if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            now_ms = self._around.clock.wall_ms()
            group = self._revive(ClassicGroup(group_id=group_id, state_since_ms=now_ms))
        return group

    def begin_consumer(self, group_id: str) -> LiveConsumer:
        """Return a group of the new protocol that is not there before its first member has joined.

        All that join meanwhile get the same one, and so wait for each other.
        """
        live = self.beginning.get(group_id)
        if live is None:
            live = LiveConsumer(ConsumerGroup(group_id=group_id), self, self._around)
            self.beginning[group_id] = live
        return live

    def bury_consumer(self, group_id: str, event: ConsumerEvent) -> int:
        """Remove a group of the new protocol. Return the offset after its records.

        Raises KafkaError if it has members, or if the log refuses the records.
        """
        live = self.consumers[group_id]
        live.bury(event)
        del self.consumers[group_id]
        return live.written

    def downgrade(self, group: ClassicGroup, records: Sequence[Record], *, rebalances: bool) -> int:
        """Put a classic group into the place of a consumer group (KIP-848). Raises KafkaError.

        `records` remove the one and add the other. Return the offset after them.
        """
        next_offset = self.append_encoded(records)
        self.consumers.pop(group.group_id).close(ConsumerEvent.DOWNGRADE)
        live = self._revive(group)
        live.resume(next_offset)
        if rebalances:
            live.rebalance()
        return next_offset

    def _revive(self, group: ClassicGroup) -> LiveGroup:
        live = self.groups[group.group_id] = LiveGroup(group, self, self._around)
        return live

    # writing

    def write_group(self, group: ClassicGroup) -> int:
        return self.append([GroupEntry(group.group_id, group)])

    def append(self, entries: Sequence[Entry]) -> int:
        """Append records, which take effect once they are durable. Return the offset after them.

        Raises KafkaError; then only some of the entries, from the first on, may be written.
        """
        next_offset = 0
        for some, batch in self._batches(entries, add_entries):
            with _coordinator_errors():
                appended = self.partition.append_batch(batch)
            next_offset = appended.last_offset + 1
            effect = partial(self._apply, some, appended.base_offset)
            self._unapplied.append((next_offset, effect, NO_OFFSETS))
        return next_offset

    def append_offsets(self, group_id: str, offsets: Sequence[PartitionOffset]) -> int:
        """Append offsets of one group, as `append` does with any entries."""
        next_offset = 0
        for some, batch in self._batches(offsets, partial(add_offsets, group_id=group_id)):
            with _coordinator_errors():
                appended = self.partition.append_batch(batch)
            next_offset = appended.last_offset + 1
            effect = partial(self._store, group_id, some, appended.base_offset)
            self._unapplied.append((next_offset, effect, (group_id, some)))
        return next_offset

    def being_stored(self) -> Iterator[tuple[str, PartitionOffset]]:
        """Yield the offsets in the log that have not taken effect, with their groups.

        They must not be removed for what is stored before them: a tombstone would stand behind
        them, and remove an offset that is acknowledged.
        """
        for _, _, (group_id, offsets) in self._unapplied:
            for offset in offsets:
                yield group_id, offset

    def append_together(self, entries: Sequence[GroupEntry | ConsumerEntry]) -> int:
        """Append records as one batch. Return the offset after them.

        The caller applies them at once, and returns no answer before they are durable: the next
        change of a group must not be decided on an older one. Raises KafkaError, and nothing is
        written.
        """
        return self.append_encoded(whole(self.encoded(entries)))

    def encoded(self, entries: Sequence[GroupEntry | ConsumerEntry]) -> Work[list[Record]]:
        """Return the records of entries."""
        now_ms = self._around.clock.wall_ms()
        records = []
        for entry in entries:
            records.append((yield from write_entry_in_steps(entry, now_ms)))
        return records

    def append_encoded(self, records: Sequence[Record]) -> int:
        """Append records as `append_together` does with entries."""
        try:
            appended = self.partition.append_records(records)
        except KafkaError as error:
            code = CHANGE_FAILED.get(error.code, error.code)
            raise KafkaError(code, error.message) from error
        return appended.last_offset + 1

    async def durable(self, next_offset: int) -> None:
        """Wait until everything below `next_offset` is durable, if it is not yet."""
        if next_offset > self._durable_below:
            await self.flushed(next_offset)

    def append_in_transaction(
        self,
        group_id: str,
        offsets: Sequence[PartitionOffset],
        *,
        producer_id: int,
        producer_epoch: int,
        verified_after: int,
    ) -> int:
        """Append offsets that stay pending until a marker. Raises as `append_batch`."""
        next_offset = 0
        for some, batch in self._batches(offsets, partial(add_offsets, group_id=group_id)):
            with _coordinator_errors():
                appended = self.partition.append_batch(
                    batch,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    base_sequence=0,  # in every batch, as in Kafka; no leader checks it here
                    is_transactional=True,
                    verified_after=verified_after,
                )
            self._expect_group(group_id)
            for log_offset, (partition, stored) in enumerate(some, appended.base_offset):
                entry = OffsetEntry(group_id, partition, stored)
                self.offsets.add_pending(producer_id, entry, log_offset)
            next_offset = appended.last_offset + 1
        return next_offset

    def _batches(
        self, items: Sequence[T], add: Callable[[BatchBuilder, Sequence[T], int], int]
    ) -> Iterator[tuple[Sequence[T], BatchBuilder]]:
        """Cut entries or offsets into batches of a limited size."""
        # One expiry may remove any number of offsets, more than fit into a batch (KAFKA-13099).
        now_ms = self._around.clock.wall_ms()
        while items:
            batch = BatchBuilder(BATCH_MAX_BYTES)
            count = add(batch, items, now_ms)
            yield items[:count], batch
            items = items[count:]

    async def flushed(self, next_offset: int) -> None:
        """Wait until everything below `next_offset` is durable, and make it visible."""
        with _coordinator_errors():
            await super().flushed(next_offset)
        self.durable_below(next_offset)

    async def forget_topic(self, topic: str, topic_id: UUID) -> None:
        """Remove every group's offsets of a topic that has been deleted. Raises KafkaError."""
        # By id: while the coordinator waits for another partition, the topic may be made anew, and
        # groups may store offsets for it here.
        newer = {
            (group_id, partition)
            for group_id, (partition, stored) in self.being_stored()
            if stored.topic_id not in (ZERO_UUID, topic_id)
        }
        tombstones = [
            OffsetEntry(*each, None)
            for each in self.offsets.partitions_of_topic(topic, topic_id)
            if each not in newer
        ]
        if tombstones:
            await self.flushed(self.append(tombstones))

    def marker_written(self, producer_id: int, *, committed: bool, marker_offset: int) -> None:
        """Record an appended marker, which is applied once it is durable."""
        effect = partial(
            self.offsets.end_transaction,
            producer_id,
            committed=committed,
            marker_offset=marker_offset,
        )
        self._unapplied.append((marker_offset + 1, effect, NO_OFFSETS))

    def durable_below(self, next_offset: int) -> None:
        """Apply the records below `next_offset`, which are durable."""
        # While the log is being read, `Replay` may not have reached these records. `read` applies
        # them.
        self._durable_below = max(self._durable_below, next_offset)
        if self.is_loaded:
            self._apply_below(next_offset)

    def _apply_below(self, next_offset: int) -> None:
        unapplied = self._unapplied
        while unapplied and unapplied[0][0] <= next_offset:
            _, effect, _ = unapplied.popleft()
            effect()

    def _store(self, group_id: str, offsets: Sequence[PartitionOffset], base_offset: int) -> None:
        self._expect_group(group_id)
        self.offsets.store(group_id, offsets, base_offset)

    def _apply(self, entries: Sequence[Entry], base_offset: int) -> None:
        for log_offset, entry in enumerate(entries, base_offset):
            if isinstance(entry, OffsetEntry):
                if entry.stored is not None:
                    self._expect_group(entry.group_id)
                self.offsets.apply(entry, log_offset)
            elif isinstance(entry, GroupEntry) and entry.group is None:
                self._bury(entry.group_id, log_offset)

    def _expect_group(self, group_id: str) -> None:
        """Make a group for an offset, unless there is one, of either protocol."""
        if group_id not in self.consumers:
            self.group(group_id)

    def discard_if_blank(self, live: LiveGroup) -> None:
        """Remove a group that was made for a request which was then refused."""
        group = live.group
        has_members = bool(group.members or group.promised)
        is_blank = group.state is GroupState.EMPTY and not has_members and not live.written
        is_here = self.groups.get(group.group_id) is live
        if is_here and is_blank and not self.offsets.has_any(group.group_id):
            del self.groups[group.group_id]

    def _bury(self, group_id: str, log_offset: int) -> None:
        """Remove a group, unless a member has joined it since its tombstone was written."""
        group = self.groups.get(group_id)
        if group is None or group.group.state is not GroupState.EMPTY:
            return
        if group.written <= log_offset and not self.offsets.has_any(group_id):
            group.close(GroupEvent.EXPIRE)
            del self.groups[group_id]

    # reading

    async def read(self, check_places: Callable[[Iterable[str]], Awaitable[None]]) -> None:
        """Read the whole partition. Raises KafkaError if it cannot be read.

        `check_places` raises it for a group that another partition keeps.
        """
        started = trio.current_time()
        replay = Replay(self.offsets, self.name)
        async with aclosing(self.partition.runs()) as runs:
            await replay.read(runs)
        await check_places([*replay.groups, *replay.consumers, *self.offsets.group_ids()])
        # Cancelling takes effect at a checkpoint only. A tenure that ended after the last read must
        # not start the timers of its groups.
        if self.is_over:
            return
        for group, next_offset in replay.groups.values():
            if group is not None:
                live = self._revive(group)
                live.resume(next_offset)
                if group.group_id in replay.downgraded:
                    live.rebalance()
        for being_read in replay.consumers.values():
            if being_read.is_there:
                self._revive_consumer(being_read.group())
        for count, group_id in enumerate(self.offsets.group_ids(), 1):
            self._expect_group(group_id)
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        self._apply_below(self._durable_below)
        seconds = trio.current_time() - started
        count = len(self.groups) + len(self.consumers)
        if count:
            log.info("%s: %d groups in %.2f s", self.name, count, seconds)

    def _revive_consumer(self, group: ConsumerGroup) -> None:
        classic = self.groups.pop(group.group_id, None)
        if classic is not None:
            # No broker writes this: a group is converted with a tombstone before its new records.
            log.error("%s: %r is a group of both protocols", self.name, group.group_id)
            classic.close(GroupEvent.UNLOAD)
        live = self.consumers[group.group_id] = LiveConsumer(group, self, self._around)
        live.resume()

    def end(self) -> None:
        super().end()
        for group in self.groups.values():
            group.close(GroupEvent.UNLOAD)
        self.groups.clear()
        for consumer in (*self.consumers.values(), *self.beginning.values()):
            consumer.close(ConsumerEvent.UNLOAD)
        self.consumers.clear()
        self.beginning.clear()


@contextmanager
def _coordinator_errors() -> Iterator[None]:
    """Raise errors of the log with the codes that group members expect."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(APPEND_FAILED.get(error.code, error.code), error.message) from error
