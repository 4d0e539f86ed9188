"""The metadata store in a file: what was answered survives, whatever byte a crash came at."""

import errno
from pathlib import Path
from random import Random

import pytest
import trio

from odradek.broker.cluster import store_embedded
from odradek.broker.cluster.store_embedded import FILE, DamagedStore, EmbeddedStore
from odradek.broker.env import Compare
from odradek.broker.storage.disk import SystemDisk
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.fakes.disk import FakeDisk, PowerOff

Contents = dict[str, tuple[bytes, int, int]]


async def opened(directory: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(SystemDisk(), str(directory))


async def contents(store: EmbeddedStore) -> tuple[Contents, int]:
    found, revision = await store.range("/")
    return {
        key: (value.value, value.create_revision, value.mod_revision)
        for key, value in found.items()
    }, revision


async def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert await contents(store) == ({}, 0)
    assert await store.txn([], {"/a": b"1", "/b": b"2"}) == (True, 1)
    assert await store.txn([], {"/a": b"3", "/b": None}) == (True, 2)
    store.close()
    store = await opened(tmp_path)
    assert await contents(store) == ({"/a": (b"3", 1, 2)}, 2)
    assert await store.txn([], {"/b": b"4"}) == (True, 3)
    assert (await contents(store))[0]["/b"] == (b"4", 3, 3)


async def test_a_range_is_in_order_and_only_what_begins_so(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.txn([], {"/b/2": b"", "/b/1": b"", "/c": b"", "/a": b""})
    found, _ = await store.range("/b/")
    assert list(found) == ["/b/1", "/b/2"]


async def test_a_condition_that_does_not_hold_changes_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    absent = Compare(key="/a", mod_revision=0)
    assert await store.txn([absent], {"/a": b"1"}) == (True, 1)
    assert await store.txn([absent], {"/a": b"2"}) == (False, 1)
    assert await store.txn([Compare(key="/a", create_revision=1)], {"/a": b"3"}) == (True, 2)
    assert await store.txn([Compare(key="/a", mod_revision=1)], {"/a": b"4"}) == (False, 2)
    assert await contents(store) == ({"/a": (b"3", 1, 2)}, 2)


async def test_of_many_who_compare_and_swap_at_once_one_wins(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    won: list[bool] = []

    async def claim() -> None:
        won.append((await store.txn([Compare(key="/a", mod_revision=0)], {"/a": b"x"}))[0])

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(claim)
    assert sorted(won) == [False] * 7 + [True]


async def test_a_crash_at_any_byte_loses_only_what_was_not_answered(tmp_path: Path) -> None:
    store = await opened(tmp_path / "whole")
    file = tmp_path / "whole" / FILE
    answered = [(0, await contents(store))]
    for number in range(6):
        await store.txn([], {f"/{number % 4}": b"x" * number, f"/{number % 3}": None})
        answered.append((file.stat().st_size, await contents(store)))
    store.close()
    data = file.read_bytes()
    for end in range(len(data) + 1):
        directory = tmp_path / "torn"
        directory.mkdir(exist_ok=True)
        (directory / FILE).write_bytes(data[:end])
        store = await opened(directory)
        expected = [state for size, state in answered if size <= end][-1]
        assert await contents(store) == expected, end
        revision = expected[1]
        assert await store.txn([], {"/after": b"1"}) == (True, revision + 1)
        store.close()
        store = await opened(directory)
        assert (await contents(store))[0]["/after"] == (b"1", revision + 1, revision + 1)
        store.close()


async def test_a_last_record_with_wrong_bytes_is_cut_off(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.txn([], {"/a": b"1"})
    size = (tmp_path / FILE).stat().st_size
    await store.txn([], {"/a": b"2"})
    store.close()
    data = (tmp_path / FILE).read_bytes()
    for place in range(size, len(data)):
        torn = bytearray(data)
        torn[place] ^= 0x10
        (tmp_path / FILE).write_bytes(torn)
        store = await opened(tmp_path)
        assert await contents(store) == ({"/a": (b"1", 1, 1)}, 1)
        store.close()


async def test_damage_that_no_crash_explains_is_refused(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.txn([], {"/a": b"1"})
    size = (tmp_path / FILE).stat().st_size
    await store.txn([], {"/b": b"2"})
    store.close()
    data = (tmp_path / FILE).read_bytes()
    for place in range(size):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(DamagedStore, match="damaged at byte 0"):
            await opened(tmp_path)
        assert (tmp_path / FILE).read_bytes() == damaged


async def test_a_broken_only_record_is_no_torn_write_where_there_are_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    await store.txn([], {"/a": b"1"})
    store.close()
    damaged = bytearray((tmp_path / FILE).read_bytes())
    damaged[9] ^= 0x10
    (tmp_path / FILE).write_bytes(damaged)
    (tmp_path / "departures-0").mkdir()
    with pytest.raises(DamagedStore, match="which it would no longer know"):
        await opened(tmp_path)
    assert (tmp_path / FILE).read_bytes() == damaged
    assert caplog.records == []
    (tmp_path / "departures-0").rmdir()  # then the first write of all was cut off
    store = await opened(tmp_path)
    assert await contents(store) == ({}, 0)
    assert f"the last {len(damaged)} bytes are no record" in caplog.text
    store.close()


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_embedded, "COMPACT_ABOVE_BYTES", 1000)


@pytest.mark.usefixtures("small_files")
async def test_the_file_is_written_anew_when_it_has_outgrown_its_contents(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.txn([], {"/kept": b"k"})
    for number in range(1000):
        await store.txn([], {"/a": b"%d" % number})
    assert (tmp_path / FILE).stat().st_size < 2000
    expected = ({"/a": (b"999", 2, 1001), "/kept": (b"k", 1, 1)}, 1001)
    assert await contents(store) == expected
    store.close()
    store = await opened(tmp_path)
    assert await contents(store) == expected
    assert await store.txn([Compare(key="/a", create_revision=2)], {"/a": None}) == (True, 1002)


@pytest.mark.usefixtures("small_files")
async def test_a_crash_while_writing_anew_leaves_the_old_file(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.txn([], {"/a": b"1"})
    store.close()
    for beside in (b"", b"\0" * 7, b"half a snapshot"):
        (tmp_path / f"{FILE}.new").write_bytes(beside)
        store = await opened(tmp_path)
        assert await contents(store) == ({"/a": (b"1", 1, 1)}, 1)
        assert not (tmp_path / f"{FILE}.new").exists()
        store.close()


# a disk that loses what was not flushed


async def write_some(disk: FakeDisk, answered: list[tuple[Contents, int]]) -> None:
    """A life of a store that is rewritten now and then; `answered` is what it said each time."""
    store = await EmbeddedStore.open(disk, "/data")
    answered.append(await contents(store))
    for number in range(12):
        await store.txn([], {f"/{number % 3}": bytes(200 + number), f"/{number % 2}x": None})
        answered.append(await contents(store))
    store.close()


async def after_one_more(states: list[tuple[Contents, int]]) -> list[tuple[Contents, int]]:
    """What a store may have after a crash: the last answer, or what was being written."""
    whole: list[tuple[Contents, int]] = []
    await write_some(FakeDisk(), whole)
    return whole[max(0, len(states) - 1) : len(states) + 1]


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_a_power_cut_at_any_operation_loses_no_answer(seed: int | None) -> None:
    disk, answered = FakeDisk(), list[tuple[Contents, int]]()
    await write_some(disk, answered)
    assert any(name.startswith("rename") for name in disk.journal)  # it was rewritten
    for operation in range(disk.operations):
        disk, answered = FakeDisk(), []
        disk.power_off_at(operation)
        with pytest.raises(PowerOff):
            await write_some(disk, answered)
        disk.crash(None if seed is None else Random(seed * 1000 + operation))
        store = await EmbeddedStore.open(disk, "/data")
        state = await contents(store)
        assert state in await after_one_more(answered), (operation, disk.journal[-3:])
        revision = state[1]
        assert await store.txn([], {"/after": b"1"}) == (True, revision + 1)
        store.close()
        disk.crash()
        store = await EmbeddedStore.open(disk, "/data")
        assert (await contents(store))[0]["/after"] == (b"1", revision + 1, revision + 1)


async def test_what_cannot_be_written_is_not_there_and_writing_goes_on() -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    await store.txn([], {"/a": b"1"})
    disk.fail("append", errno.ENOSPC)
    with pytest.raises(KafkaError) as refused:
        await store.txn([], {"/a": b"2"})
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert await contents(store) == ({"/a": (b"1", 1, 1)}, 1)
    assert await store.txn([], {"/a": b"3"}) == (True, 2)


async def test_after_a_failed_flush_nothing_more_is_taken() -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    await store.txn([], {"/a": b"1"})
    disk.fail("fsync", errno.EIO)
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            await store.txn([], {"/a": b"2"})
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert await contents(store) == ({"/a": (b"1", 1, 1)}, 1)
    disk.crash()
    store = await EmbeddedStore.open(disk, "/data")
    assert await contents(store) == ({"/a": (b"1", 1, 1)}, 1)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("call", ["open", "append", "fsync", "rename"])
async def test_a_failed_rewriting_leaves_the_old_file_in_use(call: str) -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    await store.txn([], {"/a": bytes(900)})
    disk.fail(call, errno.ENOSPC, path_end=".new" if call != "rename" else "")
    await store.txn([], {"/a": bytes(901)})
    assert await store.txn([], {"/a": b"after"}) == (True, 3)
    disk.crash()
    store = await EmbeddedStore.open(disk, "/data")
    assert await contents(store) == ({"/a": (b"after", 1, 3)}, 3)
