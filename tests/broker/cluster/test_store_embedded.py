"""The metadata store in a file: what was answered survives, whatever byte a crash came at."""

import errno
import stat
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from odradek.broker.cluster import store_embedded
from odradek.broker.cluster.store_embedded import (
    COPY,
    FILE,
    OF_KAFKA,
    DamagedStore,
    EmbeddedStore,
)
from odradek.broker.cluster.two_copies import encode_record
from odradek.broker.environment.env import Compare
from odradek.broker.storage.disk import SystemDisk
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.fakes.disk import FakeDisk, PowerOff

pytestmark = pytest.mark.slow

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


async def test_only_the_user_of_the_broker_may_read_the_files(tmp_path: Path) -> None:
    """They have hashes of passwords. Files of a version that did not see to it are closed."""

    def modes() -> dict[str, int]:
        return {it.name: stat.S_IMODE(it.stat().st_mode) for it in tmp_path.iterdir()}

    only_owner = {FILE: 0o600, COPY: 0o600}
    (await opened(tmp_path)).close()
    assert modes() == only_owner
    for name in (FILE, COPY):
        (tmp_path / name).chmod(0o644)
    store = await opened(tmp_path)
    assert modes() == only_owner
    await store._compact()
    store.close()
    assert modes() == only_owner
    await store_embedded.write_files(SystemDisk(), [f"{tmp_path}/a"], b"")  # as a backup does
    assert modes() == {**only_owner, "a": 0o600}


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


async def six_changes() -> tuple[bytes, list[tuple[int, tuple[Contents, int]]]]:
    """A life of a store: its bytes, and their number and what it said after each change."""
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    answered = [(0, await contents(store))]
    for number in range(6):
        await store.txn([], {f"/{number % 4}": b"x" * number, f"/{number % 3}": None})
        answered.append((disk.size(f"/data/{FILE}"), await contents(store)))
    store.close()
    first, second = copies_of(disk)
    assert first == second
    return first, answered


def laid_out(first: bytes | None, second: bytes | None) -> FakeDisk:
    """A disk with these files."""
    disk = FakeDisk()
    disk.mkdir("/data")
    for name, data in ((FILE, first), (COPY, second)):
        if data is not None:
            disk.open(f"/data/{name}").append(data)
    return disk


def copies_of(disk: FakeDisk) -> tuple[bytes, bytes]:
    return disk.bytes_of(f"/data/{FILE}"), disk.bytes_of(f"/data/{COPY}")


async def goes_on(disk: FakeDisk, expected: tuple[Contents, int]) -> None:
    """The store opens with this in it, takes one more change, and has two whole copies again."""
    store = await EmbeddedStore.open(disk, "/data")
    assert await contents(store) == expected
    revision = expected[1]
    assert await store.txn([], {"/after": b"1"}) == (True, revision + 1)
    store.close()
    disk.crash()
    first, second = copies_of(disk)
    assert first == second
    store = await EmbeddedStore.open(disk, "/data")
    assert (await contents(store))[0]["/after"] == (b"1", revision + 1, revision + 1)
    store.close()


async def test_a_crash_at_any_byte_of_either_file_loses_only_what_was_not_answered() -> None:
    data, answered = await six_changes()
    ends = [size for size, _ in answered]
    for before, after in pairwise(ends):
        for torn in range(before, after + 1):
            # the first file is being written, and then the second
            done = [state for size, state in answered if size <= torn][-1]
            await goes_on(laid_out(data[:torn], data[:before]), done)
            both = [state for size, state in answered if size == after][-1]
            await goes_on(laid_out(data[:after], data[:torn]), both)


async def test_a_flipped_bit_in_one_file_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """In the last record it was taken for a torn write: 4,022 acknowledged bytes were gone."""
    data, answered = await six_changes()
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        for number, copies in enumerate(((damaged, data), (data, damaged))):
            disk = laid_out(*map(bytes, copies))
            caplog.clear()
            store = await EmbeddedStore.open(disk, "/data")
            assert await contents(store) == answered[-1][1], place
            store.close()
            assert f"{(FILE, COPY)[number]} is damaged" in caplog.text
            disk.crash()
            assert copies_of(disk) == (data, data)


