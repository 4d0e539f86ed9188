"""Damage and torn writes: a flipped byte at each kind of place in each region of a log.

The regions are a sealed segment, and the active segment below and above the checkpoint. A flipped
byte never loses an acknowledged batch: either the broker serves the whole log, or it does not open
the log and changes no byte of its directory.
"""

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedLog
from odradek.protocol.batch import HEADER_BYTES, read_header
from tests.broker.storage.samples import (
    PARTITION_DIRECTORY,
    TOPIC_ID,
    Client,
    Machine,
    batch,
    read_all,
)
from tests.broker.storage.test_recovery import contents, filled, kept_files

pytestmark = pytest.mark.slow

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)

FIELDS = {
    "base offset": 7,
    "length, to a larger one": 9,
    "length": 11,
    "leader epoch": 15,
    "magic": 16,
    "crc": 17,
    "attributes": 22,
    "last offset delta": 26,
    "timestamp": 34,
    "producer id": 50,
    "base sequence": 56,
    "record count": 60,
    "payload": HEADER_BYTES + 3,
}


def files(machine: Machine) -> dict[str, bytes]:
    disk = machine.disk
    names = disk.listdir(PARTITION_DIRECTORY)
    return {name: disk.bytes_of(f"{PARTITION_DIRECTORY}/{name}") for name in names}


def starts(machine: Machine, path: str) -> Iterator[int]:
    """Return the positions of a segment's batches."""
    data, position = machine.disk.bytes_of(path), 0
    while position < len(data):
        yield position
        position += read_header(data, position).size_bytes


