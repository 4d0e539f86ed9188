"""One partition's log: append, flush, checkpoint, roll, and delete or replace segments.

`Partition` decides which batches may be appended and how far readers may read. An append is one
write to one file. Producer state, indexes and the log end offset change only after that write has
succeeded (KAFKA-7866). State changes in synchronous code, before or after a wait for the disk.

I/O errors: a full disk only refuses the append, because the file is unchanged. Any other error, and
every failed fsync, takes the log offline until the broker is restarted. The contents of the disk
are then unknown, and a second fsync would report success wrongly (KAFKA-10778).
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import trio

from odradek.broker.environment.env import NO_DESCRIPTOR, Buffer, Disk
from odradek.broker.storage.aborted import AbortedEntry
from odradek.broker.storage.captured import Captured
from odradek.broker.storage.checkpoint import place_checkpoint
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.cut import carry_out
from odradek.broker.storage.damage import UNKNOWN_PAST, Rules
from odradek.broker.storage.files import GAPS, OpenFiles, name_of, remove_before
from odradek.broker.storage.log_state import LogState, Recovered, take_account
from odradek.broker.storage.marking import NewMarker, marker_batches
from odradek.broker.storage.reading import LogReader
from odradek.broker.storage.received import check_follows, received_batches
from odradek.broker.storage.recovery import Recovery
from odradek.broker.storage.replacement import put_in_place
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.storage.saving import LogSaver, ToSave
from odradek.broker.storage.segment import NO_TIMESTAMP, Segment
from odradek.broker.storage.unflushed import Unflushed
from odradek.protocol.batch import BatchHeader, set_base_offset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.plain_produce import Join

LOGGER: Final = logging.getLogger(__name__)


class Log:
    """One partition's log; `open` makes it. `name` is that of the directory, for messages."""

    def __init__(
        self, files: OpenFiles, directory: str, topic_id: UUID, config: LogConfig, state: LogState
    ) -> None:
        self.files = files
        self._disk: Disk = files.disk
        self.directory = directory
        self.name = name_of(directory)
        self.topic_id = topic_id
        self.config = config
        self.segments = state.segments
        self.producers = state.producers
        self.producers.limit_to(config.producers_max, self.name)
        self.epochs = state.epochs
        self.state = state
        self.active = state.segments[-1]
        self.log_end_offset = self.active.next_offset
        self.unflushed = Unflushed(files, directory, self.log_end_offset)
        self.captured = Captured.of(files, directory, topic_id, self.log_end_offset)
        self.failure: OSError | None = None
        self.is_deleted = False
        self.is_damaged = False
        """True if stored data is wrong, which a restart does not repair."""
        state.clean_offset = max(state.clean_offset, state.log_start_offset)
        self.has_deleted_on_disk = False
        """True if files of deleted segments are still on disk."""
        self.cut_count = 0
        """The number of times that the log was truncated."""
        self.saved_high_watermark = state.high_watermark
        """The high watermark that the last checkpoint before the start had, -1 if it had none."""
        self._appended_bytes = 0
        self.reader = LogReader(files, directory, config, state)
        self.saver = LogSaver(
            files,
            directory,
            topic_id,
            state,
            reader=self.reader,
            unflushed=self.unflushed,
            fail=self.fail,
        )

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
        """Recover a log, or create an empty one. All of its batches are on disk. Raises OSError.

        The name of a new log reaches the disk with the first flush, so that creating many (state
        topics have 50) does not wait for the disk. Its first checkpoint identifies the topic,
        unless the caller stores that in another file (`has_identity`).

        A new `leader_epoch` starts at the log end offset (KAFKA-7415). It is not written to disk
        before the first record of the epoch.
        """
        files.disk.mkdir(directory)
        recovery = Recovery(
            files,
            directory,
            topic_id=topic_id,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            is_compacted=config.is_compacted,
            rules=rules,
        )
        recovered = await recovery.run()
        log = cls(files, directory, topic_id, config, recovered.state)
        log.saver.has_checkpoint = recovered.checkpoint is not None and log.size_bytes > 0
        if leader_epoch > log.epochs.latest:
            log.epochs.assign(leader_epoch, log.log_end_offset)
        if recovered.checkpoint is None and log.unflushed.is_new:
            if not has_identity:
                place_checkpoint(files.disk, directory, log.to_save().content)
        elif recovered.is_changed or files.is_ahead(recovered.checkpoint):
            is_cut = recovered.checkpoint is not None and recovered.checkpoint.is_cut
            try:
                await log.saver.save(log.saver.to_save(0, follows_cut=is_cut))
            except OSError as error:
                is_needed = is_cut or files.journal is not None or rules.journal is not None
                if recovered.checkpoint is None or is_needed or error.errno not in DISK_FULL:
                    raise
        elif files.journal is not None and not rules.was_clean:
            await files.disk.fsync_dir(directory)  # a kill may have left its name in memory
        return log, recovered

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def flushed_offset(self) -> int:
        """Everything below it is on disk."""
        return self.unflushed.flushed_offset

    @property
    def unsaved_bytes(self) -> int:
        """The bytes appended since the checkpoint, which recovery would read."""
        return self._appended_bytes - self.saver.saved_bytes

    def check_available(self) -> None:
        """Raise KafkaError UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR (offline)."""
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
        if self.failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.name} is offline: {self.failure.strerror}; see the broker's log",
            )

    def fail(self, error: OSError) -> None:
        """Take the log offline."""
        # invariant durable 5: After a failed fsync a log takes nothing more until the broker has
        # started again: a second fsync would report success for lost pages.
        # tests/broker/partitions/test_failing_disks.py
        if self.failure is None:
            self.failure = error
            self.files.has_failed.set()
            self.files.in_trouble[self.directory] = None
            LOGGER.error("%s is offline until the broker is restarted: %s", self.name, error)

    # Appending

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Append a batch whose largest timestamp is `timestamp_ms`, and return its base offset.

        Raises KafkaError KAFKA_STORAGE_ERROR; the log is then unchanged.
        """
        base_offset = self._write(
            batch, header.last_offset_delta, timestamp_ms, leader_epoch, now_ms
        )
        if header.producer_id >= 0:
            self.producers.add_batch(header, base_offset, timestamp_ms, now_ms)
        return base_offset

    def append_together(
        self,
        batches: list[memoryview],
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: int,
        now_ms: int,
        join: Join,
    ) -> int | None:
        """Append batches by one write.

        Return the first offset; None if the log may have to roll between them, and nothing is
        appended. Raises as `append`: none of them is appended.
        """
        base_offset, latest, segment = self.log_end_offset, self.epochs.latest, self.active
        leader_epoch = max(leader_epoch, latest)  # as in `_write`
        joined, ends = join(batches, base_offset, leader_epoch)
        if not segment.has_room_for_all(len(joined), ends, self.config):
            return None
        try:
            self.files.disk.check_room()
            segment.append_together(joined, map(len, batches), base_offset, ends, self.config)
        except OSError as error:
            raise self._refusal(error) from error
        self._follow(segment, (joined,), ends[-1][0], now_ms)
        if leader_epoch > latest:
            self.epochs.assign(leader_epoch, base_offset)
        offset = base_offset
        for header, (last_offset, timestamp_ms) in zip(headers, ends, strict=True):
            if header.producer_id >= 0:
                self.producers.add_batch(header, offset, timestamp_ms, now_ms)
            offset = last_offset + 1
        return base_offset

    def append_markers(
        self, markers: Sequence[NewMarker], *, leader_epoch: int, now_ms: int
    ) -> int:
        """Append markers by one write, and return the first offset. Raises as `append`.

        The index of their segment gets an aborted transaction only if it has records here
        (KAFKA-10702).
        """
        base_offset, latest = self.log_end_offset, self.epochs.latest
        leader_epoch = max(leader_epoch, latest)  # as in `_write`
        batches = marker_batches(markers, base_offset, leader_epoch, now_ms)
        size_bytes, last_offset = sum(map(len, batches)), base_offset + len(batches) - 1
        try:
            segment = self._with_room(size_bytes, now_ms, last_offset)
            ends = [(offset, now_ms) for offset in range(base_offset, last_offset + 1)]
            segment.append_together(
                b"".join(batches), map(len, batches), base_offset, ends, self.config
            )
        except OSError as error:
            raise self._refusal(error) from error
        self._follow(segment, batches, last_offset, now_ms)
        if leader_epoch > latest:
            self.epochs.assign(leader_epoch, base_offset)
        for offset, marker in enumerate(markers, base_offset):
            ended = self.producers.add_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                offset=offset,
                timestamp_ms=now_ms,
                now_ms=now_ms,
            )
            if ended is not None and not marker.committed:
                assert segment.indexes.aborted is not None
                segment.indexes.aborted.append(AbortedEntry(*ended))
        return base_offset

    def _write(
        self,
        batch: bytearray | memoryview,
        last_offset_delta: int,
        timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        base_offset = self.log_end_offset
        latest = self.epochs.latest
        leader_epoch = max(leader_epoch, latest)  # epochs never fall in a log (KIP-101)
        set_base_offset(batch, base_offset, leader_epoch)
        self._put(batch, base_offset, base_offset + last_offset_delta, timestamp_ms, now_ms)
        if leader_epoch > latest:
            self.epochs.assign(leader_epoch, base_offset)
        return base_offset

    def append_replicated(self, records: Buffer, *, now_ms: int) -> None:
        """Append whole batches as the leader has them, with its offsets and leader epochs.

        Batches below the log end offset are skipped, because they are here already. Raises
        KafkaError CORRUPT_MESSAGE for a batch that is damaged or does not follow, and as `append`.
        The batches before that one are then appended.
        """
        # Epochs without records, in which this broker may have led, count no more: the leader may
        # have older ones here (KAFKA-10706).
        self.epochs.truncate_end(self.log_end_offset)
        for header, batch in received_batches(records):
            if header.next_offset <= self.log_end_offset:
                continue
            check_follows(header, self.log_end_offset, self.epochs.latest)
            if header.base_offset > self.log_end_offset:
                self._note_gap(header.base_offset)
            timestamp_ms = header.max_timestamp if header.record_count else NO_TIMESTAMP
            self._put(batch, header.base_offset, header.last_offset, timestamp_ms, now_ms)
            take_account(self.state, self.active, header, batch, now_ms)

    def _note_gap(self, base_offset: int) -> None:
        """Note that compaction at the leader removed the offsets before `base_offset`."""
        try:
            if not self.state.gaps_before:
                self._disk.open(f"{self.directory}/{GAPS}").close()
                self.unflushed.note_new_name()
        except OSError as error:
            raise self._refusal(error) from error
        self.state.gaps_before = base_offset + 1

    def _put(
        self,
        batch: Buffer,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        now_ms: int,
    ) -> None:
        try:
            segment = self._with_room(len(batch), timestamp_ms, last_offset)
            segment.append(batch, base_offset, last_offset, timestamp_ms, self.config)
        except OSError as error:
            raise self._refusal(error) from error
        self._follow(segment, (batch,), last_offset, now_ms)

    def _with_room(self, size_bytes: int, timestamp_ms: int, last_offset: int) -> Segment:
        """Return the segment to append to, a new one if need be. Raises OSError."""
        self.files.disk.check_room()
        if self.active.has_room(size_bytes, timestamp_ms, last_offset, self.config):
            return self.active
        return self.roll()

    def _follow(
        self, segment: Segment, batches: Sequence[Buffer], last_offset: int, now_ms: int
    ) -> None:
        """Update the state to what is in the file. From here on nothing can fail."""
        self._appended_bytes += sum(map(len, batches))
        if self.captured is not None:
            self.captured.add(segment, self.log_end_offset, last_offset + 1, batches)
        if segment.first_append_ms < 0:
            segment.first_append_ms = now_ms
        self.log_end_offset = last_offset + 1

    def _refusal(self, error: OSError) -> KafkaError:
        if error.errno in DISK_FULL:
            self.files.disk.note_disk_full()
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk is full: {self.name}")
        if error.errno not in NO_DESCRIPTOR:
            self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error.strerror}")

    def roll(self) -> Segment:
        """Seal the active segment, and return a new one. Raises OSError."""
        # The new file is created last. If a later step failed and left the file behind, and the log
        # grew beyond it, recovery would take the empty file for a segment that lost its batches.
        self.saver.write_snapshot()
        segment = Segment(self.files, self.directory, self.log_end_offset)
        assert segment.file.size == 0, segment.path()
        self.active.seal()
        self.unflushed.note_sealed(self.active)
        self.segments.append(segment)
        self.active = segment
        return segment

    # Durability

    async def sync(self) -> None:
        """Flush everything appended before the call, and the names of its files.

        One call at a time. Raises OSError; the log is then offline.
        """
        try:
            await self.unflushed.run(self.active, self.log_end_offset)
        except OSError as error:
            self.fail(error)
            raise

    def to_save(
        self, replaced: Sequence[Segment] = (), new: Segment | None = None, clean_offset: int = 0
    ) -> ToSave:
        """Return the log's state, or its state once `new` has replaced `replaced`.

        Call `LogSaver.save` with it after everything below the log end offset has been flushed.
        """
        if new is None:
            return self.saver.to_save(self._appended_bytes)
        first = self.segments.index(replaced[0])
        state = dataclasses.replace(
            self.state,
            segments=[*self.segments[:first], new, *self.segments[first + len(replaced) :]],
            clean_offset=max(clean_offset, self.state.clean_offset),
        )
        return self.saver.to_save(self._appended_bytes, state=state, replaced=replaced)

    async def sync_directory(self) -> None:
        """Flush the names of the log's files. Raises OSError; the log is then offline."""
        try:
            await self._disk.fsync_dir(self.directory)
        except OSError as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """Close the files without a flush."""
        self.reader.is_closed = True
        for segment in self.segments:
            segment.close()

    def discard(self) -> None:
        """Close the files for ever, because another log may reuse their names."""
        self.reader.is_closed = True
        for segment in self.segments:
            self.reader.forget(segment)

    # Deleting and replacing segments

    def begin_at(self, offset: int) -> None:
        """Set the log start offset. The caller then saves the log and calls `remove_deleted`."""
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
        self.unflushed.forget_deleted()
        del self.segments[first : first + count]

    def replace(self, old: Sequence[Segment], new: Segment, clean_offset: int) -> None:
        """Replace `old` by `new` in memory and on disk, after the checkpoint. Raises OSError."""
        first = self.segments.index(old[0])
        self._take_out(first, len(old))
        self.segments.insert(first, new)
        self.state.clean_offset = max(self.state.clean_offset, clean_offset)
        summary = new.summary()
        put_in_place(self._disk, self.directory, summary, [segment.base_offset for segment in old])

    async def cut_to(self, state: LogState, became: Callable[[], None] = lambda: None) -> None:
        """Set the log back to an earlier state, in memory and on disk (see `cut.py`).

        Everything is flushed. `became` is called in the step in which memory changes. Raises
        OSError. The log is then unchanged, or offline after the commit point.
        """
        to_save = self.saver.to_save(self._appended_bytes, state=state, is_cut=True)
        # A cancelled cut would leave a checkpoint with which recovery removes later appends.
        with trio.CancelScope(shield=True):
            await self.saver.save(to_save, partial(self._take_over, state, became))
            try:
                await carry_out(self._disk, self.directory, to_save.summaries)
                await self.saver.save(self.saver.to_save(self._appended_bytes, follows_cut=True))
            except OSError as error:
                self.fail(error)
                raise

    def _take_over(self, state: LogState, became: Callable[[], None]) -> None:
        self.cut_count += 1
        kept = set(state.segments)
        for segment in [each for each in self.segments if each not in kept]:
            self.reader.forget(segment)
        self.segments[:] = state.segments
        self.active = state.segments[-1]
        self.log_end_offset = self.active.next_offset
        self.producers.take_over(state.producers)
        self.epochs.entries = state.epochs.entries
        self.state.log_start_offset = state.log_start_offset
        self.state.clean_offset = state.clean_offset
        self.state.high_watermark = state.high_watermark
        self.unflushed.note_truncated(self.log_end_offset)
        if self.captured is not None:
            self.captured.on_cut(self.log_end_offset)
        self.saver.forget_after(self.log_end_offset)
        became()

    async def remove_deleted(self) -> None:
        """Remove the files in front of the log's first segment. Raises OSError."""
        # The checkpoint without these segments is on disk already, so a crash during the removal
        # cannot bring deleted records back.
        await remove_before(self._disk, self.directory, self.segments[0].base_offset)
        self.has_deleted_on_disk = False
