"""The real disk: the fake disk must not promise more."""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from odradek.broker.environment import compiled
from odradek.broker.storage.disk import THREADS_MAX, SystemDisk, read_only
from tests.fakes.threads import cannot_start

PATIENCE_SECONDS = 60


@pytest.fixture
def disk() -> SystemDisk:
    return SystemDisk()


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Let the system take a part of a write and then refuse, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_can_keep_the_time_of_the_one_that_it_replaces(
    disk: SystemDisk, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        disk.open(f"{tmp_path}/{name}").append(b"x")
    disk.set_modified_ms(f"{tmp_path}/old", 1_000_000_000_001)
    disk.set_modified_ms(f"{tmp_path}/new", disk.modified_ms(f"{tmp_path}/old"))
    disk.rename(f"{tmp_path}/new", f"{tmp_path}/old")
    assert disk.modified_ms(f"{tmp_path}/old") == 1_000_000_000_001


async def test_what_is_appended_is_read(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a")
    assert file.append(b"one", bytearray(b"two"), memoryview(b"three")) == 0
    assert file.append(b"four") == 11
    assert file.size == 15
    await file.fsync()
    assert await file.pread(3, 8) == b"twothree"
    assert await file.pread(11, 100) == b"four"
    assert await file.pread(15, 1) == await file.pread(99, 1) == b""
    file.write_at(0, b"ONE")
    await file.truncate(6)
    assert (file.size, await file.pread(0, 100)) == (6, b"ONEtwo")
    file.close()
    assert disk.size(f"{tmp_path}/a") == 6


async def test_what_is_read_once_is_what_was_written_in_memory_or_not(
    disk: SystemDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/a")
    data = os.urandom(1 << 20)
    file.append(data)
    await file.fsync()
    for size in (len(data), 100):
        assert await file.pread_once(5, size) == data[5 : 5 + size]
        fd = os.open(file.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        assert await file.pread_once(5, size) == data[5 : 5 + size]
    file.close()


async def test_a_read_of_what_is_not_in_memory_is_complete(
    disk: SystemDisk, tmp_path: Path
) -> None:
    data = os.urandom(3 << 20)
    file = disk.open(f"{tmp_path}/a")
    file.append(data)
    await file.fsync()
    os.posix_fadvise(file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert await file.pread(5, len(data)) == data[5:]
    file.close()


async def test_a_write_that_is_taken_in_part_counts_for_nothing(
    disk: SystemDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/a")
    file.append(b"x" * 1000)
    with file_size_limit(1500):
        with pytest.raises(OSError, match="too large") as caught:
            file.append(b"y" * 400, b"z" * 400)
        assert caught.value.errno == errno.EFBIG
        assert file.size == disk.size(f"{tmp_path}/a") == 1000
        file.append(b"y" * 500)
    assert await file.pread(990, 1000) == b"x" * 10 + b"y" * 500
    file.close()


async def test_a_file_that_is_closed_while_it_is_used_is_used_to_the_end(
    disk: SystemDisk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/a")
    file.append(b"x" * 100)
    may_go_on = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(THREADS_MAX):  # so that every use of the file waits for a thread
            nursery.start_soon(disk._threads.run, partial(may_go_on.wait, PATIENCE_SECONDS))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            nursery.start_soon(file.fsync)
        await trio.testing.wait_all_tasks_blocked()
        used = file._fd
        file.close()
        other = disk.open(f"{tmp_path}/b")
        assert other._fd != used  # otherwise the flushes would use another file
        may_go_on.set()
    assert file._fd == -1  # closed by its last user
    other.close()


async def test_names_can_be_listed_renamed_and_removed(disk: SystemDisk, tmp_path: Path) -> None:
    root = f"{tmp_path}/d"
    disk.mkdir(f"{root}/e")
    disk.mkdir(f"{root}/e")
    for name in "cab":
        disk.open(f"{root}/{name}").close()
    await disk.fsync_dir(root)
    assert disk.listdir(root) == ["a", "b", "c", "e"]
    disk.open(f"{root}/a").append(b"new")
    disk.rename(f"{root}/a", f"{root}/b")
    disk.remove(f"{root}/c")
    assert disk.listdir(root) == ["b", "e"]
    assert disk.size(f"{root}/b") == 3
    assert bytes(read_only(f"{root}/b")) == b"new"
    await disk.rmtree(f"{root}/b")
    await disk.rmtree(root)
    assert not disk.exists(root)
    assert disk.free_bytes(str(tmp_path)) > 0


def test_a_lock_is_exclusive(disk: SystemDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{tmp_path}/lock")
    lock.release()
    disk.lock(f"{tmp_path}/lock").release()


async def test_a_system_without_threads_is_an_error_of_the_disk_and_counts_no_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Eight failures used up all threads, and every later job waited for ever."""
    monkeypatch.setenv(compiled.OFF, "1")  # the threads in C are not those of Python
    file = SystemDisk().open(f"{tmp_path}/a")
    file.append(b"bytes")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        for _ in range(2 * THREADS_MAX):
            with pytest.raises(OSError, match="can't start new thread"):
                file.start_fsync(lambda _error: None)
    with trio.fail_after(PATIENCE_SECONDS):
        await file.fsync()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):  # closed: no call has it in use
        file.append(b"more")


async def test_a_flush_of_names_waits_while_no_descriptor_is_left(
    disk: SystemDisk, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Seen: a log was offline for ever, as its directory could not be opened at that moment."""
    await disk.fsync_dir(str(tmp_path))  # has a thread
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with trio.open_nursery() as nursery:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            nursery.start_soon(disk.fsync_dir, str(tmp_path))
            await trio.sleep(1)
            assert nursery.child_tasks
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with pytest.raises(FileNotFoundError):
        await disk.fsync_dir(f"{tmp_path}/missing")
