"""The names of a log's files, and which of them are open: never more than a fixed number.

A broker has thousands of files and the system lets a process open 1,024, say. So nobody keeps one
open: whoever wants to use a file asks for it, and the one that was used least lately is closed.
That may have writes that are not on disk yet. They are in the page cache, where the next fsync of
the file finds them, whoever has opened it; Linux keeps a failed write-back for it as well.
"""

import errno
from collections.abc import Iterator
from typing import Final

import trio

from odradek.broker.env import Disk, File
from odradek.broker.storage.reserve import ReservedDisk

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
ABORTED_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX)
OFFSET_DIGITS: Final = 20


def file_path(directory: str, offset: int, suffix: str) -> str:
    """Kafka's name: the offset in 20 digits."""
    return f"{directory}/{offset:0{OFFSET_DIGITS}}{suffix}"


async def remove_before(disk: Disk, directory: str, offset: int) -> None:
    """Remove the files of every segment that begins below `offset`. Raises OSError."""
    names = disk.listdir(directory)
    for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
        for found in offsets_in(names, suffix):
            if found < offset:
                await disk.rmtree(file_path(directory, found, suffix))


def parent_of(path: str) -> str:
    """The directory in which a file or directory has its name."""
    parent, slash, _ = path.rstrip("/").rpartition("/")
    return parent or slash or "."


def file_offset(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None if it is not such a file."""
    digits = name.removesuffix(suffix)
    is_ours = name != digits and len(digits) == OFFSET_DIGITS and digits.isascii()
    return int(digits) if is_ours and digits.isdigit() else None


def offsets_in(names: list[str], suffix: str) -> list[int]:
    """The offsets of all files with `suffix`, ascending."""
    found = (file_offset(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)


async def sync_file(disk: Disk, path: str) -> None:
    """Have a file that is not open on disk. Raises OSError."""
    file = disk.open(path)
    try:
        await file.fsync()
    finally:
        file.close()


class OpenFiles:
    """Files of segments, kept open while there is room: the least recently used is closed.

    Ask again for every use: a file may have been closed since. One that is being read or flushed is
    closed when that has ended, so flushes go `max_syncs` at a time, however many wait.
    """

    def __init__(self, disk: Disk, max_files: int = 256, max_syncs: int = 32) -> None:
        self.disk = disk if isinstance(disk, ReservedDisk) else ReservedDisk(disk, ".")
        self._max_files = max_files
        self._files: dict[str, File] = {}
        self._syncs = trio.Semaphore(max_syncs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def get(self, path: str) -> File:
        """The open file; it is made if it is not there. Raises OSError."""
        files = self._files
        file = files.pop(path, None)
        if file is None:
            file = self._open(path)
            if len(files) >= self._max_files:
                self.close(next(iter(files)))
        files[path] = file
        return file

    def _open(self, path: str) -> File:
        """Open a file; if the process has no descriptor left, those of others are closed first."""
        while True:
            try:
                return self.disk.open(path)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._files:
                    raise
            self.close(next(iter(self._files)))

    async def sync(self, path: str) -> None:
        """Have what was written to a file on disk. Raises OSError."""
        try:
            self._syncs.acquire_nowait()
        except trio.WouldBlock:
            await self._syncs.acquire()
        try:
            await self.get(path).fsync()
        finally:
            self._syncs.release()

    def close(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in list(self._files):
            self.close(path)
