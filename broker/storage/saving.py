"""The saving of a log: all that recovery needs beside the batches, in indexes and a checkpoint.

A saving has four steps. `to_save` is the first, and `save` takes the others:

1. The state at one moment is taken. Appends may go on meanwhile.
2. The bytes that the index files lack are written, and the ends of the segments are read, for their
   checksums.
3. These files are flushed, the producer snapshots and their names, too. Only then a checkpoint may
   describe them.
4. The checkpoint is made, in turns, written and moved into place (`checkpoint.py`). If the log
   start offset has changed, its second place is written before (`log_start.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from odradek.broker.environment.env import NO_DESCRIPTOR, Disk
from odradek.broker.environment.turns import Turns
from odradek.broker.storage import small_file
from odradek.broker.storage.checkpoint import (
    Checkpoint,
    Content,
    encoded,
    move_into_place,
    put_checksums,
    to_content,
    write_beside,
)
from odradek.broker.storage.end_sum import end_crc_of
from odradek.broker.storage.files import SNAPSHOT, OpenFiles, file_path, name_of, sync_file
from odradek.broker.storage.log_start import LOG_START, encode_log_start, remove_log_start
from odradek.broker.storage.log_state import LogState, log_start_to_keep
from odradek.broker.storage.reading import LogReader
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.segment_summary import SegmentSummary
from odradek.broker.storage.snapshot import encode_snapshot
from odradek.broker.storage.unflushed import Unflushed
from odradek.broker.values.precedent import Precedent
from odradek.broker.values.topic_partition import partition_of
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSave:
    """The state of a log at one moment, for its index files and its checkpoint."""

    recovery_offset: int
    appended_bytes: int
    state: tuple[int, ...]
    segments: Sequence[Segment]
    summaries: Sequence[SegmentSummary]
    content: Content
    """What the checkpoint has, but for the checksums of the ends of segments."""
    log_start: int | None
    """What the file `log-start` is to have; None if there is to be none."""
    pieces: Sequence[tuple[Segment, str, int, bytes]]
    """Bytes that the index files lack: (segment, suffix, position, bytes)."""
    snapshots: Sequence[int]
    replaced: Sequence[int] = ()
    is_cut: bool = False
    journal_sequence: int


class LogSaver:
    """The saved state of one log: `save` brings it up to date."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        topic_id: UUID,
        state: LogState,
        *,
        reader: LogReader,
        unflushed: Unflushed,
        fail: Callable[[OSError], None],
    ) -> None:
        """`fail` takes the log offline."""
        self._files = files
        self._disk: Disk = files.disk
        self._directory = directory
        self._where = partition_of(name_of(directory))
        self._topic_id = topic_id
        self._state = state
        self._reader = reader
        self._unflushed = unflushed
        self._fail = fail
        self._unsynced_snapshots: list[int] = []
        self._saved_state = _saved_parts(state)
        self.saved_bytes = 0
        """The bytes that had been appended to the log when its state was saved."""
        self.has_replaced_on_disk = state.has_replaced
        """True if the checkpoint on disk names replaced segments."""
        self.saved_sequence = 0
        """Records of the journal with smaller numbers count no more for this log."""
        self.has_checkpoint = False
        """True if a checkpoint that describes records of the log is on disk."""
        self._log_start_on_disk = state.log_start_on_disk
        self._precedents: list[Precedent] = []
        """What must be durable before a checkpoint may describe the log as it is now."""

    @property
    def saved_end_offset(self) -> int:
        """The log end offset that the checkpoint on disk has."""
        return self._saved_state[0]

    @property
    def saved_log_start_offset(self) -> int:
        """The log start offset that the checkpoint on disk has."""
        return self._saved_state[1]

    @property
    def _log_end_offset(self) -> int:
        return self._state.segments[-1].next_offset

    @property
    def is_up_to_date(self) -> bool:
        """True if the checkpoint, the snapshots and the indexes on disk are those of the log."""
        is_same = self._saved_state == _saved_parts(self._state)
        has_all = is_same and not self._unsynced_snapshots and not self._reader.has_rebuilt
        return has_all and not self._unflushed.has_new_names

    def follow(self, precedent: Precedent) -> None:
        """Note that the log may get a record that counts only with the precedent."""
        self._precedents = [each for each in self._precedents if not each.is_durable()]
        self._precedents.append(precedent)

    @property
    def has_precedents(self) -> bool:
        """True if the log may have records that do not count yet because of another log."""
        return any(not precedent.is_durable() for precedent in self._precedents)

    @property
    def is_held(self) -> bool:
        """True if no checkpoint can be written, as a log that this one follows has failed."""
        return any(each.has_failed() and not each.is_durable() for each in self._precedents)

    def write_snapshot(self) -> None:
        """Write Kafka's producer snapshot at the log end, for its tools and for recovery."""
        offset = self._log_end_offset
        path = self._snapshot_path(offset)
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.open(path)
        try:
            file.append(encode_snapshot(self._state.producers.entries.values()))
        finally:
            file.close()
        if offset not in self._unsynced_snapshots:  # a failed roll may have added it already
            self._unsynced_snapshots.append(offset)

    def mark_clean_end(self) -> None:
        """Write a snapshot at the log end unless it is there or no producer is known."""
        path = self._snapshot_path(self._log_end_offset)
        if self._state.producers.entries and not self._disk.exists(path):
            self.write_snapshot()

    def _snapshot_path(self, offset: int) -> str:
        return file_path(self._directory, offset, SNAPSHOT)

    def to_save(
        self,
        appended: int,
        *,
        state: LogState | None = None,
        replaced: Sequence[Segment] = (),
        is_cut: bool = False,
        follows_cut: bool = False,
    ) -> ToSave:
        """Return what to save of the log's state, or of the `state` that it is about to have.

        `appended` is the number of bytes appended until now. For the others see `Checkpoint`.
        """
        state = state or self._state
        segments = state.segments
        summaries = [segment.summary() for segment in segments]
        checkpoint = Checkpoint(
            where=self._where,
            topic_id=self._topic_id,
            recovery_offset=segments[-1].next_offset,
            log_start_offset=state.log_start_offset,
            segments=summaries,
            epochs=state.epochs.entries,
            producers=list(state.producers.entries.values()),
            ended=state.producers.ended,
            high_watermark=state.high_watermark,
            clean_offset=state.clean_offset,
            replaced=tuple(segment.base_offset for segment in replaced),
            is_cut=is_cut,
            follows_cut=follows_cut,
            journal_sequence=self._files.next_sequence,
        )
        return ToSave(
            recovery_offset=checkpoint.recovery_offset,
            appended_bytes=appended,
            state=_saved_parts(state),
            segments=list(segments),
            summaries=summaries,
            content=to_content(checkpoint),
            log_start=None if is_cut else log_start_to_keep(state),
            pieces=[
                (segment, suffix, position, data)
                for segment in segments
                for suffix, position, data in segment.indexes.unsaved()
            ],
            snapshots=list(self._unsynced_snapshots),
            replaced=checkpoint.replaced,
            is_cut=is_cut,
            journal_sequence=checkpoint.journal_sequence,
        )

    async def save(self, to_save: ToSave, counts: Callable[[], None] | None = None) -> None:
        """Write the indexes, and then the checkpoint that covers them. One call at a time.

        `counts` is called as soon as the checkpoint is durable. Raises OSError. After a failed
        fsync the log is offline; after another error the old checkpoint stays. Raises KafkaError if
        what the log follows cannot be made durable.
        """
        # invariant journal 6: A marker that was appended before its decision was durable counts
        # only with it: the journal has the decision first, and a checkpoint that describes the
        # marker waits for the decision. The same holds for the first records of a transaction in a
        # partition, and the addition of the partition.
        # plant a marker comes into the journal before its decision
        # plant a checkpoint vouches for a marker whose decision is not durable
        # plant a checkpoint vouches for records whose transaction no coordinator knows
        # plant an id forgets a partition that has records of it
        # plant a marker without a checkpoint below it is written before its decision is durable
        # plant a follower joins with a marker whose decision may be lost
        # plant an id decides anew although its markers may count
        # plant after a kill a marker is on disk before its decision
        # plant after a kill a decision is in the journal but not on disk
        for precedent in self._precedents:
            if not precedent.is_durable():
                await precedent.save()
        flushed_offset = self._unflushed.flushed_offset
        assert to_save.is_cut or to_save.recovery_offset <= flushed_offset, to_save
        paths = await self._write_indexes(to_save)
        await self._sum_ends(to_save)
        try:
            await self._flush(to_save, paths)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                self._fail(error)
            raise
        await self._write_beside(to_save)
        try:
            await self._move_into_place(to_save)
            if counts is not None:
                counts()
        except OSError as error:
            self._fail(error)
            raise
        self.note_saved(to_save)

    async def _write_indexes(self, to_save: ToSave) -> list[str]:
        """Write the bytes that the index files lack. Return the paths to flush. Raises OSError."""
        paths = [self._snapshot_path(offset) for offset in to_save.snapshots]
        for segment, suffix, position, data in to_save.pieces:
            path = segment.path(suffix)
            file = self._disk.open(path)
            try:
                file.write_at(position, data)
                if file.size > position + len(data):  # a damaged file was longer
                    await file.truncate(position + len(data))
            finally:
                file.close()
            paths.append(path)
        return paths

    async def _sum_ends(self, to_save: ToSave) -> None:
        """Sum up the ends of the segments that have grown since the last time. Raises OSError."""
        summaries: list[SegmentSummary] = []
        for segment, summary in zip(to_save.segments, to_save.summaries, strict=True):
            if summary.end_crc is None and summary.size_bytes:
                crc = await end_crc_of(segment.file, summary.size_bytes)
                segment.has_end(summary.size_bytes, crc)
                if segment.is_sealed:
                    segment.close()
                summary = replace(summary, end_crc=crc)
            summaries.append(summary)
        put_checksums(to_save.content, summaries)

    async def _write_beside(self, to_save: ToSave) -> None:
        """Write and flush what `_move_into_place` renames. Raises OSError; nothing has changed."""
        if to_save.log_start not in (None, self._log_start_on_disk):
            data = encode_log_start(self._where, self._topic_id, to_save.log_start)
            await small_file.write_beside(self._disk, f"{self._directory}/{LOG_START}", data)
        checkpoint = await Turns().do(encoded(to_save.content))
        await write_beside(self._disk, self._directory, checkpoint)

    async def _move_into_place(self, to_save: ToSave) -> None:
        """Rename the checkpoint of `to_save` into place, so that it counts. Raises OSError."""
        if to_save.log_start != self._log_start_on_disk:
            if to_save.log_start is None:
                await remove_log_start(self._disk, self._directory)
            else:
                await small_file.move_into_place(self._disk, f"{self._directory}/{LOG_START}")
            self._log_start_on_disk = to_save.log_start
        await move_into_place(self._disk, self._directory)

    async def _flush(self, to_save: ToSave, paths: Sequence[str]) -> None:
        """Flush the files at `paths`, and the names of new ones. Raises OSError."""
        # invariant disk 3: A checkpoint vouches only for what is on disk: the indexes are flushed
        # before it. The tests crash before every operation of the disk.
        # tests/broker/storage/test_crashes.py
        for path in paths:
            await sync_file(self._disk, path)
        if any(position == 0 for _, _, position, _ in to_save.pieces):
            # The checkpoint must not reach the disk before the names of new index files.
            await self._disk.fsync_dir(self._directory)

    def forget_after(self, offset: int) -> None:
        """Note that the log was cut: the snapshots above `offset` are removed."""
        self._unsynced_snapshots = [known for known in self._unsynced_snapshots if known <= offset]

    def note_saved(self, to_save: ToSave) -> None:
        """Note that the checkpoint of `to_save` is durable."""
        for segment, summary in zip(self._state.segments, to_save.summaries, strict=False):
            assert segment.base_offset == summary.base_offset, (segment.base_offset, summary)
            segment.indexes.note_saved(summary)
            if segment.is_sealed and not self._reader.has_loaded(segment):
                segment.unload()
        self._unsynced_snapshots = [
            offset for offset in self._unsynced_snapshots if offset not in to_save.snapshots
        ]
        self.has_checkpoint = True
        self.saved_sequence = to_save.journal_sequence
        self.has_replaced_on_disk = bool(to_save.replaced)
        self._reader.has_rebuilt = False
        self._saved_state = to_save.state
        self.saved_bytes = to_save.appended_bytes


def _saved_parts(state: LogState) -> tuple[int, ...]:
    """Return the parts of a state that differ whenever a new checkpoint is due."""
    end = state.segments[-1].next_offset
    return end, state.log_start_offset, state.clean_offset, state.high_watermark
