"""The owner of a directory, and that no log is created over an existing one."""

import errno
from dataclasses import replace
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.partitions.directories import ForeignDirectory
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.checkpoint import CHECKPOINT
from odradek.broker.storage.identity import (
    IDENTITY,
    Identity,
    decode_identity,
    encode_identity,
    is_empty_log,
    owner_of,
    read_identity,
)
from odradek.broker.storage.lost import aside_name
from odradek.broker.values.topic_partition import TopicPartition, partition_of
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Machine,
    batch,
)
from tests.fakes.disk import until_power_off

LOG_FILE = f"{PARTITION_DIRECTORY}/{0:020}.log"
WHOSE = Identity(
    where=TopicPartition(TOPIC, 0),
    topic_id=TOPIC_ID,
    partition_count=3,
    configs={"retention.ms": "5"},
    cluster_id="c" * 22,
)


async def started(machine: Machine, identity: Identity | None = WHOSE) -> Partition:
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    return await machine.partitions.open(TOPIC, TOPIC_ID, 0, machine.config, identity=identity)


async def filled(machine: Machine, identity: Identity | None = WHOSE) -> Partition:
    partition = await started(machine, identity)
    partition.leader().append_from_client(batch("a", "b"))
    await partition.flush()
    return partition


async def test_a_log_with_records_says_whose_it_is_even_after_a_power_cut() -> None:
    machine = Machine()
    await filled(machine)
    machine.disk.crash()
    assert await read_identity(machine.disk, PARTITION_DIRECTORY) == WHOSE


async def test_acknowledged_records_are_never_without_what_says_whose_they_are() -> None:
    machine = Machine()
    await filled(machine)
    for operation in range(machine.disk.operations):
        for is_killed in (False, True):
            machine = Machine()
            machine.disk.power_off_at(operation)
            with until_power_off():
                await filled(machine)
            if is_killed:  # the process died and started again; then the power goes off
                machine.disk.kill()
                partition = await started(machine)
                partition.leader().append_from_client(batch("c"))
                await partition.flush()
            machine.disk.crash()
            if machine.disk.exists(LOG_FILE) and machine.disk.size(LOG_FILE):
                found = await read_identity(machine.disk, PARTITION_DIRECTORY)
                assert found == WHOSE, (operation, is_killed)


async def test_a_directory_of_an_earlier_version_learns_whose_it_is() -> None:
    machine = Machine()
    await filled(machine, None)
    machine.disk.crash()
    assert await read_identity(machine.disk, PARTITION_DIRECTORY) is None
    assert (await owner_of(machine.disk, PARTITION_DIRECTORY)).topic_id == TOPIC_ID
    await started(machine)
    machine.disk.crash()
    assert await read_identity(machine.disk, PARTITION_DIRECTORY) == WHOSE
    grown = replace(WHOSE, partition_count=4)
    await started(machine, grown)
    machine.disk.crash()
    assert await read_identity(machine.disk, PARTITION_DIRECTORY) == grown


async def test_a_full_disk_keeps_no_log_with_records_from_being_served() -> None:
    machine = Machine()
    await filled(machine, None)
    machine.disk.kill()
    machine.disk.fail("append", errno.ENOSPC, path_end="topic.meta.tmp")
    assert (await started(machine)).log_end_offset == 2


async def test_a_directory_of_another_topic_is_not_opened_and_stays_as_it_is() -> None:
    machine = Machine()
    await filled(machine)
    kept = machine.disk.bytes_of(LOG_FILE)
    machine.disk.kill()
    with pytest.raises(ForeignDirectory, match="move it away"):
        await machine.start(topic_id=UUID(int=8))
    assert machine.disk.bytes_of(LOG_FILE) == kept
    assert (await machine.start()).log_end_offset == 2


async def test_a_copy_of_another_partition_is_not_opened() -> None:
    machine = Machine()
    await filled(machine)
    machine.disk.kill()
    machine.disk.rename(PARTITION_DIRECTORY, f"{DIRECTORY}/{TOPIC}-1")
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    with pytest.raises(ForeignDirectory, match="departures-0"):
        await machine.partitions.open(TOPIC, TOPIC_ID, 1, machine.config)


