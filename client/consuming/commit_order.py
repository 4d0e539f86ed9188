"""Reading in commit order: a transaction is returned as a whole, at its commit marker.

With read_committed, a transaction that stays open holds back everything behind its first record
(the last stable offset). Here it holds back only itself. The partition is fetched up to the high
watermark, as with read_uncommitted, and each batch is taken in the order of the log:

- The records of a plain batch are returned.
- A batch of a transaction is kept, by producer id, as a broker does it: all transactional batches
  of a producer belong together until the producer's next marker, whatever their epochs.
- A commit marker lets the batches that are kept for its producer be returned, in order. An abort
  marker drops them. A marker for a producer without batches means nothing.

Where the reader has come to is a `PartitionProgress`. After a restart, batches below `reached` are
skipped, but for those of the pending transactions; a marker there belongs to a transaction that was
delivered or dropped before.

The program may store offsets while records that were taken are still unread (a run of an iteration,
a list that waits for another thread). So the transactions that have ended since the last taking are
remembered, and `progress` can be computed for any unread record.

What may be missing in the log:

- Records of a kept transaction that are deleted from the log (by retention or DeleteRecords) are
  still returned, because they are here. After a restart they are gone; the rest is returned.
- A pending transaction of which no record is left below `reached` is forgotten there. It was open
  at `reached`, so what it may still have is behind, and is read like any other transaction. Its
  marker may be gone as well (compaction removes both), so nothing else would end the wait for it.
- If compaction removes a marker after the records of its transaction were read here, which takes
  a pause of delete.retention.ms, they are taken for a part of the producer's next transaction.
- If the log begins behind the stored offset and not behind `reached`, the progress stays valid.
- If the log begins behind what was read, markers may be lost, and nothing tells how the kept
  transactions have ended. They are dropped, and reading begins anew at `auto_offset_reset`.
- If the log ends before the stored offset (it was truncated), reading begins anew as well. If it
  is known where it was truncated, reading continues there, with what is still pending before it.
"""

from collections.abc import Iterator, Sequence

from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.consuming.fetched import Batch, Fetched, check_left_out
from odradek.client.consuming.progress import PartitionProgress, read_progress
from odradek.client.consuming.read_epochs import UNKNOWN
from odradek.client.consuming.spool import Kept, Spool, SpoolFailed
from odradek.client.errors import Refused
from odradek.client.types import (
    ConsumerRecord,
    FetchedBatch,
    OffsetAndMetadata,
    TopicPartition,
    TransactionPart,
)
from odradek.late import dataclass
from odradek.protocol.batch import BatchHeader, iter_batches
from odradek.protocol.control import read_marker
from odradek.protocol.schema import Buffer


