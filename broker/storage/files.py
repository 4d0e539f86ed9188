"""The names of a log's files, and the cache of open files.

A broker has thousands of files, but a process may often open only 1,024. So code asks the cache for
a file at each use, and the cache closes the least recently used file. Writes to that file may not
be on disk yet. They are in the page cache, where the next fsync flushes them, even through a new
descriptor. Linux also reports a failed write-back to that fsync.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

import trio

from odradek.broker.environment.env import NO_DESCRIPTOR, Disk, File, FsyncEnded
from odradek.broker.storage.checkpoint import Checkpoint
from odradek.broker.storage.fsync_times import to_timed
from odradek.broker.storage.journal import BrokerJournal
from odradek.broker.storage.reserve import ReservedDisk
from odradek.broker.values.histogram import Histogram

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
ABORTED_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
GAPS: Final = "gaps"
"""An empty file. With it offsets may be missing in the active segment, too: the log is the copy of
a log that was compacted."""
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX)
OFFSET_DIGITS: Final = 20


def file_path(directory: str, offset: int, suffix: str) -> str:
    """Return a file's path with Kafka's name: the offset in 20 digits and the suffix."""
    return f"{directory}/{offset:0{OFFSET_DIGITS}}{suffix}"


async def remove_before(disk: Disk, directory: str, offset: int) -> None:
    """Remove the files of every segment that begins below `offset`. Raises OSError."""
    names = disk.listdir(directory)
    for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
        for found in offsets_in(names, suffix):
            if found < offset:
                await disk.rmtree(file_path(directory, found, suffix))


def parent_of(path: str) -> str:
    """Return the directory of a path."""
    parent, slash, _ = path.rstrip("/").rpartition("/")
    return parent or slash or "."


def name_of(directory: str) -> str:
    """Return the last name in a path."""
    return directory.rstrip("/").rpartition("/")[2]


def file_offset(name: str, suffix: str) -> int | None:
    """Return the offset in a file's name, None if the name is not of this form."""
    digits = name.removesuffix(suffix)
    is_ours = name != digits and len(digits) == OFFSET_DIGITS and digits.isascii()
    return int(digits) if is_ours and digits.isdigit() else None


def offsets_in(names: list[str], suffix: str) -> list[int]:
    """Return the offsets of all files with `suffix`, ascending."""
    found = (file_offset(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)


async def sync_file(disk: Disk, path: str) -> None:
    """Flush a file that is not open. Raises OSError."""
    file = disk.open(path)
    try:
        await file.fsync()
    finally:
        file.close()


class OpenFiles:
    """A cache of open segment files. It closes the least recently used one when it is full.

    Ask for a file at each use, because the cache may have closed it since. A file that is being
    read or flushed is closed afterwards, so at most `max_syncs` flushes run at a time.
    """

    def __init__(
        self,
        disk: Disk,
        max_files: int = 256,
        max_syncs: int = 32,
        journal: BrokerJournal | None = None,
        fsyncs: Histogram | None = None,
    ) -> None:
        """`fsyncs` notes their times, if anything reads them."""
        self.disk = disk if isinstance(disk, ReservedDisk) else ReservedDisk(disk, ".")
        self.journal = journal
        self._fsyncs = fsyncs
        self.has_failed = trio.Event()
        """Set when a log has failed: its pages may be lost although the machine goes on."""
        self.in_trouble: dict[str, None] = {}
        """The directories of logs that have failed, or in which something was found damaged."""
        self.first_sequence = 0
        """The number in checkpoints while no journal has begun: no record of before counts."""
        self.latest_sequence = 0
        """The largest number that a checkpoint was found to have."""
        self._max_files = max_files
        self._files: dict[str, File] = {}
        self._in: dict[str, dict[str, None]] = {}
        """The paths of the open files, by their directories."""
        self._syncs = trio.Semaphore(max_syncs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    @property
    def next_sequence(self) -> int:
        """The number that the next record of the journal will have."""
        if self.journal is not None and self.journal.is_begun:
            return self.journal.next_sequence
        return self.first_sequence

    def is_ahead(self, checkpoint: Checkpoint | None) -> bool:
        """Return True if records of this life would not count beside a checkpoint."""
        sequence = 0 if checkpoint is None else checkpoint.journal_sequence
        return self.is_journaled and sequence > self.next_sequence

    @property
    def is_journaled(self) -> bool:
        """True if what a log flushes itself is durable only with a note in the journal."""
        return self.journal is not None and self.journal.is_begun

    def get(self, path: str) -> File:
        """Return the open file. Create it if it is missing. Raises OSError."""
        files = self._files
        file = files.pop(path, None)
        if file is None:
            file = self._open(path)
            if len(files) >= self._max_files:
                self.close(next(iter(files)))
            self._in.setdefault(parent_of(path), {})[path] = None
        files[path] = file
        return file

    def _open(self, path: str) -> File:
        """Open a file. If the process has no free descriptor, close cached files first."""
        while True:
            try:
                return self.disk.open(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._files:
                    raise
            self.close(next(iter(self._files)))

    async def sync(self, path: str) -> None:
        """Flush a file to disk. Raises OSError."""
        try:
            self._syncs.acquire_nowait()
        except trio.WouldBlock:
            await self._syncs.acquire()
        try:
            since = trio.current_time()
            await self.get(path).fsync()
            if self._fsyncs is not None:
                self._fsyncs.note(trio.current_time() - since)
        finally:
            self._syncs.release()

    def start_sync(self, path: str, done: FsyncEnded) -> bool:
        """Start what `sync` waits for; `done` is called at its end. Raises OSError.

        Return False, with nothing started, if as many flushes run as may.
        """
        file = self.get(path)
        try:
            self._syncs.acquire_nowait()
        except trio.WouldBlock:
            return False
        try:
            file.start_fsync(to_timed(self._fsyncs, partial(self._on_synced, done)))
        except OSError:
            self._syncs.release()
            raise
        return True

    def _on_synced(self, done: FsyncEnded, error: BaseException | None) -> None:
        self._syncs.release()
        done(error)

    def close(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is None:
            return
        directory = parent_of(path)
        self._in[directory].pop(path)
        if not self._in[directory]:
            self._in.pop(directory)
        file.close()

    def close_in(self, directory: str) -> None:
        """Close the files that are, or were, in a directory."""
        for path in tuple(self._in.get(directory, ())):
            self.close(path)

    def close_all(self) -> None:
        for path in list(self._files):
            self.close(path)
