"""One partition's log: what is appended, made durable, read, rolled, kept and thrown away.

`broker/partitions/partition.py` decides what may be appended and how far readers may see. An append
is one write to one file. Producers, indexes and the log end change only when it has succeeded
(KAFKA-7866). State changes in synchronous code, before or after waiting for the disk, never during.

I/O errors: a full disk refuses the append and nothing else, as the file is what it was. Any other
error, and every failing fsync, takes the log offline until the broker is restarted: what is on disk
is then unknown, and a second fsync would lie (KAFKA-10778).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from odradek.broker.env import Buffer, Disk
from odradek.broker.storage.aborted import AbortedEntry, AbortedTransaction
from odradek.broker.storage.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    ToSave,
    encode_checkpoint,
    move_into_place,
    place_checkpoint,
    write_beside,
)
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import UNKNOWN_PAST, Rules
from odradek.broker.storage.files import (
    SNAPSHOT,
    OpenFiles,
    file_path,
    parent_of,
    remove_before,
    sync_file,
)
from odradek.broker.storage.identity import IDENTITY
from odradek.broker.storage.producers import EndedTransaction
from odradek.broker.storage.reading import LogReader
from odradek.broker.storage.recovery import LogState, Recovered, Recovery
from odradek.broker.storage.replacement import put_in_place
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.snapshot import encode_snapshot
from odradek.protocol.batch import BatchHeader, set_base_offset
from odradek.protocol.control import encode_marker
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)


class Log:
    """Made by `open`. `name` is the directory's, for messages."""

    def __init__(
        self, files: OpenFiles, directory: str, topic_id: UUID, config: LogConfig, state: LogState
    ) -> None:
        self.files = files
        self._disk: Disk = files.disk
        self.directory = directory
        self.name = directory.rpartition("/")[2]
        self.topic_id = topic_id
        self.config = config
        self.segments = state.segments
        self.producers = state.producers
        self.epochs = state.epochs
        self.state = state
        self.active = state.segments[-1]
        self.log_end_offset = self.active.next_offset
        self.flushed_offset = self.log_end_offset
        self.failure: OSError | None = None
        self.is_deleted = False
        self.is_damaged = False
        """The stored data is wrong; a restart alone does not mend it."""
        self.on_failure: Callable[[str], None] = lambda _reason: None
        """Called with the reason when the log goes offline."""
        self._is_new = self.log_end_offset == 0
        self._unsynced: list[Segment] = []
        self._names_changed = self._names_synced = 0
        self._unsynced_snapshots: list[int] = []
        state.clean_offset = max(state.clean_offset, state.log_start_offset)
        self.has_replaced_on_disk = state.has_replaced
        """Whether the checkpoint on disk names segments that have been replaced."""
        self.has_deleted_on_disk = False
        """Whether there are files of segments that are not part of the log any more."""
        self._saved_state = self._state_to_save
        self._appended_bytes = self._saved_bytes = 0
        self.reader = LogReader(files, directory, config, state)

    @classmethod
    async def open(
        cls,
        files: OpenFiles,
        directory: str,
        *,
        topic_id: UUID,
        config: LogConfig,
        now_ms: int,
        leader_epoch: int = 0,
        rules: Rules = UNKNOWN_PAST,
        has_identity: bool = False,
    ) -> "tuple[Log, Recovered]":
        """Open a log, recovered, or make an empty one. Everything in it is on disk.

        The name of an empty log is made durable with the first append: making many (state topics
        have 50) waits less for the disk. Its first checkpoint says whose it is, unless
        `has_identity`: then the caller keeps that in another file.

        `leader_epoch` begins at its end, if it is new (KAFKA-7415). It is not written for that
        alone: an epoch without records leaves no trace. Raises OSError.
        """
        files.disk.mkdir(directory)
        recovery = Recovery(
            files,
            directory,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            is_compacted=config.is_compacted,
            rules=rules,
        )
        recovered = await recovery.run()
        log = cls(files, directory, topic_id, config, recovered.state)
        if leader_epoch > log.epochs.latest:
            log.epochs.assign(leader_epoch, log.log_end_offset)
        if recovered.checkpoint is None and log._is_new:
            if not has_identity:
                place_checkpoint(files.disk, directory, log.to_save().checkpoint)
        elif recovered.is_changed:
            try:
                await log.save(log.to_save())
            except OSError as error:
                if recovered.checkpoint is None or error.errno not in DISK_FULL:
                    raise
        return log, recovered

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def has_new_names(self) -> bool:
        """Whether a file was made whose name is not on disk yet."""
        return self._names_changed != self._names_synced

    @property
    def unsaved_bytes(self) -> int:
        """Appended since the checkpoint: what recovery would have to read."""
        return self._appended_bytes - self._saved_bytes

    def check_available(self) -> None:
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION if deleted, KAFKA_STORAGE_ERROR."""
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
        if self.failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.name} is offline: {self.failure.strerror}; the broker's log says more",
            )

    def fail(self, error: OSError) -> None:
        """Take the log offline."""
        if self.failure is None:
            self.failure = error
            LOGGER.error("%s is offline until the broker is restarted: %s", self.name, error)
            self.on_failure(error.strerror or str(error))

    @property
    def is_saved(self) -> bool:
        """Whether the checkpoint on disk is up to date."""
        if self._saved_state != self._state_to_save or self._unsynced_snapshots:
            return False
        return not self.has_new_names and not self.reader.has_rebuilt

    @property
    def _state_to_save(self) -> tuple[int, int, int]:
        return self.log_end_offset, self.log_start_offset, self.state.clean_offset

    # appending

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Place a batch at the end and return its base offset.

        `timestamp_ms` is the largest in it. Raises KafkaError KAFKA_STORAGE_ERROR; then the log is
        what it was.
        """
        base_offset = self._write(
            batch, header.last_offset_delta, timestamp_ms, leader_epoch, now_ms
        )
        if header.producer_id >= 0:
            self.producers.add_batch(header, base_offset, timestamp_ms, now_ms)
        return base_offset

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        leader_epoch: int,
        now_ms: int,
    ) -> tuple[int, EndedTransaction | None]:
        """Write a marker: its offset, and the transaction it ended. Raises as `append`.

        An aborted transaction goes into the index of the segment that has its marker; one without
        records does not (KAFKA-10702).
        """
        marker = encode_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        offset = self._write(marker, 0, now_ms, leader_epoch, now_ms)
        ended = self.producers.add_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            offset=offset,
            timestamp_ms=now_ms,
            now_ms=now_ms,
        )
        if ended is not None and not committed:
            assert self.active.aborted is not None
            self.active.aborted.append(AbortedEntry(*ended))
        return offset, ended

    def _write(
        self,
        batch: bytearray | memoryview,
        last_offset_delta: int,
        timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        base_offset = self.log_end_offset
        leader_epoch = max(leader_epoch, self.epochs.latest)  # in a log they never fall
        last_offset = base_offset + last_offset_delta
        set_base_offset(batch, base_offset, leader_epoch)
        segment = self.active
        try:
            self.files.disk.check_room()
            if not segment.has_room(len(batch), timestamp_ms, last_offset, self.config):
                segment = self.roll()
            segment.append(batch, base_offset, last_offset, timestamp_ms, self.config)
        except OSError as error:
            raise self._refusal(error) from error
        self._appended_bytes += len(batch)
        if segment.first_append_ms < 0:
            segment.first_append_ms = now_ms
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = last_offset + 1
        return base_offset

    def _refusal(self, error: OSError) -> KafkaError:
        if error.errno in DISK_FULL:
            self.files.disk.ran_out()
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk is full: {self.name}")
        self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error.strerror}")

    def roll(self) -> Segment:
        """Seal the active segment and begin the next, which is returned. Raises OSError.

        Its file is made last: were it left behind when something else fails, and the log went on
        beyond it, the next start would take it for a segment that lost its batches.
        """
        self._write_snapshot()
        segment = Segment(self.files, self.directory, self.log_end_offset)
        assert segment.file.size == 0, segment.path()
        self.active.seal()
        self._unsynced.append(self.active)
        self._names_changed += 1
        self.segments.append(segment)
        self.active = segment
        return segment

    def _write_snapshot(self) -> None:
        """Keep the producers as they are at the log's end, for Kafka's tools and a bad day."""
        offset = self.log_end_offset
        path = file_path(self.directory, offset, SNAPSHOT)
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.open(path)
        try:
            file.append(encode_snapshot(self.producers.entries.values()))
        finally:
            file.close()
        if offset not in self._unsynced_snapshots:  # a roll may have failed behind it
            self._unsynced_snapshots.append(offset)

    # durability

    async def sync(self) -> None:
        """Have all that was appended before the call on disk, and the names of its files.

        One at a time. Raises OSError: then the log is offline.
        """
        target, names = self.log_end_offset, self._names_changed
        if target == self.flushed_offset and names == self._names_synced:
            return
        sealed, active = list(self._unsynced), self.active
        try:
            for segment in (*sealed, active):
                if not segment.is_deleted:
                    await segment.sync()
            if self._is_new:
                for name in (CHECKPOINT, IDENTITY):
                    if self._disk.exists(f"{self.directory}/{name}"):
                        await sync_file(self._disk, f"{self.directory}/{name}")
            if self._is_new or names != self._names_synced:
                await self._disk.fsync_dir(self.directory)
            if self._is_new:
                await self._disk.fsync_dir(parent_of(self.directory))
                self._is_new = False
        except OSError as error:
            self.fail(error)
            raise
        self._names_synced = max(names, self._names_synced)
        self._unsynced = [segment for segment in self._unsynced if segment not in sealed]
        for segment in sealed:
            segment.close()
        self.flushed_offset = max(self.flushed_offset, target)

    def to_save(
        self, replaced: Sequence[Segment] = (), new: Segment | None = None, clean_offset: int = 0
    ) -> ToSave:
        """The log as it is now, or will be with `new` in the place of `replaced`.

        `save` it once everything below its end has been synced.
        """
        segments = self.segments
        if new is not None:
            first = segments.index(replaced[0])
            segments = [*segments[:first], new, *segments[first + len(replaced) :]]
        summaries = [segment.summary() for segment in segments]
        checkpoint = Checkpoint(
            topic_id=self.topic_id,
            recovery_offset=self.log_end_offset,
            log_start_offset=self.log_start_offset,
            segments=summaries,
            epochs=self.epochs.entries,
            producers=list(self.producers.entries.values()),
            clean_offset=max(clean_offset, self.state.clean_offset),
            replaced=tuple(segment.base_offset for segment in replaced),
        )
        return ToSave(
            recovery_offset=self.log_end_offset,
            appended_bytes=self._appended_bytes,
            state=self._state_to_save,
            segments=summaries,
            checkpoint=encode_checkpoint(checkpoint),
            pieces=[
                (segment, suffix, position, data)
                for segment in segments
                for suffix, position, data in segment.unsaved()
            ],
            snapshots=list(self._unsynced_snapshots),
            replaced=checkpoint.replaced,
        )

    async def save(self, to_save: ToSave, counts: Callable[[], None] | None = None) -> None:
        """Write the indexes and then the checkpoint, so that it vouches for what is on disk.

        `counts` is called at once when it is. One at a time. Raises OSError; a failed fsync takes
        the log offline, otherwise the old checkpoint stays and it may be tried again.
        """
        assert to_save.recovery_offset <= self.flushed_offset, to_save
        paths = [file_path(self.directory, offset, SNAPSHOT) for offset in to_save.snapshots]
        for segment, suffix, position, data in to_save.pieces:
            path = segment.path(suffix)
            file = self._disk.open(path)
            try:
                file.write_at(position, data)
                if file.size > position + len(data):  # it was damaged
                    await file.truncate(position + len(data))
            finally:
                file.close()
            paths.append(path)
        try:
            for path in paths:
                await sync_file(self._disk, path)
            if any(position == 0 for _, _, position, _ in to_save.pieces):
                # the checkpoint's name must not get to the disk before theirs
                await self._disk.fsync_dir(self.directory)
        except OSError as error:
            self.fail(error)
            raise
        await write_beside(self._disk, self.directory, to_save.checkpoint)
        try:
            await move_into_place(self._disk, self.directory)
            if counts is not None:
                counts()
        except OSError as error:
            self.fail(error)
            raise
        for segment, summary in zip(self.segments, to_save.segments, strict=False):
            assert segment.base_offset == summary.base_offset, (segment.base_offset, summary)
            segment.saved(summary)
            if segment.is_sealed and not self.reader.has_loaded(segment):
                segment.unload()
        del self._unsynced_snapshots[: len(to_save.snapshots)]
        self.has_replaced_on_disk = bool(to_save.replaced)
        self.reader.has_rebuilt = False
        self._saved_state = to_save.state
        self._saved_bytes = to_save.appended_bytes

    async def sync_directory(self) -> None:
        """Have the names of its files on disk. Raises OSError: then the log is offline."""
        try:
            await self._disk.fsync_dir(self.directory)
        except OSError as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """Close the files. Nothing is flushed."""
        self.reader.is_closed = True
        for segment in self.segments:
            segment.close()

    def discard(self) -> None:
        """Close the files for good: another log may soon have some of their names."""
        self.reader.is_closed = True
        for segment in self.segments:
            self.reader.forget(segment)

    # reading

    async def read(
        self, offset: int, max_bytes: int, *, to_offset: int, min_one: bool
    ) -> tuple[Buffer, int]:
        """See `LogReader.read`."""
        return await self.reader.read(offset, max_bytes, to_offset=to_offset, min_one=min_one)

    async def aborted(self, from_offset: int, to_offset: int) -> tuple[AbortedTransaction, ...]:
        """See `LogReader.aborted`."""
        return await self.reader.aborted(from_offset, to_offset)

    # throwing away and replacing

    def begin_at(self, offset: int) -> None:
        """Let the log begin at `offset`. Save it, and then `remove_deleted`."""
        assert self.log_start_offset <= offset <= self.flushed_offset, offset
        self.state.log_start_offset = offset
        self.epochs.truncate_start(offset)
        self.state.clean_offset = max(self.state.clean_offset, offset)
        count = max(0, self.reader.segment_at(offset))
        self._take_out(0, count)
        self.has_deleted_on_disk |= count > 0

    def _take_out(self, first: int, count: int) -> None:
        for segment in self.segments[first : first + count]:
            self.reader.forget(segment)
        self._unsynced = [segment for segment in self._unsynced if not segment.is_deleted]
        del self.segments[first : first + count]

    def replace(self, old: Sequence[Segment], new: Segment, clean_offset: int) -> None:
        """Let `new` be in the place of `old`, in memory and on disk; its checkpoint is there.

        Raises OSError.
        """
        first = self.segments.index(old[0])
        self._take_out(first, len(old))
        self.segments.insert(first, new)
        self.state.clean_offset = max(self.state.clean_offset, clean_offset)
        summary = new.summary()
        put_in_place(self._disk, self.directory, summary, [segment.base_offset for segment in old])

    async def remove_deleted(self) -> None:
        """Remove the files of what lies before the log's first segment. Raises OSError.

        The checkpoint must say so already: then no crash on the way brings anything back.
        """
        await remove_before(self._disk, self.directory, self.segments[0].base_offset)
        self.has_deleted_on_disk = False

    def mark_clean_end(self) -> None:
        """Write the producers beside the log, as Kafka does when it is stopped. Raises OSError."""
        path = file_path(self.directory, self.log_end_offset, SNAPSHOT)
        if self.producers.entries and not self._disk.exists(path):
            self._write_snapshot()
