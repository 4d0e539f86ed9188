"""The real disk: files through the page cache, and a few long-lived threads for blocking calls.

An append is a system call into the page cache, made in the event loop. A read first takes the bytes
that the page cache has, and goes to a thread only for the rest, so that a cold read or a slow fsync
never blocks the loop.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

import outcome
import trio

from odradek.broker.environment.env import NO_DESCRIPTOR, Buffer, DiskUsage, FsyncEnded
from odradek.broker.environment.threads import Threads
from odradek.broker.storage.fsyncs import Fsyncs, is_possible

T = TypeVar("T")

THREADS_MAX: Final = 8
DESCRIPTOR_PAUSE_SECONDS: Final = 0.1
FILE_MODE: Final = 0o644
PRIVATE_MODE: Final = 0o600
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
COPIED_AT_ONCE: Final = 64 * 1024 * 1024
READ_AT_ONCE: Final = 1024 * 1024
NOT_IN_KERNEL: Final = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM}
)
"""Errors of copy_file_range between file systems, or where there is no such call."""

_READ_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_sync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
_allocate: Final[Callable[[int, int, int], None] | None] = getattr(os, "posix_fallocate", None)

_Read = Callable[[int, bytearray, int, int], int]


class SystemFile:
    """An open file. `close` takes effect after all reads and flushes in threads have ended."""

    __slots__ = ("_fd", "_fsyncs", "_is_closing", "_threads", "_users", "path", "size")

    def __init__(
        self, path: str, threads: Threads, fsyncs: Fsyncs | None, *, is_private: bool
    ) -> None:
        self.path = path
        mode = PRIVATE_MODE if is_private else FILE_MODE
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        status = os.fstat(self._fd)
        if is_private and stat.S_IMODE(status.st_mode) & ~PRIVATE_MODE:
            # The owner may be another user, and a file system may have no modes.
            with contextlib.suppress(OSError):
                os.fchmod(self._fd, PRIVATE_MODE)
        self.size = status.st_size
        self._threads = threads
        self._fsyncs = fsyncs
        self._users = 0
        self._is_closing = False

    def append(self, *buffers: Buffer) -> int:
        start = self.size
        try:
            end = start
            for buffer in buffers:
                end = self._write(end, buffer)
        except OSError:
            # If the truncation fails too, the next append overwrites the bytes behind `size`.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        self.size = end
        return start

    def write_at(self, offset: int, data: Buffer) -> None:
        self.size = max(self.size, self._write(offset, data))

    def allocate(self, size: int) -> None:
        if _allocate is None:
            self.append(bytes(size - self.size))
            return
        _allocate(self._fd, 0, size)
        self.size = size

    def _write(self, offset: int, data: Buffer) -> int:
        """Write all of `data`, which the system may take in pieces. Return the end offset."""
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return offset + written
        view = memoryview(data)
        while written < len(view):
            count = os.pwrite(self._fd, view[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "nothing was written", self.path)
            written += count
        return offset + written

    async def pread(self, offset: int, size: int) -> bytes | bytearray:
        return await self._pread(offset, size, _read)

    async def pread_once(self, offset: int, size: int) -> bytes | bytearray:
        return await self._pread(offset, size, _read_once)

    async def _pread(self, offset: int, size: int, read: _Read) -> bytes | bytearray:
        wanted = bytearray(max(0, min(size, self.size - offset)))
        count = 0
        if _READ_NOWAIT is not None:
            # Fails if the page cache has nothing, or if the file system does not support the flag.
            with contextlib.suppress(OSError):
                count = os.preadv(self._fd, [wanted], offset, _READ_NOWAIT)
        if count < len(wanted):
            count = await self._in_thread(partial(read, self._fd, wanted, offset, count))
            del wanted[count:]
        return wanted

    async def truncate(self, size: int) -> None:
        await self._in_thread(partial(os.ftruncate, self._fd, size))
        self.size = size

    async def fsync(self) -> None:
        await self._in_thread(partial(_sync, self._fd))

    def start_fsync(self, done: FsyncEnded) -> None:
        if self._fsyncs is not None:
            self._fsyncs.start(self._fd, partial(self._on_fsynced, done))
        else:
            self._threads.start(partial(_sync, self._fd), partial(self._on_outcome, done))
        self._users += 1

    def _on_outcome(self, done: FsyncEnded, result: outcome.Outcome[None]) -> None:
        self._on_fsynced(done, result.error if isinstance(result, outcome.Error) else None)

    def _on_fsynced(self, done: FsyncEnded, error: BaseException | None) -> None:
        self._left()
        done(error)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        self._users += 1
        try:
            return await self._threads.run(function)
        finally:
            self._left()

    def _left(self) -> None:
        self._users -= 1
        if self._is_closing:
            self.close()

    def close(self) -> None:
        self._is_closing = True
        if self._users == 0 and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read(fd: int, into: bytearray, offset: int, count: int) -> int:
    """Fill `into` behind its first `count` bytes. Return its length, shorter only at file end."""
    with memoryview(into) as view:
        while count < len(view):
            more = os.preadv(fd, [view[count:]], offset + count)
            if more == 0:
                break
            count += more
    return count


def _read_once(fd: int, into: bytearray, offset: int, count: int) -> int:
    """Read without read-ahead, and drop the pages afterwards: the scrubber reads each byte once."""
    if not hasattr(os, "posix_fadvise"):
        return _read(fd, into, offset, count)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    end = _read(fd, into, offset, count)
    os.posix_fadvise(fd, offset + count, end - count, os.POSIX_FADV_DONTNEED)
    return end


class SystemLock:
    """A lock on a file that ends with the process."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SystemDisk:
    """The machine's file system."""

    def __init__(self) -> None:
        self._threads = Threads("disk", THREADS_MAX)
        self._fsyncs = Fsyncs(THREADS_MAX) if is_possible() else None
        self._boot_id = _boot_id()  # read once, not for each of thousands of logs

    def open(self, path: str, *, is_private: bool = False) -> SystemFile:
        return SystemFile(path, self._threads, self._fsyncs, is_private=is_private)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, moment_ms: int) -> None:
        os.utime(path, ns=(moment_ms * 1_000_000, moment_ms * 1_000_000))

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    async def rmtree(self, path: str) -> None:
        await self._threads.run(partial(_remove_all, path))

    async def fsync_dir(self, path: str) -> None:
        # A log whose names cannot be flushed is taken offline, so wait for a descriptor.
        while True:
            try:
                await self._threads.run(partial(_sync_directory, path))
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
            await trio.sleep(DESCRIPTOR_PAUSE_SECONDS)

    def lock(self, path: str) -> SystemLock:
        return SystemLock(path)

    def free_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).free

    def tree_bytes(self, path: str) -> int:
        """Return the bytes of all files in a directory; 0 if there is none."""
        return sum(
            os.lstat(os.path.join(directory, name)).st_size
            for directory, _, names in os.walk(path)
            for name in names
        )

    def usage(self, path: str) -> DiskUsage:
        found = shutil.disk_usage(path)
        return DiskUsage(os.path.abspath(path), found.total, found.free)

    def boot_id(self) -> str | None:
        return self._boot_id