async def test_a_file_that_is_cut_anywhere_or_gone_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data, answered = await six_changes()
    for end in (None, *range(len(data))):
        cut = None if end is None else data[:end]
        for copies in ((cut, data), (data, cut)):
            await goes_on(laid_out(*copies), answered[-1][1])
    assert "cluster.meta is damaged or cut off at byte 0" in caplog.text


async def test_damage_to_different_records_of_both_files_loses_nothing() -> None:
    data, answered = await six_changes()
    first, second = bytearray(data), bytearray(data)
    first[answered[1][0] + 9] ^= 1
    second[answered[3][0] + 9] ^= 1
    await goes_on(laid_out(bytes(first), bytes(second)), answered[-1][1])


async def test_damage_to_both_files_is_refused_in_words_and_nothing_is_changed() -> None:
    """A record that counts and is whole in neither file, wherever the bits were flipped in it."""
    data, answered = await six_changes()
    for before, after in ((0, answered[1][0]), (answered[-2][0], len(data))):
        for place in range(before, after):
            damaged = bytearray(data)
            damaged[place] ^= 0x10
            whole, torn = bytes(damaged), bytes(damaged[:place])
            for copies in ((whole, whole), (torn, whole), (whole, torn), (data[:before], whole)):
                if copies[1] == data[:before]:
                    continue  # that is a first file whose last record was not acknowledged
                disk = laid_out(*copies)
                with pytest.raises(DamagedStore, match="odradek storage rebuild") as refused:
                    await EmbeddedStore.open(disk, "/data")
                assert f"byte {before}" in str(refused.value)
                assert copies_of(disk) == copies


async def test_copies_that_contradict_each_other_are_refused() -> None:
    common, _ = await six_changes()
    made = []
    for value in (b"2", b"3"):
        disk = laid_out(common, common)
        store = await EmbeddedStore.open(disk, "/data")
        await store.txn([], {"/a": value})
        made.append(copies_of(disk)[0])
    with pytest.raises(DamagedStore, match=f"contradict each other at byte {len(common)}"):
        await EmbeddedStore.open(laid_out(*made), "/data")


async def test_a_file_of_the_earlier_version_gets_its_copy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data, answered = await six_changes()
    await goes_on(laid_out(data, None), answered[-1][1])
    assert caplog.records == []
    # there a torn record and a damaged one look alike
    with pytest.raises(DamagedStore, match=r"no cluster\.meta\.copy to compare it with"):
        await EmbeddedStore.open(laid_out(data[:-1], None), "/data")


async def test_an_earlier_version_that_was_used_in_between_loses_nothing() -> None:
    """It appends to the first file only, and rewrites that alone."""
    data, answered = await six_changes()
    behind = data[: answered[3][0]]
    await goes_on(laid_out(data, behind), answered[-1][1])
    values = {key: value for key, (value, _, _) in answered[-1][1][0].items()}
    revisions = {key: numbers for key, (_, *numbers) in answered[-1][1][0].items()}
    rewritten = encode_record([answered[-1][1][1], values, revisions])
    await goes_on(laid_out(rewritten, behind), answered[-1][1])