@dataclass(slots=True)
class _Ended:
    """A transaction that ended with a marker, for the progress at records before the marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


class Arrangement:
    """One partition's batches in commit order, from one progress on."""

    def __init__(self, progress: PartitionProgress, spool: Spool) -> None:
        self._from = progress.reached
        self._reached = progress.reached
        self._spool = spool
        self._open = {
            producer_id: Kept(spool, offset) for producer_id, offset in progress.pending.items()
        }
        self._sought = tuple(self._open)
        """The producers whose records below `_from` are looked for; none once it is reached."""
        self._ending: Kept | None = None
        """The transaction that is returned, or was. `arrange` does not free it when it is closed:
        the garbage collector closes it at any moment, also while the spool writes to a file."""
        self._ended: list[_Ended] = []
        self._left = -1
        """The first record that is left of the transaction whose marker is at `_reached`."""
        self._last: ConsumerRecord | None = None
        """The last record that the program got, if it moves the progress."""
        self.part: TransactionPart | None = None
        """The transaction of the batch that was yielded last."""
        self.first_wanted = 0
        """The offset of the first record of that batch which is to be returned."""

    # Where it has come to

    def note_passed(self, record: ConsumerRecord) -> None:
        self._last = record

    def _settle(self) -> None:
        """Move the progress behind the last record that the program got."""
        record, self._last = self._last, None
        if record is None:
            return
        part = record.transaction
        self._reached = record.offset + 1 if part is None else part.marker_offset
        self._left = -1 if part is None else record.offset + 1

    def progress(self, unread: ConsumerRecord | None = None) -> PartitionProgress:
        """Return the progress if the program has got all that was taken, or all before `unread`."""
        self._settle()
        reached, left = self._reached, self._left
        if unread is not None:
            part = unread.transaction
            reached = unread.offset if part is None else part.marker_offset
            left = unread.offset
        pending = {
            producer_id: kept.first_offset
            for producer_id, kept in self._open.items()
            if kept.first_offset < reached
        }
        for ended in self._ended:
            # invariant commit-order 1
            if ended.marker_offset == reached:
                first = max(ended.first_offset, left)
            elif ended.first_offset < reached < ended.marker_offset:
                first = ended.first_offset
            else:
                continue
            pending[ended.producer_id] = min(first, pending.get(ended.producer_id, first))
        return PartitionProgress(reached, pending)

    def remember_ended(self, before: "Arrangement") -> None:
        """Remember the transactions that ended before, of which the program may not have got all.

        This one begins at the progress of `before`, because what that one kept was lost.
        """
        self._ended, self._left = before._ended, before._left

    def forget_ended(self) -> None:
        """Forget the transactions before the progress: the program has got all that was taken."""
        self._settle()
        if self._ended:
            self._ended = [one for one in self._ended if one.marker_offset >= self._reached]

    def free(self) -> None:
        """Forget what is kept."""
        for kept in self._open.values():
            kept.free()
        self._open = {}
        if self._ending is not None:
            self._ending.free()

    # Batches

    def arrange(self, records: Buffer, next_offset: int) -> Iterator[Batch | None]:
        """Yield batches to be returned; None for each that is kept, dropped or a marker.

        Raises `SpoolFailed`, `KafkaError` for a damaged batch that is not returned now.
        """
        for header, data in iter_batches(records):
            self._note_arrived_at(header.base_offset)
            if header.is_control or header.is_transactional or header.last_offset < self._from:
                check_left_out(header, data)
            if header.is_control:
                yield from self._marker(header, data)
            elif header.is_transactional:
                self._keep(header, data)
                yield None
            elif header.last_offset < self._from:
                yield None
            else:
                self.part, self.first_wanted = None, max(self._from, header.base_offset)
                yield header, data
        self._note_arrived_at(next_offset)

    def _note_arrived_at(self, offset: int) -> None:
        """Note that everything below `offset` was taken."""
        self._settle()
        if self._sought and offset >= self._from:
            self._forget_missing()
        if offset > self._reached:
            self._reached, self._left = offset, -1

    def _forget_missing(self) -> None:
        """Forget the transactions that were pending, and have no record there any more."""
        for producer_id in self._sought:
            kept = self._open.get(producer_id)
            if kept is not None and kept.is_empty:
                del self._open[producer_id]
        self._sought = ()

    def _keep(self, header: BatchHeader, data: memoryview) -> None:
        kept = self._open.get(header.producer_id)
        if header.last_offset < (self._from if kept is None else kept.first_offset):
            return
        if kept is None:
            kept = Kept(self._spool, max(header.base_offset, self._from))
            self._open[header.producer_id] = kept
        if kept.producer_epoch < 0:
            kept.producer_epoch = header.producer_epoch
        kept.add(data)

    def _marker(self, header: BatchHeader, data: memoryview) -> Iterator[Batch | None]:
        kept = self._open.get(header.producer_id)
        if kept is None or header.base_offset < kept.first_offset:
            yield None
            return
        is_committed = read_marker(data).committed
        del self._open[header.producer_id]
        self._ended.append(_Ended(header.producer_id, kept.first_offset, header.base_offset))
        if is_committed and not kept.is_empty:
            part = TransactionPart(header.producer_id, kept.producer_epoch, header.base_offset)
            self._ending = kept
            for batches in kept.read():
                for batch in iter_batches(batches):
                    self.part, self.first_wanted = part, kept.first_offset
                    yield batch
        kept.free()
        yield None


