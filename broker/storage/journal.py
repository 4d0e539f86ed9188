"""The journal: one fsync for what was appended to all logs of a broker in a turn (`log.flush`).

Small appends go to the page cache of their logs, and at the end of the turn to the journal, whose
one fsync makes all of them durable. A log that has grown by more than 64 KiB, that has a new file,
or that has no checkpoint yet is flushed itself, and the journal gets a note of it. In the journal
the records of a log have no gap between them: a note or bytes, each from where the one before ends.

There are two files, written in turn. When one is full the other takes over, and the logs that the
full one vouches for write their checkpoints. Each checkpoint has the sequence number that the next
record had when its state was taken: earlier records of that log count no more. When that is so for
all records of a file, it is used anew. A file that vouches for a log that has failed is set aside.

The journal is read at a start after a crash (`journal_replay.py`). What a log has on disk beyond
its checkpoint and the journal was never acknowledged. It is cut off if the machine went down.

An fsync of the journal that fails takes all logs that use it offline: what they have appended since
can be acknowledged by nobody.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from odradek.broker.environment.env import Buffer, Disk, File
from odradek.broker.storage.fsync_times import to_timed
from odradek.broker.storage.journal_file import (
    HEADER_BYTES,
    JournalRecord,
    LogKey,
    RecordKind,
    encode_header,
    encode_record,
)
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.values.histogram import Histogram

LOGGER: Final = logging.getLogger(__name__)
NAMES: Final = ("journal-a", "journal-b")
PREFIX: Final = "journal-"
SET_ASIDE: Final = ".kept"
FILE_BYTES: Final = 16 * 1024 * 1024
AHEAD_BYTES: Final = 256 * 1024
"""A file grows by so much: an fsync takes a third less where it need not note a new size."""
LIFE_BITS: Final = 40
"""The first sequence number of a life is its number times 2^40."""
RETRY_SECONDS: Final = 0.2
"""The time between two attempts to write, while there is no room."""


class Journaled(Protocol):
    """A log that uses the journal."""

    @property
    def cut_count(self) -> int: ...

    def give(self, journal: "BrokerJournal") -> bool:
        """Add records of what was appended. Return False if the log must be flushed itself."""

    def on_durable(self, next_offset: int) -> None:
        """Note that everything below `next_offset` is durable."""

    def wake(self) -> None:
        """Wake what waits for the journal."""

    def flush_itself(self) -> None:
        """Start to flush the log."""

    def save_soon(self) -> None:
        """Write a checkpoint soon."""

    def fail(self, error: OSError) -> None:
        """Take the log offline."""

    def is_saved(self, sequence: int) -> bool:
        """Return True if the record with this number counts no more for the log."""

    @property
    def has_failed(self) -> bool:
        """True if no checkpoint can be written: the log has failed, or one that it follows."""


class _Entry(NamedTuple):
    record: JournalRecord
    log: Journaled | None
    cut_count: int


class _JournalFile:
    """One of the two files, and the last record in it of each log."""

    def __init__(self, path: str, file: File) -> None:
        self.path = path
        self.file = file
        self.generation = 0
        self.end = 0
        self.vouched: dict[Journaled, int] = {}

    @property
    def is_free(self) -> bool:
        return all(log.is_saved(sequence) for log, sequence in self.vouched.items())


class BrokerJournal:
    """The journal of one broker. `begin` makes it usable."""

    file_bytes = FILE_BYTES
    """The size of a file; more than a record may have."""

    def __init__(self, disk: Disk, directory: str, fsyncs: Histogram | None = None) -> None:
        """`fsyncs` notes their times, if anything reads them."""
        self._disk = disk
        self._fsyncs = fsyncs
        self._directory = directory
        self._files: list[_JournalFile] = []
        self._life = 0
        self._waiting: dict[Journaled, None] = {}
        """The logs that have appended something in this turn."""
        self._queue: deque[_Entry] = deque()
        self._written: list[_Entry] = []
        """What is written, and is not being flushed yet."""
        self._is_running = False
        self._is_blocked = False
        self._wake: trio.Event | None = None
        self._is_in_one_turn = False
        self.next_sequence = 0
        self.failure: OSError | None = None

    @property
    def is_begun(self) -> bool:
        return self._life > 0

    async def begin(self, life: int) -> None:
        """Begin a life: from here on no record of an earlier one counts. Raises OSError."""
        assert not self.is_begun, self._life
        self.next_sequence = life << LIFE_BITS
        for name in NAMES:
            path = f"{self._directory}/{name}"
            self._files.append(_JournalFile(path, self._disk.open(path)))
        self._begin_file(self._files[0], life)
        await self._files[0].file.fsync()
        await self._disk.fsync_dir(self._directory)
        self._life = life

    def _begin_file(self, begun: _JournalFile, life: int) -> None:
        """Write the header of a file, whose records count no more. Raises OSError."""
        generation = self._queue[0].record.sequence if self._queue else self.next_sequence
        begun.file.write_at(0, encode_header(life, generation))
        begun.generation, begun.end = generation, HEADER_BYTES
        begun.vouched.clear()

    # what logs give

    def on_appended(self, log: Journaled) -> None:
        """Take what a log has appended, at the end of this turn."""
        if self.failure is not None:
            log.fail(self.failure)
            return
        self._waiting[log] = None
        if self._is_in_one_turn:
            return
        if self._wake is None:
            self.end_turn()
        else:
            self._wake.set()

    def in_one_turn(self, append: Callable[[], None]) -> None:
        """Call `append`, and end the turn.

        What many logs append in it needs no wake of `run`, which costs more than a small write.
        """
        self._is_in_one_turn = True
        try:
            append()
        finally:
            self._is_in_one_turn = False
            if self._waiting:
                self.end_turn()
                self._make_room_soon()

    def add(
        self,
        log: Journaled | None,
        key: LogKey,
        kind: RecordKind,
        base_offset: int,
        next_offset: int,
        *,
        segment_base: int = 0,
        position: int = 0,
        data: Buffer = b"",
    ) -> None:
        """Add a record, which is written by the next `end_turn`."""
        record = JournalRecord(
            sequence=self.next_sequence,
            key=key,
            kind=kind,
            segment_base=segment_base,
            position=position,
            base_offset=base_offset,
            next_offset=next_offset,
            data=data,
        )
        self.next_sequence += 1
        self._queue.append(_Entry(record, log, -1 if log is None else log.cut_count))

    def take_now(self, log: Journaled) -> bool:
        """Take what a log has appended, before anything that other logs append from here on.

        Return False if the journal cannot take it now.
        """
        return self.is_begun and self.failure is None and not self._is_blocked and log.give(self)

    def end_turn(self) -> None:
        """Write what logs have appended, and start its fsync. If one runs, the next follows it."""
        waiting, self._waiting = self._waiting, {}
        for log in waiting:
            if not log.give(self):
                log.flush_itself()
        self._start()

    # writing

    def _start(self) -> None:
        if self._is_running or self.failure is not None:
            return
        try:
            self._write_and_flush()
        except BaseException:  # a bug of ours: what waits meets it again
            self._wake_all()
            raise

    def _wake_all(self) -> None:
        for _, log, _ in (*self._queue, *self._written):
            if log is not None:
                log.wake()

    def _write_and_flush(self) -> None:
        try:
            is_all = self._write()
        except OSError as error:
            self._fail(error)
            return
        self._is_blocked = not (is_all or self._written)
        if not self._written:
            return
        entries = self._written
        try:
            done = to_timed(self._fsyncs, partial(self._on_synced, entries))
            self._files[0].file.start_fsync(done)
        except OSError:  # the system lets no thread start
            self._is_blocked = True
        else:
            self._written, self._is_running = [], True

    def _write(self) -> bool:
        """Write what fits. Return False if something is left. Raises OSError."""
        active, chunks, taken = self._files[0], [], []
        room = self.file_bytes - active.end
        while self._queue and self._queue[0].record.size_bytes <= room:
            entry = self._queue.popleft()
            room -= entry.record.size_bytes
            chunks.append(encode_record(active.generation, entry.record))
            taken.append(entry)
        try:
            if chunks:
                data = b"".join(chunks)
                self._grow(active, active.end + len(data))
                active.file.write_at(active.end, data)
                active.end += len(data)
            elif self._queue and not self._written:  # else that is to be flushed in this file first
                return self._switch() and self._write()
        except BaseException as error:
            # What is not written stays in the queue, and the disk takes no more appends.
            self._queue.extendleft(reversed(taken))
            if not (isinstance(error, OSError) and error.errno in DISK_FULL):
                raise
            LOGGER.debug("%s has no room: %s", active.path, error)
            return False
        for record, log, _ in taken:
            if log is not None:
                active.vouched[log] = record.sequence
        self._written += taken
        return not self._queue

    def _grow(self, active: _JournalFile, end: int) -> None:
        """Make the file longer before a write up to `end`, if the disk has ample room."""
        if end <= active.file.size:
            return
        try:
            if self._disk.free_bytes(self._directory) >= FILE_BYTES:
                active.file.allocate(min(end + AHEAD_BYTES, self.file_bytes))
        except OSError as error:  # the write meets whatever is wrong
            LOGGER.debug("%s cannot be made longer: %s", active.path, error)

    def _switch(self) -> bool:
        """Switch to the other file.

        Return False, and do nothing, if it still vouches for logs.
        """
        full, other = self._files
        # invariant journal 2: A file of the journal is used anew only when the checkpoint of each
        # log that it vouches for covers its records.
        # plant a journal file is used anew before its logs are saved
        if not other.is_free:
            return False
        # The disk may have no room for the header, and records without one would not count.
        self._begin_file(other, self._life)
        self._files = [other, full]
        for log in full.vouched:
            log.save_soon()
        return True

    def _on_synced(self, entries: list[_Entry], error: BaseException | None) -> None:
        self._is_running = False
        if isinstance(error, OSError):
            self._fail(error)
            return
        if error is not None:  # no error of a disk, but a bug of ours
            self._written[:0] = entries
            self._wake_all()
            raise error
        durable: dict[Journaled, int] = {}
        for record, log, cut_count in entries:
            # What was cut meanwhile is not in the log any more.
            if log is not None and log.cut_count == cut_count:
                durable[log] = record.next_offset
        for log, next_offset in durable.items():
            log.on_durable(next_offset)
        self._start()
        self._make_room_soon()

    # invariant durable 5
    def _fail(self, error: OSError) -> None:
        self.failure = error
        LOGGER.error("%s failed: %s", self._files[0].path, error)
        logs = dict.fromkeys(self._waiting)
        logs |= dict.fromkeys(log for _, log, _ in (*self._queue, *self._written) if log)
        logs |= dict.fromkeys(log for file in self._files for log in file.vouched)
        for log in logs:
            log.fail(error)

    # in the background

    async def run(self) -> None:
        """End the turns, and make room, until cancelled."""
        self._wake = trio.Event()
        try:
            while True:
                if self._is_blocked:
                    with trio.move_on_after(RETRY_SECONDS):
                        await self._wake.wait()
                else:
                    await self._wake.wait()
                self._wake = trio.Event()
                if self._is_blocked and self.failure is None:
                    await self._make_room()
                self.end_turn()
        finally:
            self._wake = None
            if self.is_begun:
                self.end_turn()

    def on_saved(self) -> None:
        """Note that a log has a new checkpoint."""
        self._make_room_soon()

    def _make_room_soon(self) -> None:
        """Wake `run` if there is no room: it may be waiting without a limit of time."""
        if self._is_blocked and self._wake is not None:
            self._wake.set()

    async def _make_room(self) -> None:
        """Set the older file aside if only logs that have failed keep it from being used anew."""
        older = self._files[1]
        left = [log for log, sequence in older.vouched.items() if not log.is_saved(sequence)]
        if not left or not all(log.has_failed for log in left):
            for log in left:
                log.save_soon()
            return
        kept = f"{self._directory}/{PREFIX}{older.generation}{SET_ASIDE}"
        LOGGER.error(
            "%s is kept as %s: it has records of logs that failed. Start the broker again when the "
            "disk is in order; that puts them back, and removes the file",
            older.path,
            kept,
        )
        try:
            older.file.close()
            self._disk.rename(older.path, kept)
            await self._disk.fsync_dir(self._directory)
            self._files[1] = _JournalFile(older.path, self._disk.open(older.path))
            await self._disk.fsync_dir(self._directory)
        except OSError as error:
            self._fail(error)