@pytest.mark.parametrize("content", [None, b"", b"\0" * 40])
async def test_an_empty_or_missing_file_where_there_are_logs_is_refused(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker started, and the first topic that was made erased the old log of its name."""
    disk = laid_out(content, None)
    disk.mkdir("/data/departures-0")
    log = f"/data/departures-0/{0:020}.log"
    disk.open(log).append(b"records")
    with pytest.raises(DamagedStore, match=r"departures-0.*odradek storage rebuild"):
        await EmbeddedStore.open(disk, "/data")
    assert caplog.records == []
    disk.remove(log)  # then it is somebody's directory
    store = await EmbeddedStore.open(disk, "/data")
    assert await contents(store) == ({}, 0)
    store.close()


@pytest.mark.parametrize("mark", OF_KAFKA)
async def test_a_directory_of_apache_kafka_is_refused_as_such(mark: str) -> None:
    """The refusal called it damaged, and advised to rebuild: then it was served as Odradek's."""
    disk = laid_out(None, None)
    disk.mkdir("/data/departures-0")
    disk.open(f"/data/departures-0/{0:020}.log").append(b"records")
    disk.open(f"/data/{mark}")
    with pytest.raises(DamagedStore, match=f"Apache Kafka: it has {mark}") as refused:
        await EmbeddedStore.open(disk, "/data")
    assert "rebuild" not in str(refused.value)


async def test_a_file_of_kafkas_beside_a_whole_store_does_not_matter() -> None:
    data, answered = await six_changes()
    disk = laid_out(data, data)
    disk.open("/data/meta.properties")
    await goes_on(disk, answered[-1][1])


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
    assert not (tmp_path / f"{COPY}.new").exists()
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


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_a_power_cut_after_a_kill_loses_no_answer(seed: int | None) -> None:
    """What the killed process had not flushed is torn along with what the next one writes."""
    disk, answered = FakeDisk(), list[tuple[Contents, int]]()
    await write_some(disk, answered)
    for operation in range(disk.operations):
        for more in range(operation % 3, 20, 3):
            disk, answered = FakeDisk(), []
            disk.power_off_at(operation)
            with pytest.raises(PowerOff):
                await write_some(disk, answered)
            disk.kill()
            disk.power_off_at(disk.operations + more)
            again: list[tuple[Contents, int]] = []
            with suppress(PowerOff):
                await write_some(disk, again)
            last = again[-1][1] if again else answered[-1][1] if answered else 0
            disk.crash(None if seed is None else Random(seed * 100_000 + operation * 100 + more))
            store = await EmbeddedStore.open(disk, "/data")
            revision = (await contents(store))[1]
            assert last <= revision <= last + 1, (operation, more, disk.journal[-9:])
            store.close()


@pytest.mark.parametrize("undone", [True, False])
async def test_a_change_that_only_one_file_has_room_for_is_not_made(undone: bool) -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    await store.txn([], {"/a": b"1"})
    disk.fail("append", errno.ENOSPC, path_end=COPY)
    if not undone:
        disk.fail("truncate", errno.EIO, path_end=FILE)
    with pytest.raises(KafkaError):
        await store.txn([], {"/a": b"2"})
    assert await contents(store) == ({"/a": (b"1", 1, 1)}, 1)
    if undone:
        assert await store.txn([], {"/a": b"3"}) == (True, 2)
        disk.crash()
        store = await EmbeddedStore.open(disk, "/data")
        assert await contents(store) == ({"/a": (b"3", 1, 2)}, 2)
    else:  # nobody knows whether it is there: the next start does
        with pytest.raises(KafkaError):
            await store.txn([], {"/a": b"3"})


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


# leases, whose keys are in memory only


async def test_the_keys_of_a_lease_end_with_the_process() -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    await store.txn([], {"/durable": b"1", "/taken": b"1"})
    lease = await store.grant_lease(60)
    await store.txn([], {"/leased": b"1", "/taken": b"2"}, lease=lease)
    await store.txn([], {"/later": b"1"})
    assert list((await contents(store))[0]) == ["/durable", "/later", "/leased", "/taken"]
    disk.kill()
    store = await EmbeddedStore.open(disk, "/data")
    assert await contents(store) == ({"/durable": (b"1", 1, 1), "/later": (b"1", 3, 3)}, 3)


@pytest.mark.usefixtures("small_files")
async def test_a_file_that_is_written_anew_has_no_keys_of_a_lease() -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    await store.txn([], {"/leased": b"1"}, lease=await store.grant_lease(60))
    for number in range(100):
        await store.txn([], {"/a": bytes(100 + number)})
    assert any(name.startswith("rename") for name in disk.journal)
    disk.kill()
    store = await EmbeddedStore.open(disk, "/data")
    assert await contents(store) == ({"/a": (bytes(199), 2, 101)}, 101)


async def test_registering_under_a_lease_needs_no_room_on_the_disk() -> None:
    disk = FakeDisk()
    store = await EmbeddedStore.open(disk, "/data")
    before = disk.operations
    await store.txn([], {"/brokers/1": b"1"}, lease=await store.grant_lease(60))
    assert disk.operations == before


async def test_a_lease_does_not_end_with_a_pause_of_the_process(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After three seconds of sleep a broker without etcd led nothing, and knew no broker."""
    store = await EmbeddedStore.open(FakeDisk(), "/data")
    lease = await store.grant_lease(1)
    await store.txn([], {"/leased": b"1"}, lease=lease)
    await trio.sleep(86_400)
    assert list((await store.range("/"))[0]) == ["/leased"]
    assert await store.keep_lease(lease) == 1
