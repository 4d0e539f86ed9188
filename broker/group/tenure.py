"""The groups of one tenure, and the way their records are written: see `coordination/tenure.py`.

Records are appended in the order in which they were decided, and take effect in that order when
they are durable. Until then they are in `_unapplied`, markers of transactions included, so that the
waiters of the disk may wake in any order. Only offsets inside a transaction are noted at once, as
pending: they are not visible before their marker, and a marker that overtook them would leave them
pending for ever. Loading reads the log from its start and applies the same records in the same
order, so a restart finds what was there.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, NamedTuple, TypeVar

import trio

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import LOG_ERRORS, Tenure
from odradek.broker.group.limits import BATCH_MAX_BYTES
from odradek.broker.group.live import LiveGroup
from odradek.broker.group.loading import Replay
from odradek.broker.group.members import Group
from odradek.broker.group.offsets import Offsets
from odradek.broker.group.rebalance import Surroundings
from odradek.broker.group.state import Event, GroupState
from odradek.broker.group.store import Entry, GroupEntry, OffsetEntry, write_entry
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record

log: Final = logging.getLogger(__name__)

E = TypeVar("E", Entry, OffsetEntry)

GROUPS_AT_A_TIME: Final = 500
"""Groups that are made between two chances for other tasks to run."""

APPEND_FAILED: Final = {
    **LOG_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a member gets when the log did not take a record; other codes stay as they are."""


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


class GroupTenure(Tenure):
    def __init__(self, partition: StatePartition, name: str, around: Surroundings) -> None:
        super().__init__(partition, name)
        self.groups: Final[dict[str, LiveGroup]] = {}
        self.offsets: Final = Offsets()
        self.membership_bytes = 0
        self._around = around
        self._unapplied: deque[tuple[int, Entry | Marker]] = deque()
        """Records that wait for the disk, by log offset. While the log is being read, also those
        that are durable already."""
        self._durable_below = 0

    def group(self, group_id: str) -> LiveGroup:
        """The group, made without members if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            now_ms = self._around.clock.wall_ms()
            group = self._revive(Group(group_id=group_id, state_since_ms=now_ms))
        return group

    def _revive(self, group: Group) -> LiveGroup:
        live = self.groups[group.group_id] = LiveGroup(group, self, self._around)
        return live

    # writing

    def write_group(self, group: Group) -> int:
        return self.append([GroupEntry(group.group_id, group)])

    def append(self, entries: Iterable[Entry]) -> int:
        """Append records that take effect once they are durable; the offset after the last.

        Raises KafkaError; then the entries from some point on were not written.
        """
        next_offset = 0
        for chunk, records in self._batches(entries):
            with _as_the_coordinator_says():
                appended = self.partition.append_records(records)
            for place, entry in enumerate(chunk):
                self._unapplied.append((appended.base_offset + place, entry))
            next_offset = appended.last_offset + 1
        return next_offset

    def append_in_transaction(
        self,
        entries: Iterable[OffsetEntry],
        *,
        producer_id: int,
        producer_epoch: int,
        verified_after: int,
    ) -> int:
        """Append offsets on which a marker decides. Raises KafkaError, as `append_records`."""
        next_offset = 0
        for chunk, records in self._batches(entries):
            with _as_the_coordinator_says():
                appended = self.partition.append_records(
                    records,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    base_sequence=0,  # as Kafka's coordinator, in every batch; no leader checks it
                    is_transactional=True,
                    verified_after=verified_after,
                )
            for place, entry in enumerate(chunk):
                self.group(entry.group_id)
                self.offsets.add_pending(producer_id, entry, appended.base_offset + place)
            next_offset = appended.last_offset + 1
        return next_offset

    def _batches(self, entries: Iterable[E]) -> Iterator[tuple[list[E], list[Record]]]:
        """Batches of a bounded size: an expiry may remove any number of offsets (KAFKA-13099)."""
        now_ms = self._around.clock.wall_ms()
        chunk: list[E] = []
        records: list[Record] = []
        size_bytes = 0
        for entry in entries:
            record = write_entry(entry, now_ms)
            size_bytes += len(record.key or b"") + len(record.value or b"")
            if records and size_bytes > BATCH_MAX_BYTES:
                yield chunk, records
                chunk, records, size_bytes = [], [], 0
            chunk.append(entry)
            records.append(record)
        if records:
            yield chunk, records

    async def flushed(self, next_offset: int) -> None:
        """Wait until what is below `next_offset` is durable, and make it visible."""
        with _as_the_coordinator_says():
            await super().flushed(next_offset)
        self.durable_below(next_offset)

    def marker_written(self, producer_id: int, *, committed: bool, marker_offset: int) -> None:
        """A marker was appended: once it is durable, what the producer has pending before it is
        stored or vanishes."""
        self._unapplied.append((marker_offset, Marker(producer_id, committed)))

    def durable_below(self, next_offset: int) -> None:
        """What is below `next_offset` is durable, and takes effect."""
        self._durable_below = max(self._durable_below, next_offset)
        if self.is_loaded:
            self._apply_below(next_offset)

    def _apply_below(self, next_offset: int) -> None:
        while self._unapplied and self._unapplied[0][0] < next_offset:
            log_offset, entry = self._unapplied.popleft()
            if isinstance(entry, OffsetEntry):
                self._apply_offset(entry, log_offset)
            elif isinstance(entry, Marker):
                self.offsets.end_transaction(
                    entry.producer_id, committed=entry.committed, marker_offset=log_offset
                )
            elif entry.group is None:
                self._bury(entry.group_id, log_offset)

    def _apply_offset(self, entry: OffsetEntry, log_offset: int) -> None:
        if entry.stored is not None:
            self.group(entry.group_id)
        self.offsets.apply(entry, log_offset)

    def discard_if_blank(self, live: LiveGroup) -> None:
        """Forget a group that was made for a request that was then refused."""
        group = live.group
        has_members = bool(group.members or group.promised)
        is_blank = group.state is GroupState.EMPTY and not has_members and not live.written
        is_here = self.groups.get(group.group_id) is live
        if is_here and is_blank and not self.offsets.has_any(group.group_id):
            del self.groups[group.group_id]

    def _bury(self, group_id: str, log_offset: int) -> None:
        """Forget a group, unless a member has joined it since its tombstone was written."""
        group = self.groups.get(group_id)
        if group is None or group.group.state is not GroupState.EMPTY:
            return
        if group.written <= log_offset and not self.offsets.has_any(group_id):
            group.close(Event.EXPIRE)
            del self.groups[group_id]

    # reading

    async def read(self) -> None:
        """Read the whole partition. Raises KafkaError if it cannot be read."""
        started = trio.current_time()
        replay = Replay(self.offsets, self.name)
        async with aclosing(self.partition.runs()) as runs:
            await replay.read(runs)
        if self.is_over:  # it ended when the last read was done, too late to interrupt that
            return
        for group, next_offset in replay.groups.values():
            if group is not None:
                self._revive(group).resume(next_offset)
        for count, group_id in enumerate(self.offsets.group_ids(), 1):
            self.group(group_id)
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        self._apply_below(self._durable_below)
        seconds = trio.current_time() - started
        if self.groups:
            log.info("%s: %d groups in %.2f s", self.name, len(self.groups), seconds)

    def end(self) -> None:
        super().end()
        for group in self.groups.values():
            group.close(Event.UNLOAD)
        self.groups.clear()


@contextmanager
def _as_the_coordinator_says() -> Iterator[None]:
    """Raise what goes wrong with the log with the codes that a group's members understand."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(APPEND_FAILED.get(error.code, error.code), error.message) from error
