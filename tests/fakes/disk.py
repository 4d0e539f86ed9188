"""A disk in memory that loses what a real disk may lose, and fails on request.

The disk keeps apart what programs see and what is *durable*, for the bytes of a file and for the
names in a directory. fsync of a file makes its bytes durable but not its name. fsync of a directory
makes its names durable but no bytes. `crash` drops the rest, or keeps a random part of it: the
first writes with the last one torn at any byte, or zeros from there on, or any of the writes,
because pages reach a real disk in any order.

Every operation that changes something has a number. `power_off_at` ends the run just before one of
them: from then on every call raises `PowerOff`, which nothing in the broker catches. `fail` makes
the next call of a kind raise an OSError.
"""

import contextvars
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import trio

from odradek.broker.environment.env import Buffer, DiskUsage, FsyncEnded
from tests.fakes.clock import START_MS
from tests.fakes.inodes import Directory, Inode


class PowerOff(BaseException):
    """The machine is off. It is not an Exception, so that no handler of the broker catches it."""


@contextmanager
def until_power_off() -> Iterator[None]:
    """Run the block until it ends or the power goes off, in one task or in several."""
    try:
        yield
    except* PowerOff:
        pass


class FakeDisk:
    """A `Disk`. `operations` counts the changing calls, `counts` all calls by name."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.counts: Counter[str] = Counter()
        self.journal: list[str] = []
        self.read_bytes = 0
        self.fsync_gate: trio.Event | None = None
        self.wall_ms: Callable[[], int] = lambda: START_MS
        """The clock of the times at which files are written."""
        self.delay_s: Callable[[str], float] = lambda _call: 0.0
        """Called with the name of each call that may wait (fsync, pread, ...): its time."""
        self._root = Directory()
        self._incarnation = 0
        self._boot_count = 0
        self._power_off_at: int | None = None
        self._is_off = False
        self._faults: list[tuple[str, str, int]] = []
        self._locks: set[str] = set()

    # For tests

    def power_off_at(self, operation: int) -> None:
        """Raise `PowerOff` from operation number `operation` on. The first operation is 0."""
        self._power_off_at = operation

    def power_off(self) -> None:
        self._is_off = True

    def crash(self, keep: Random | None = None) -> None:
        """Cut the power and restore it. With `keep`, a random part of the other changes survives.

        Files that were open before raise errors.
        """
        self._root.crash(keep)
        self._boot_count += 1
        self._restart()

    def make_durable(self) -> None:
        """Make the directories durable that a test has made to begin with."""
        nodes: list[Inode | Directory] = [self._root]
        for node in nodes:
            if isinstance(node, Directory):
                node.make_durable()
                nodes += node.names.values()

    def kill(self) -> None:
        """Kill the process but not the machine: all writes survive."""
        self._restart()

    def _restart(self) -> None:
        self._incarnation += 1
        self._power_off_at = None
        self._is_off = False
        self._faults.clear()
        self._locks.clear()
        self.fsync_gate = None

    def fail(self, call: str, error: int, *, path_end: str = "") -> None:
        """Let the next `call` (append, fsync, open, ...) on such a path raise OSError(error)."""
        self._faults.append((call, path_end, error))

    def bytes_of(self, path: str) -> bytes:
        """Return the bytes of a file as programs see them."""
        return bytes(self._file(path).content)

    def files(self, directory: str, end: str, *, durable: bool = False) -> dict[str, bytes]:
        """Return the files of a directory whose names end so, in the order of their names.

        With `durable`, as they would be found if the power were cut now.
        """
        node: Inode | Directory | None = self._root
        for name in directory.strip("/").split("/"):
            assert isinstance(node, Directory), directory
            node = (node.durable if durable else node.names).get(name)
            if node is None:
                return {}
        assert isinstance(node, Directory), directory
        names = node.durable if durable else node.names
        return {
            name: bytes(child.durable if durable else child.content)
            for name, child in sorted(names.items())
            if isinstance(child, Inode) and name.endswith(end)
        }

    def damage(self, path: str, position: int) -> Callable[[], bool]:
        """Flip bits of a byte, on disk too. Return whether the damaged byte is still there.

        It is gone with its file, or when the file was cut before it and was written on.
        """
        inode = self._file(path)
        inode.make_durable(inode.change_count)
        inode.content[position] ^= 0xFF
        inode.durable[position] ^= 0xFF
        flipped = inode.content[position : position + 1]

        def is_there() -> bool:
            with suppress(OSError):
                here = self._file(path)
                return here is inode and here.content[position : position + 1] == flipped
            return False

        return is_there

    def has(self, path: str) -> bool:
        """Return True if programs would see a file or directory, whatever the power."""
        with suppress(OSError):
            self._node(path)
            return True
        return False

    def lose(self, path: str) -> None:
        """Take a file or a directory away as if it had never been there, whatever the power."""
        parent, name = self._parent(path)
        parent.names.pop(name, None)
        parent.durable.pop(name, None)
        for change in parent.pending:
            change.pop(name, None)

    @property
    def used_bytes(self) -> int:
        def size(node: Inode | Directory) -> int:
            if isinstance(node, Inode):
                return len(node.content)
            return sum(size(child) for child in node.names.values())

        return size(self._root)

    # For files and directories

    def begin(self, call: str, path: str, *, changes: bool = True) -> None:
        """Count a call, and raise the error that was requested for it."""
        if self._is_off or (changes and self.operations == self._power_off_at):
            self._is_off = True
            raise PowerOff(f"before {call} {path}")
        self.counts[call] += 1
        if changes:
            self.operations += 1
            self.journal.append(f"{call} {path}")
        for fault in self._faults:
            if fault[0] == call and path.endswith(fault[1]):
                self._faults.remove(fault)
                raise OSError(fault[2], os.strerror(fault[2]), path)

    def check_room(self, more_bytes: int, path: str) -> None:
        if self.capacity_bytes is not None and self.used_bytes + more_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    @property
    def is_off(self) -> bool:
        return self._is_off

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def _directory(self, path: str) -> Directory:
        node: Inode | Directory = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, Directory) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.names[name]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name

    def _node(self, path: str) -> Inode | Directory:
        parent, name = self._parent(path)
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return parent.names[name]

    def _file(self, path: str) -> Inode:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    # Disk

    def open(self, path: str, *, is_private: bool = False) -> "FakeFile":
        parent, name = self._parent(path)
        self.begin("open", path, changes=name not in parent.names)
        if name not in parent.names:
            parent.change({name: Inode()})
        return FakeFile(self, path, self._file(path))

    def exists(self, path: str) -> bool:
        self.begin("exists", path, changes=False)
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def size(self, path: str) -> int:
        self.begin("size", path, changes=False)
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, moment_ms: int) -> None:
        self._file(path).modified_ms = moment_ms

    def listdir(self, path: str) -> list[str]:
        self.begin("listdir", path, changes=False)
        return sorted(self._directory(path).names)

    def mkdir(self, path: str) -> None:
        node = self._root
        for name in path.strip("/").split("/"):
            if name not in node.names:
                self.begin("mkdir", path)
                node.change({name: Directory()})
            child = node.names[name]
            assert isinstance(child, Directory), path
            node = child

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source)
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        assert parent is other, "a rename across directories is not atomic on a crash"
        parent.change({name: None, new_name: self._node(source)})

    def link(self, source: str, target: str) -> None:
        self.begin("link", target)
        parent, name = self._parent(target)
        parent.change({name: self._file(source)})

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        self._file(path)
        parent, name = self._parent(path)
        parent.change({name: None})

    async def wait(self, call: str) -> None:
        """Take the time that a call takes."""
        if seconds := self.delay_s(call):
            await trio.sleep(seconds)
        else:
            await trio.lowlevel.checkpoint()

    async def rmtree(self, path: str) -> None:
        await self.wait("rmtree")
        self.begin("rmtree", path)
        self._node(path)
        parent, name = self._parent(path)
        parent.change({name: None})

    async def fsync_dir(self, path: str) -> None:
        await self.wait("fsync_dir")
        self.begin("fsync_dir", path)
        self._directory(path).make_durable()

    def lock(self, path: str) -> "FakeLock":
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self._locks.add(path)
        return FakeLock(self._locks, path)

    def free_bytes(self, path: str) -> int:
        return (1 << 40) if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes

    def usage(self, path: str) -> DiskUsage:
        total = (1 << 41) if self.capacity_bytes is None else self.capacity_bytes
        return DiskUsage(path, total, self.free_bytes(path))

    def boot_id(self) -> str | None:
        return f"boot {self._boot_count}"


class FakeLock:
    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class FakeFile:
    """A `File` of one incarnation of the disk. It is unusable after a crash."""

    def __init__(self, disk: FakeDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._incarnation = disk.incarnation
        self._is_closed = False

    @property
    def size(self) -> int:
        return len(self._inode.content)

    def _begin(self, call: str, *, changes: bool = True) -> None:
        assert not self._is_closed, f"{call} of {self.path}, which is closed"
        self._go_on(call, changes=changes)

    def _go_on(self, call: str, *, changes: bool = False) -> None:
        """Close after all running calls have ended, as the real disk does."""
        if self._incarnation != self._disk.incarnation:
            raise PowerOff(f"{self.path} was opened before the crash")
        self._disk.begin(call, self.path, changes=changes)

    def append(self, *buffers: Buffer) -> int:
        data = b"".join(buffers)
        start = self.size
        self._begin("append")
        self._disk.check_room(len(data), self.path)
        self._write(start, data)
        return start

    def allocate(self, size: int) -> None:
        self.append(bytes(size - self.size))

    def write_at(self, offset: int, data: Buffer) -> None:
        self._begin("write_at")
        self._disk.check_room(len(data), self.path)
        self._write(offset, bytes(data))

    def _write(self, offset: int, data: bytes) -> None:
        def write(content: bytearray, point: int | None, zeros: bool) -> None:
            size = len(data) if point is None else point % (len(data) + 1)
            if len(content) < offset:
                content.extend(bytes(offset - len(content)))
            end = offset + len(data) if zeros else offset + size
            content[offset:end] = data[:size].ljust(end - offset, b"\0")

        self._inode.change(write)
        self._inode.modified_ms = self._disk.wall_ms()

    async def pread(self, offset: int, size: int) -> bytes | bytearray:
        self._begin("pread", changes=False)
        await self._disk.wait("pread")
        self._go_on("pread_end")
        found = bytes(self._inode.content[offset : offset + size])
        self._disk.read_bytes += len(found)
        return found

    async def pread_once(self, offset: int, size: int) -> bytes | bytearray:
        return await self.pread(offset, size)

    async def truncate(self, size: int) -> None:
        self._begin("truncate")
        await self._disk.wait("truncate")
        self._go_on("truncate_end")

        def cut(content: bytearray, point: int | None, zeros: bool) -> None:
            if point is None:
                del content[size:]

        self._inode.change(cut)
        self._inode.modified_ms = self._disk.wall_ms()

    def start_fsync(self, done: FsyncEnded) -> None:
        if self._disk.is_off or self._incarnation != self._disk.incarnation:
            raise PowerOff(f"fsync {self.path}")
        self._disk.begin("start_fsync", self.path, changes=False)
        trio.lowlevel.spawn_system_task(
            self._fsync_for,
            self._inode.change_count,
            done,
            context=contextvars.copy_context(),  # of the process whose disk it is
        )

    async def _fsync_for(self, change_count: int, done: FsyncEnded) -> None:
        with suppress(PowerOff):  # whoever touches the disk next meets it
            try:
                self._go_on("fsync")
                await self._fsync(change_count)
            except (OSError, PowerOff) as error:
                done(error)
            else:
                done(None)

    async def fsync(self) -> None:
        self._begin("fsync")
        await self._fsync(self._inode.change_count)

    async def _fsync(self, change_count: int) -> None:
        if self._disk.fsync_gate is not None:
            await self._disk.fsync_gate.wait()
        await self._disk.wait("fsync")
        self._go_on("fsync_end")
        self._inode.make_durable(change_count)

    def close(self) -> None:
        self._is_closed = True
