"""The fake disk loses exactly what a real disk may lose."""

import errno
from random import Random

import pytest
import trio

from tests.fakes.disk import FakeDisk, PowerOff


async def durable_file(disk: FakeDisk, path: str, data: bytes) -> None:
    file = disk.open(path)
    file.append(data)
    await file.fsync()
    file.close()
    await disk.fsync_dir("/d")


@pytest.fixture
async def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.mkdir("/d")
    await disk.fsync_dir("/")
    return disk


async def test_what_was_not_fsynced_is_gone_after_a_crash(disk: FakeDisk) -> None:
    await durable_file(disk, "/d/a", b"one")
    file = disk.open("/d/a")
    file.append(b"two")
    assert disk.bytes_of("/d/a") == b"onetwo"
    disk.crash()
    assert disk.bytes_of("/d/a") == b"one"


async def test_a_killed_process_loses_nothing(disk: FakeDisk) -> None:
    file = disk.open("/d/a")
    file.append(b"one")
    disk.kill()
    assert disk.bytes_of("/d/a") == b"one"
    with pytest.raises(PowerOff):
        file.append(b"two")


async def test_a_file_whose_directory_was_not_fsynced_is_gone_with_all_its_bytes(
    disk: FakeDisk,
) -> None:
    file = disk.open("/d/a")
    file.append(b"one")
    await file.fsync()
    disk.crash()
    assert disk.listdir("/d") == []


async def test_a_removed_file_comes_back_if_the_directory_was_not_fsynced(disk: FakeDisk) -> None:
    await durable_file(disk, "/d/a", b"one")
    disk.remove("/d/a")
    assert not disk.exists("/d/a")
    disk.crash()
    assert disk.bytes_of("/d/a") == b"one"


async def test_a_rename_is_all_or_nothing(disk: FakeDisk) -> None:
    await durable_file(disk, "/d/a", b"new")
    await durable_file(disk, "/d/b", b"old")
    outcomes = set()
    for seed in range(30):
        disk.rename("/d/a", "/d/b")
        disk.crash(Random(seed))
        outcomes.add((disk.exists("/d/a"), disk.bytes_of("/d/b")))
        if not disk.exists("/d/a"):
            await durable_file(disk, "/d/a", b"new")
            disk.remove("/d/b")
            await durable_file(disk, "/d/b", b"old")
    assert outcomes == {(True, b"old"), (False, b"new")}


async def test_the_last_write_is_torn_at_any_byte(disk: FakeDisk) -> None:
    found = set()
    for seed in range(200):
        disk.remove("/d/a") if disk.exists("/d/a") else None
        await durable_file(disk, "/d/a", b"")
        file = disk.open("/d/a")
        file.append(b"ab")
        file.append(b"cd")
        disk.crash(Random(seed))
        found.add(disk.bytes_of("/d/a"))
    torn = {b"", b"a", b"ab", b"abc", b"abcd"}
    out_of_order = {b"\0\0cd"}
    longer_than_its_bytes = {b"\0\0", b"a\0", b"ab\0\0", b"abc\0"}
    assert found == torn | out_of_order | longer_than_its_bytes


async def test_a_truncation_that_was_not_fsynced_may_not_have_happened(disk: FakeDisk) -> None:
    await durable_file(disk, "/d/a", b"abcd")
    file = disk.open("/d/a")
    await file.truncate(1)
    assert file.size == 1
    disk.crash()
    assert disk.bytes_of("/d/a") == b"abcd"


async def test_an_fsync_covers_what_was_written_before_it_began(disk: FakeDisk) -> None:
    await durable_file(disk, "/d/a", b"")
    file = disk.open("/d/a")
    file.append(b"one")
    disk.fsync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.fsync)
        await trio.testing.wait_all_tasks_blocked()
        file.append(b"two")
        disk.fsync_gate.set()
    disk.crash()
    assert disk.bytes_of("/d/a") == b"one"


async def test_power_goes_off_before_a_chosen_operation_and_stays_off(disk: FakeDisk) -> None:
    file = disk.open("/d/a")
    disk.power_off_at(disk.operations + 1)
    file.append(b"one")
    with pytest.raises(PowerOff):
        await file.fsync()
    with pytest.raises(PowerOff):
        disk.exists("/d/a")
    disk.crash()
    assert not disk.exists("/d/a")


async def test_faults_come_once_and_where_they_were_wanted(disk: FakeDisk) -> None:
    a, b = disk.open("/d/a"), disk.open("/d/b")
    disk.fail("append", errno.EIO, path_end="/b")
    a.append(b"x")
    with pytest.raises(OSError, match="Input/output error"):
        b.append(b"x")
    assert b.size == 0
    b.append(b"x")


async def test_a_full_disk_takes_nothing_and_keeps_what_it_has(disk: FakeDisk) -> None:
    disk.capacity_bytes = 4
    file = disk.open("/d/a")
    file.append(b"abc")
    with pytest.raises(OSError, match="No space"):
        file.append(b"de")
    assert disk.bytes_of("/d/a") == b"abc"
    assert disk.free_bytes("/") == 1


async def test_a_directory_that_was_not_fsynced_is_gone_with_all_in_it(disk: FakeDisk) -> None:
    disk.mkdir("/d/e")
    file = disk.open("/d/e/f")
    await file.fsync()
    await disk.fsync_dir("/d/e")
    disk.crash()
    assert disk.listdir("/d") == []


def test_a_lock_is_exclusive_until_the_process_ends() -> None:
    disk = FakeDisk()
    lock = disk.lock("/lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/lock")
    lock.release()
    disk.lock("/lock")
    disk.kill()
    disk.lock("/lock")