async def with_a_tail(machine: Machine, *, checkpoint: bool) -> Partition:
    """Return several segments, with more batches behind the checkpoint, if there is one."""
    partition = await filled(machine)
    if checkpoint:
        await partition.checkpoint()
    client = Client(partition, producer_id=8)
    for number in range(20):
        client.send(f"after the checkpoint {number}")
    await partition.flush()
    return partition


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("segment", [0, -2, -1])
async def test_a_flipped_byte_after_a_kill_removed_later_segments(
    field: str, where: str, segment: int
) -> None:
    """Recovery cut off the segment there, and removed three valid segments behind it."""
    machine = Machine(config=CONFIG)
    partition = await with_a_tail(machine, checkpoint=False)
    assert len(partition.log.segments) > 4
    path = partition.log.segments[segment].path()
    batches = list(starts(machine, path))
    begin = {"first": batches[0], "middle": batches[len(batches) // 2], "last": batches[-1]}[where]
    if field == "leader epoch" and path == partition.log.active.path() and where == "last":
        return  # no later batch contradicts the byte
    machine.disk.kill()
    machine.disk.damage(path, begin + FIELDS[field])
    before = files(machine)
    for _ in range(2):  # a second attempt finds the same damage
        with pytest.raises(DamagedLog, match="odradek log repair") as caught:
            await machine.start()
        assert caught.value.filename.startswith(PARTITION_DIRECTORY)
        assert files(machine) == before
        machine.disk.kill()


@pytest.mark.parametrize("field", FIELDS)
async def test_a_flipped_byte_below_the_checkpoint_is_damage_however_the_broker_ended(
    field: str,
) -> None:
    for end in ("kill", "power loss", "stop"):
        for segment in (0, 1, 2):
            machine = Machine(config=CONFIG)
            partition = await with_a_tail(machine, checkpoint=True)
            path = partition.log.segments[segment].path()
            begin = list(starts(machine, path))[1]
            if end == "stop":
                await machine.stop()
            elif end == "kill":
                machine.disk.kill()
            else:
                machine.disk.crash()
            machine.disk.damage(path, begin + FIELDS[field])
            # so that recovery reads the whole segment
            machine.disk.open(partition.log.segments[0].path()).append(b"x")
            before = files(machine)
            with pytest.raises(DamagedLog):
                await machine.start()
            assert files(machine) == before


@pytest.mark.parametrize("field", FIELDS)
async def test_after_a_power_failure_the_log_ends_at_the_first_bad_batch_and_the_rest_is_kept(
    field: str,
) -> None:
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    await partition.checkpoint()
    vouched = partition.log_end_offset
    client = Client(partition, producer_id=8)
    for number in range(40):
        client.send(f"after the checkpoint {number}")
    await partition.flush()
    segment = partition.log.segments[-2]
    path, later = segment.path(), partition.log.active.path()
    assert segment.base_offset > vouched
    begin = list(starts(machine, path))[2]
    offset = read_header(machine.disk.bytes_of(path), begin).base_offset
    machine.disk.crash()
    machine.disk.damage(path, begin + FIELDS[field])
    torn, whole = machine.disk.bytes_of(path), machine.disk.bytes_of(later)
    partition = await machine.start()
    if field == "leader epoch":  # the next open shows it
        begin, offset = begin + read_header(torn, begin).size_bytes, offset + 1
    assert partition.log_end_offset == offset
    assert len(await read_all(partition)) == offset
    later_base = int(later.rpartition("/")[2][:20])
    assert kept_files(machine) == {
        f"{offset:020}.cut": torn[begin:],
        f"{later_base:020}.cut": whole,
    }


async def test_every_byte_that_is_flipped_after_a_kill_is_noticed() -> None:
    machine = Machine(config=LogConfig(segment_bytes=300, index_interval_bytes=100))
    partition = await filled(machine, 6)
    machine.disk.kill()
    paths = [segment.path() for segment in partition.log.segments]
    last = list(starts(machine, paths[-1]))[-1]
    for path in paths:
        for position in range(machine.disk.size(path)):
            if path == paths[-1] and last + 12 <= position < last + 16:
                continue  # the leader epoch of the last batch: no later batch contradicts it
            machine.disk.damage(path, position)
            before = files(machine)
            with pytest.raises(DamagedLog):
                await machine.start()
            assert files(machine) == before, (path, position)
            machine.disk.damage(path, position)
            machine.disk.kill()
    assert (await machine.start()).log_end_offset == partition.log_end_offset


async def test_what_was_cut_is_never_overwritten() -> None:
    machine = Machine()
    partition = await machine.start()
    for turn in range(3):
        partition.leader().append_from_client(batch(f"turn {turn}"))
        await partition.flush()
        machine.disk.crash()
        machine.disk.damage(partition.log.active.path(), 70)
        partition = await machine.start()
        assert partition.log_end_offset == 0
    kept = kept_files(machine)
    assert sorted(kept) == [f"{0:020}.cut{suffix}" for suffix in ("", "-2", "-3")]
    assert len(set(kept.values())) == 3


async def test_damage_is_not_forgotten_when_the_system_is_started_anew() -> None:
    """After a kill it is damage. A later restart of the machine must not make it a torn write."""
    machine = Machine(config=CONFIG)
    partition = await with_a_tail(machine, checkpoint=False)
    machine.disk.kill()
    machine.disk.damage(partition.log.segments[1].path(), 100)
    before = files(machine)
    for _ in range(3):
        await kept_offline(machine)
        assert files(machine) == before
        machine.disk.crash()
        before = files(machine)  # unflushed batches may be missing


async def test_damage_that_was_found_while_serving_is_not_hidden_by_a_clean_stop() -> None:
    machine = Machine(config=CONFIG)
    partition = await with_a_tail(machine, checkpoint=True)
    expected = await contents(partition)
    path = partition.log.segments[0].path()
    machine.disk.damage(path, 100)
    partition.take_offline(f"{path} is damaged")
    await machine.stop()
    before = files(machine)
    for _ in range(2):
        await kept_offline(machine)
        await machine.stop()
        assert files(machine) == before
    machine.disk.damage(path, 100)  # an operator restores the file
    assert await contents(await machine.start()) == expected


async def test_damage_that_was_found_while_serving_is_not_forgotten_by_a_kill() -> None:
    machine = Machine(config=CONFIG)
    partition = await with_a_tail(machine, checkpoint=True)
    path = partition.log.segments[0].path()
    machine.disk.damage(path, 100)
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        await machine.partitions.take_offline(partition, f"{path} is damaged")
        nursery.cancel_scope.cancel()
    machine.disk.kill()
    await kept_offline(machine)


async def kept_offline(machine: Machine) -> None:
    """Start, and record the damage as a broker does."""
    with pytest.raises(DamagedLog) as caught:
        await machine.start()
    partitions = machine.partitions
    partitions.keep_offline("departures", TOPIC_ID, 0, caught.value)
    await partitions.run_notes.on_all_open()
    assert "1 offline (departures-0" in partitions.recovery_summary


async def test_a_flipped_byte_in_the_checkpoint_costs_no_batch() -> None:
    machine = Machine(config=CONFIG)
    partition = await with_a_tail(machine, checkpoint=True)
    expected = await contents(partition)
    size_bytes = machine.disk.size(f"{PARTITION_DIRECTORY}/checkpoint")
    for end in (machine.disk.kill, machine.disk.crash):
        for position in range(0, size_bytes, 97):
            end()
            machine.disk.damage(f"{PARTITION_DIRECTORY}/checkpoint", position)
            partition = await machine.start()
            assert await contents(partition) == expected
    assert not kept_files(machine)


async def test_without_a_checkpoint_the_indexes_say_what_was_on_disk() -> None:
    """After a power failure and two damages, recovery does not cut off acknowledged batches."""
    machine = Machine(config=CONFIG)
    partition = await with_a_tail(machine, checkpoint=True)
    machine.disk.crash()
    machine.disk.damage(f"{PARTITION_DIRECTORY}/checkpoint", 5)
    machine.disk.damage(partition.log.segments[0].path(), 100)
    before = files(machine)
    with pytest.raises(DamagedLog):
        await machine.start()
    assert files(machine) == before


async def test_an_unknown_boot_id_counts_as_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(type(machine.disk), "boot_id", lambda _: None)
    partition = await machine.start()
    partition.leader().append_from_client(batch("one"))
    partition.leader().append_from_client(batch("two"))
    await partition.flush()
    machine.disk.kill()
    machine.disk.damage(partition.log.active.path(), 75)
    partition = await machine.start()
    assert partition.log_end_offset < 2
    assert kept_files(machine)


async def test_no_room_to_keep_what_is_cut_leaves_everything_as_it_is() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("one"))
    partition.leader().append_from_client(batch("two"))
    await partition.flush()
    machine.disk.crash()
    machine.disk.damage(partition.log.active.path(), 75)
    before = machine.disk.bytes_of(partition.log.active.path())
    machine.disk.capacity_bytes = machine.disk.used_bytes
    with pytest.raises(OSError, match="No space"):
        await machine.start()
    assert machine.disk.bytes_of(partition.log.active.path()) == before