def _boot_id() -> str | None:
    try:
        with open(BOOT_ID) as file:
            return file.read().strip() or None
    except OSError:  # not Linux
        return None


def _remove_all(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def lock_as_java(path: str) -> Iterator[None]:
    """Hold a shared lock that excludes the one that a Java program takes, such as Kafka.

    The file is opened for reading only. Raises BlockingIOError, OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def copy_file(source: str, target: str, size: int, copied: Callable[[int], None]) -> None:
    """Copy the first `size` bytes of a file to a new file, and its time of modification.

    File systems that can share blocks between files do so. `copied` is called with the number of
    bytes of each piece. Nothing is flushed. Raises OSError.
    """
    source_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            _copy_bytes(source_fd, target_fd, size, copied)
            moment = os.fstat(source_fd).st_mtime_ns
            os.utime(target_fd, ns=(moment, moment))
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)


def _copy_bytes(source: int, target: int, size: int, copied: Callable[[int], None]) -> None:
    in_kernel: Callable[[int, int, int], int] | None = getattr(os, "copy_file_range", None)
    done = 0
    while done < size:
        wanted = min(COPIED_AT_ONCE, size - done)
        count = 0
        if in_kernel is not None:
            try:
                count = in_kernel(source, target, wanted)
            except OSError as error:
                if error.errno not in NOT_IN_KERNEL:
                    raise
                in_kernel = None
        if in_kernel is None:
            data = os.read(source, min(wanted, READ_AT_ONCE))
            count = len(data)
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
        if count == 0:
            raise OSError(errno.EIO, f"the file ends after {done} bytes, before {size}")
        done += count
        copied(count)


def read_only(path: str) -> memoryview:
    """Map a file into memory, for tools that inspect a log. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)