class ArrangedFetch(Fetched):
    """The records of a fetch, and those of the transactions that end in it, in commit order."""

    __slots__ = ("_arrangement", "_first_wanted", "_partition")

    def __init__(
        self,
        partition: "CommitOrderPartition",
        offset: int,
        records: Buffer,
        arrangement: Arrangement,
    ) -> None:
        super().__init__(partition.name, offset, records, ())
        self._partition = partition
        self._arrangement = arrangement
        self._first_wanted = 0
        self._batches = self._arranged(arrangement.arrange(records, self.next_offset))

    def _arranged(self, batches: Iterator[Batch | None]) -> Iterator[Batch | None]:
        try:
            for batch in batches:
                if batch is not None:
                    self._first_wanted = self._arrangement.first_wanted
                    self._transaction = self._arrangement.part
                yield batch
        except SpoolFailed as error:
            self._partition.fail(error)

    def _begin_at(self, position: int) -> int:
        return self._first_wanted

    def take(self, position: int, count: int, check_crcs: bool) -> list[ConsumerRecord]:
        """Return up to `count` records, or [] although some are left."""
        taken = super().take(position, count, check_crcs)
        if taken:
            self._first_wanted = taken[-1].offset + 1
        return taken

    def put_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Return these records of the latest `take` again the next time."""
        super().put_back(records)
        self._first_wanted = records[0].offset

    def take_batch(self, position: int, check_crcs: bool) -> FetchedBatch | None:
        """Raise `Refused`."""
        raise Refused('batches are returned in the order of offsets: leave out order="commit"')


class CommitOrderPartition(AssignedPartition):
    """A partition that is read in commit order."""

    __slots__ = ("_arrangement", "_lost", "_spool")

    def __init__(self, name: TopicPartition, max_bytes: int, spool: Spool) -> None:
        super().__init__(name, max_bytes)
        self._spool = spool
        self._arrangement: Arrangement | None = None
        self._lost: PartitionProgress | None = None

    def is_at(self, offset: int) -> bool:
        """Return True if seeking to this offset changes nothing."""
        return self._arrangement is not None and self._arrangement.progress() == PartitionProgress(
            offset
        )

    @property
    def position(self) -> int | None:
        """The first offset that was not returned; None until it is looked up."""
        return None if self._arrangement is None else self._arrangement.progress().start

    def position_before(self, unread: ConsumerRecord) -> int:
        """Return the first offset that was not returned before `unread`."""
        assert self._arrangement is not None, self.name
        return self._arrangement.progress(unread).start

    def to_store(self, unread: ConsumerRecord | None = None) -> OffsetAndMetadata:
        """Return the offset that a group stores, with the transactions that are pending.

        Raises `Refused` if they are too many.
        """
        assert self._arrangement is not None, self.name
        return self._with_epoch(self._arrangement.progress(unread).to_offset(self.name))

    def to_fetched(self, records: Buffer, aborted: object) -> Fetched:
        """Return what was fetched at `fetch_offset`."""
        assert self._arrangement is not None, self.name
        return ArrangedFetch(self, self.fetch_offset, records, self._arrangement)

    def note_passed(self, record: ConsumerRecord) -> None:
        """Note that the program gets the records up to this one."""
        assert self._arrangement is not None, self.name
        self.returned_id = self.topic_id
        self._arrangement.note_passed(record)

    def _place(self, offset: int | None) -> None:
        """Set the position, and forget what was fetched and kept."""
        self._begin(None if offset is None else PartitionProgress(offset))

    def _begin(self, progress: PartitionProgress | None) -> None:
        super()._place(None if progress is None else progress.start)
        if self._arrangement is not None:
            self._arrangement.free()
        self._arrangement = None if progress is None else Arrangement(progress, self._spool)
        self._lost = None

    def resume(self, stored: OffsetAndMetadata) -> None:
        """Continue where the group has stored an offset."""
        self.move(stored.offset, stored.leader_epoch)
        self._begin(read_progress(stored))

    def go_back(self, unread: ConsumerRecord | None = None) -> None:
        """Fetch again what the program has not got."""
        if self._arrangement is not None:
            self._begin(self._arrangement.progress(unread))

    def fail(self, error: SpoolFailed) -> None:
        """Fetch again what is kept, after the program has got the error."""
        # invariant commit-order 2
        failed = self._arrangement
        self.go_back()
        if failed is not None and self._arrangement is not None:
            self._arrangement.remember_ended(failed)
        self.error = error

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """Continue at `offset`, or to the first pending transaction before it."""
        assert self._arrangement is not None, self.name
        left = self._arrangement.progress().to_end(offset)
        self.move(offset, leader_epoch)
        self._begin(left)

    def lose(self, reset_to: int) -> None:
        """Note that the log does not have the position. `found` then sets another one."""
        lost = None if self._arrangement is None else self._arrangement.progress()
        super().lose(reset_to)
        self._lost = lost

    def on_found(self, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """Begin at an offset that was looked up; keep a progress that is still valid."""
        lost = self._lost
        if lost is not None and lost.start < offset:
            self._begin(lost.from_offset(offset))
        else:
            self.move(offset, leader_epoch)

    def skip_read(self) -> bool:
        """Drop the fetches that are read to their end. Return True if the position moved."""
        moved = False
        while self.fetched and self.fetched[0].is_empty and self.fetched:
            self.fetched.popleft()
            moved = True
        return moved

    def forget_ended(self) -> None:
        """Note that the program has got all that was taken."""
        if self._arrangement is not None:
            self._arrangement.forget_ended()
