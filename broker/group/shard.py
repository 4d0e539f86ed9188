"""The groups of one partition of `__consumer_offsets`, and the way their records are written.

Records are appended in the order in which they were decided and take effect, in that order, when
they are durable: what is not on disk yet, markers of transactions included, is in `_unapplied`, so
that it does not matter who is the first to hear of the disk. Only offsets inside a transaction are
noted at once, as pending: nobody sees them before their marker, and a marker that overtook them
would leave them pending for ever. Loading reads the log from its start and applies the same records
in the same order, so what a restart finds is what was there.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, NamedTuple, TypeVar

import trio

from odradek.broker.coordination.state_partition import StatePartition
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
"""How many are made before others have their turn."""

LOG_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


class Shard:
    def __init__(self, index: int, partition: StatePartition, around: Surroundings) -> None:
        self.index = index
        self.groups: dict[str, LiveGroup] = {}
        self.offsets = Offsets()
        self.membership_bytes = 0
        self.is_loading = True
        self._partition = partition
        self._around = around
        self._unapplied: deque[tuple[int, Entry | Marker]] = deque()
        """Records that wait for the disk, by log offset; while the log is being read also those
        that do not wait any more."""
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
                appended = self._partition.append_records(records)
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
                appended = self._partition.append_records(
                    records,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    base_sequence=0,  # as Kafka's coordinator, in every batch; nobody checks it
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
        """Wait until what is below `next_offset` is durable, and see to it that it is visible.

        That is done even if the client that asked for it has gone: nobody else would do it.
        """
        with trio.CancelScope(shield=True):
            with _as_the_coordinator_says():
                await self._partition.flushed(next_offset)
            self.durable_below(next_offset)

    def marker_written(self, producer_id: int, *, committed: bool, marker_offset: int) -> None:
        """A marker was appended: once it is durable, what the producer has pending before it is
        stored or vanishes."""
        self._unapplied.append((marker_offset, Marker(producer_id, committed)))

    def durable_below(self, next_offset: int) -> None:
        """What is below `next_offset` is durable, and takes effect."""
        self._durable_below = max(self._durable_below, next_offset)
        if not self.is_loading:
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
        """Forget a group that somebody asked for and was refused."""
        group = live.group
        has_members = bool(group.members or group.promised)
        is_blank = group.state is GroupState.EMPTY and not has_members and not live.written
        is_here = self.groups.get(group.group_id) is live
        if is_here and is_blank and not self.offsets.has_any(group.group_id):
            del self.groups[group.group_id]

    def _bury(self, group_id: str, log_offset: int) -> None:
        """Forget a group, unless somebody has come to life in it since its end was written."""
        group = self.groups.get(group_id)
        if group is None or group.group.state is not GroupState.EMPTY:
            return
        if group.written <= log_offset and not self.offsets.has_any(group_id):
            group.close(Event.EXPIRE)
            del self.groups[group_id]

    # reading

    async def load(self) -> None:
        """Read the whole partition. Raises KafkaError if it cannot be read."""
        started = trio.current_time()
        replay = Replay(self.offsets, self.index)
        async with aclosing(self._partition.runs()) as runs:
            await replay.read(runs)
        for group, next_offset in replay.groups.values():
            if group is not None:
                live = self._revive(group)
                live.written = next_offset
                live.resume()
        for count, group_id in enumerate(self.offsets.group_ids(), 1):
            self.group(group_id)
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        self.is_loading = False
        self._apply_below(self._durable_below)
        seconds = trio.current_time() - started
        if self.groups:
            log.info("partition %d: %d groups in %.2f s", self.index, len(self.groups), seconds)

    def unload(self) -> None:
        for group in self.groups.values():
            group.close(Event.UNLOAD)
        self.groups.clear()

    def check_is_loaded(self) -> None:
        if self.is_loading:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"partition {self.index} of __consumer_offsets is being read",
            )


@contextmanager
def _as_the_coordinator_says() -> Iterator[None]:
    """What goes wrong with the log, in the words that a group's members understand."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(LOG_ERRORS.get(error.code, error.code), error.message) from error
