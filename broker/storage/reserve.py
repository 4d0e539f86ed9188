"""A disk with a reserve, so that a broker with a full disk can still free room, start and stop.

A broker with a full disk refuses records, but it must write other files. Retention writes a
checkpoint before it frees room. A broker that starts writes new leader epochs. A coordinator writes
the decision of a transaction. For those writes the disk keeps a reserve: a file that exists only to
be removed. Files of batches never get its room. Any other write that finds the disk full removes
the reserve and retries.

After the first write that finds no room, the disk refuses batches until it has room for the reserve
and as much again. Then the reserve is made again. The disk logs one line for each of the two.
"""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

import trio

from odradek.broker.environment.env import Buffer, Disk, DiskUsage, File, FsyncEnded, Lock
from odradek.broker.storage.listings import Listings

T = TypeVar("T")

LOGGER: Final = logging.getLogger(__name__)
RESERVE: Final = "reserve"
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
BATCHES: Final = (".log", ".cleaned")
"""Files that never get the reserve's room: batches, and the segments that compaction writes."""
LOOK_SECONDS: Final = 1.0
"""The shortest time between two checks of a full disk for room."""
LINE_SECONDS: Final = 60.0
"""The shortest time between two log lines about a full disk."""


class ReservedDisk:
    """The disk of `directory` with a reserve of `reserve_bytes`. Call `prepare` first."""

    def __init__(self, disk: Disk, directory: str, reserve_bytes: int = 0) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVE}"
        self._reserve_bytes = reserve_bytes
        self._listings = Listings(disk)
        self._has_reserve = False
        self._look_at = self._log_at = 0.0
        self._has_logged = False
        self.is_full = False
        self.has_filled = trio.Event()
        """Set when the disk becomes full. Retention waits for it and replaces it."""

    # The reserve

    def prepare(self) -> None:
        """Find or make the reserve. A disk without room for it counts as full."""
        if not self._reserve_bytes:
            return
        try:
            self._has_reserve = (
                self._disk.exists(self._path) and self._disk.size(self._path) >= self._reserve_bytes
            )
        except OSError:
            self._has_reserve = False
        if not self._has_reserve and not self._refill():
            self.note_disk_full()

    def note_disk_full(self) -> None:
        """Note that a write found no room."""
        if self.is_full:
            return
        self.is_full = True
        self.has_filled.set()
        now = trio.current_time()
        # A nearly full disk, or a quota that `free_bytes` does not show, may alternate each second.
        self._has_logged = now >= self._log_at
        if not self._has_logged:
            return
        self._log_at = now + LINE_SECONDS
        LOGGER.error(
            "the disk of %s is full: the broker refuses records and continues otherwise; "
            "free some room, or wait for retention",
            self._directory,
        )

    def check_room(self) -> None:
        """Raise OSError ENOSPC if the disk was full and has no room yet."""
        if not self.is_full:
            return
        now = trio.current_time()
        if now >= self._look_at or not self._reserve_bytes:
            self._look_at = now + LOOK_SECONDS
            has_reserve = self._has_reserve or self._refill()
            if has_reserve and self._has_room_for(self._reserve_bytes):
                self.is_full = False
                if self._has_logged:
                    LOGGER.warning("the disk of %s has room again", self._directory)
                return
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._directory)

    def _has_room_for(self, size_bytes: int) -> bool:
        return self._disk.free_bytes(self._directory) >= size_bytes

    def _refill(self) -> bool:
        """Make the reserve if there is room for it and as much again. Return True if it exists."""
        if not self._reserve_bytes:
            return True
        if not self._has_room_for(2 * self._reserve_bytes):
            return False
        try:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
            file = self._disk.open(self._path)
            try:
                file.allocate(self._reserve_bytes)
            finally:
                file.close()
        # The system does not report a quota beforehand: the write may fail although there is room.
        except OSError as error:
            LOGGER.debug("%s cannot be made: %s", self._path, error)
            return False
        self._has_reserve = True
        return True

    def retry(self, write: Callable[[], T]) -> T:
        """Call `write`. If the disk is full, remove the reserve and call it again.

        Raises OSError.
        """
        try:
            return write()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.note_disk_full()
            if not self._has_reserve:
                raise
        self._has_reserve = False
        self._disk.remove(self._path)
        return write()

    # Disk

    def keep_names(self, directory: str) -> AbstractContextManager[None]:
        """Read the names in a directory once, as long as nothing here changes them."""
        return self._listings.keep(directory)

    def open(self, path: str, *, is_private: bool = False) -> File:
        self._listings.on_made(path)
        if path.endswith(BATCHES):
            return self._disk.open(path)
        return _ReservedFile(self, self.retry(lambda: self._disk.open(path, is_private=is_private)))

    def exists(self, path: str) -> bool:
        return self._listings.exists(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    def set_modified_ms(self, path: str, moment_ms: int) -> None:
        self._disk.set_modified_ms(path, moment_ms)

    def listdir(self, path: str) -> list[str]:
        return self._listings.names(path)

    def mkdir(self, path: str) -> None:
        if not self._listings.is_read(path):
            self._listings.on_changed(path)
            self.retry(lambda: self._disk.mkdir(path))

    def rename(self, source: str, target: str) -> None:
        self._listings.on_changed(source, target)
        self.retry(lambda: self._disk.rename(source, target))

    def link(self, source: str, target: str) -> None:
        self._listings.on_changed(target)
        self.retry(lambda: self._disk.link(source, target))

    def remove(self, path: str) -> None:
        self._listings.on_changed(path)
        self._disk.remove(path)

    async def rmtree(self, path: str) -> None:
        try:
            await self._disk.rmtree(path)
        finally:
            self._listings.on_changed(path)

    async def fsync_dir(self, path: str) -> None:
        await self._disk.fsync_dir(path)

    def lock(self, path: str) -> Lock:
        return self._disk.lock(path)

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def usage(self, path: str) -> DiskUsage:
        return self._disk.usage(path)

    def boot_id(self) -> str | None:
        return self._disk.boot_id()


class _ReservedFile:
    """A file whose writes may use the room of the reserve."""

    __slots__ = ("_disk", "_file")

    def __init__(self, disk: ReservedDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, *buffers: Buffer) -> int:
        return self._disk.retry(lambda: self._file.append(*buffers))

    def write_at(self, offset: int, data: Buffer) -> None:
        self._disk.retry(lambda: self._file.write_at(offset, data))

    def allocate(self, size: int) -> None:
        self._file.allocate(size)  # room ahead is no reason to give up the reserve

    async def pread(self, offset: int, size: int) -> bytes | bytearray:
        return await self._file.pread(offset, size)

    async def pread_once(self, offset: int, size: int) -> bytes | bytearray:
        return await self._file.pread_once(offset, size)

    async def truncate(self, size: int) -> None:
        await self._file.truncate(size)

    async def fsync(self) -> None:
        await self._file.fsync()

    def start_fsync(self, done: FsyncEnded) -> None:
        self._file.start_fsync(done)

    def close(self) -> None:
        self._file.close()