@pytest.mark.parametrize("lost", [(), (IDENTITY,), (IDENTITY, CHECKPOINT)])
async def test_a_log_that_no_topic_names_is_set_aside_when_its_name_is_needed(
    lost: tuple[str, ...],
) -> None:
    """It was removed as the log of a deleted topic, or served as the log of the new one."""
    machine = Machine()
    for number in (1, 2):
        await (await filled(machine)).checkpoint()
        kept = machine.disk.bytes_of(LOG_FILE)
        machine.disk.crash()
        for name in lost:
            machine.disk.remove(f"{PARTITION_DIRECTORY}/{name}")
        machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
        made = await machine.partitions.create(TOPIC, UUID(int=8), 0, machine.config)
        assert made.log_end_offset == 0
        aside = f"{DIRECTORY}/{aside_name(f'{TOPIC}-0', number)}"
        await machine.disk.rmtree(PARTITION_DIRECTORY)
        machine.disk.crash()
        assert machine.disk.bytes_of(f"{aside}/{0:020}.log") == kept
        assert partition_of(aside.rpartition("/")[2]) is None


async def test_what_an_interrupted_creation_left_is_removed_and_not_set_aside() -> None:
    machine = Machine()
    await started(machine)
    machine.disk.kill()
    assert is_empty_log(machine.disk, PARTITION_DIRECTORY)
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    await machine.partitions.create(TOPIC, UUID(int=8), 0, machine.config)
    assert machine.disk.listdir(DIRECTORY) == [f"{TOPIC}-0"]
    machine.disk.open(f"{PARTITION_DIRECTORY}/notes.txt").close()  # a foreign file
    assert not is_empty_log(machine.disk, PARTITION_DIRECTORY)


def test_a_name_that_is_as_long_as_can_be_is_set_aside_too() -> None:
    assert len(aside_name("x" * 249 + "-9999", 123)) <= 255


def test_a_damaged_identity_is_none() -> None:
    data = encode_identity(WHOSE)
    assert decode_identity(data) == WHOSE
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert decode_identity(damaged) is None
        assert decode_identity(data[:place]) is None


@pytest.mark.parametrize("name", ["t-", "-0", "t-01", "t", "a/b-0", "t-0.set-aside", "t-0.deleted"])
def test_other_names_are_no_partitions(name: str) -> None:
    assert partition_of(name) is None


def test_a_partitions_directory_is_known_by_its_name() -> None:
    assert partition_of("a-b-12") == TopicPartition("a-b", 12)


async def test_a_new_log_is_two_files_and_no_start_writes_or_flushes_an_empty_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each log had an empty checkpoint too, so a topic of 3,000 partitions took twice as long."""
    machine = Machine()
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    await machine.partitions.begin()
    before = machine.disk.counts["fsync"], machine.disk.counts["fsync_dir"]
    await machine.partitions.create(TOPIC, TOPIC_ID, 0, machine.config, identity=WHOSE)
    assert (machine.disk.counts["fsync"], machine.disk.counts["fsync_dir"]) == before
    assert machine.disk.listdir(PARTITION_DIRECTORY) == [f"{0:020}.log", IDENTITY]
    for _ in range(2):
        machine.disk.kill()
        machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
        await machine.partitions.begin()
        operations = machine.disk.operations
        partition = await machine.partitions.open(
            TOPIC, TOPIC_ID, 0, machine.config, identity=WHOSE, leader_epoch=1
        )
        assert machine.disk.journal[operations:] == []
    partition.leader().append_from_client(batch("a"))
    await partition.flush()
    machine.disk.crash()
    assert (await started(machine)).log_end_offset == 1
    assert caplog.messages == []


async def test_a_deleted_log_that_could_not_be_removed_is_removed_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Without a free file descriptor its directory stayed until the broker started again."""
    machine = Machine()
    await filled(machine)
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        for _ in range(2):
            machine.disk.fail("rmtree", errno.EMFILE)
        await machine.partitions.delete(TOPIC, [0])
        await trio.sleep(1)
        (left,) = [name for name in machine.disk.listdir(DIRECTORY) if name.endswith(".deleted")]
        assert left.startswith(TOPIC_ID.hex)
        await trio.sleep(130)
        assert not [name for name in machine.disk.listdir(DIRECTORY) if name.endswith(".deleted")]
        nursery.cancel_scope.cancel()


async def test_a_directory_that_a_person_renamed_is_not_taken_for_a_deleted_one() -> None:
    """A directory that an operator had renamed was removed at the next start, with its contents."""
    machine = Machine()
    await filled(machine)
    machine.disk.rename(PARTITION_DIRECTORY, f"{PARTITION_DIRECTORY}.deleted")
    ours = [f"{DIRECTORY}/{TOPIC_ID.hex}-0{repeated}.deleted" for repeated in ("", ".2")]
    for path in ours:
        machine.disk.mkdir(path)
    partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(partitions.run)
        while any(map(machine.disk.exists, ours)):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert machine.disk.bytes_of(f"{PARTITION_DIRECTORY}.deleted/{0:020}.log") != b""
