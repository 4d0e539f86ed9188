"""Files that were put back into the wrong place, and a log start that is kept twice."""

import errno
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import pytest

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage import small_file
from odradek.broker.storage.checkpoint import decode_checkpoint, encode_checkpoint
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedLog, ForeignFile
from odradek.broker.storage.identity import Identity
from odradek.broker.storage.log_start import LOG_START, decode_log_start, encode_log_start
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Client,
    Machine,
    batch,
    read_all,
)
from tests.fakes.disk import FakeDisk, until_power_off

pytestmark = pytest.mark.slow

CHECKPOINT: Final = f"{PARTITION_DIRECTORY}/checkpoint"
START_FILE: Final = f"{PARTITION_DIRECTORY}/{LOG_START}"
SMALL_SEGMENTS: Final = LogConfig(segment_bytes=400)
HERE: Final = TopicPartition(TOPIC, 0)
WHOSE: Final = Identity(
    where=HERE, topic_id=TOPIC_ID, partition_count=1, configs={}, cluster_id="c" * 22
)


def put(disk: FakeDisk, path: str, content: bytes) -> None:
    if disk.exists(path):
        disk.remove(path)
    disk.open(path).append(content)


async def started(machine: Machine) -> Partition:
    """Open the partition as a broker does, with a `topic.meta`, which is right."""
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    partition = await machine.partitions.open(TOPIC, TOPIC_ID, 0, machine.config, identity=WHOSE)
    await machine.partitions.run_notes.on_all_open()
    return partition


async def filled(machine: Machine, letter: str = "a", count: int = 9) -> Partition:
    partition = await started(machine)
    for number in range(count):
        partition.leader().append_from_client(batch(f"{letter} {number:04}"))
    await partition.flush()
    return partition


async def values(partition: Partition) -> list[bytes]:
    return [data for _, data in await read_all(partition)]


# a checkpoint


@pytest.mark.parametrize(
    ("where", "topic_id"),
    [(TopicPartition(TOPIC, 1), TOPIC_ID), (HERE, UUID(int=8)), (None, UUID(int=8))],
)
async def test_the_checkpoint_of_another_log_is_not_believed(
    where: TopicPartition | None, topic_id: UUID
) -> None:
    machine = Machine()
    partition = await filled(machine)
    served = await values(partition)
    await machine.stop()
    good = machine.disk.bytes_of(CHECKPOINT)
    checkpoint = decode_checkpoint(good)
    assert checkpoint is not None
    assert checkpoint.where == HERE
    foreign = replace(checkpoint, where=where, topic_id=topic_id)
    put(machine.disk, CHECKPOINT, encode_checkpoint(foreign))
    before = machine.disk.files(PARTITION_DIRECTORY, "")
    for _ in range(2):  # the first start notes the damage
        with pytest.raises(ForeignFile, match="departures-0/checkpoint") as refused:
            await started(machine)
        assert str(topic_id) in str(refused.value)
        assert machine.disk.files(PARTITION_DIRECTORY, "") == before
    put(machine.disk, CHECKPOINT, good)
    assert await values(await machine.start()) == served


async def test_a_checkpoint_of_an_earlier_version_is_believed_for_its_topic() -> None:
    machine = Machine()
    partition = await filled(machine)
    served = await values(partition)
    await machine.stop()
    checkpoint = decode_checkpoint(machine.disk.bytes_of(CHECKPOINT))
    assert checkpoint is not None
    nameless = replace(
        checkpoint,
        where=None,
        segments=[replace(segment, end_crc=None) for segment in checkpoint.segments],
    )
    put(machine.disk, CHECKPOINT, encode_checkpoint(nameless))
    partition = await machine.start()
    assert machine.partitions.recovery_summary.endswith("0.0 MiB read")
    assert await values(partition) == served
    partition.leader().append_from_client(batch("one more"))
    await machine.stop()
    checkpoint = decode_checkpoint(machine.disk.bytes_of(CHECKPOINT))
    assert checkpoint is not None
    assert checkpoint.where == HERE
    assert checkpoint.segments[0].end_crc is not None


@pytest.mark.parametrize("left_over", [1, 30, 60])
async def test_a_checkpoint_that_ends_inside_a_batch_is_damage_and_no_traceback(
    left_over: int,
) -> None:
    """A header was read out of fewer bytes than it has, and the broker did not start."""
    machine = Machine()
    partition = await filled(machine)
    served = await values(partition)
    await machine.stop()
    checkpoint = decode_checkpoint(machine.disk.bytes_of(CHECKPOINT))
    assert checkpoint is not None
    (segment,) = checkpoint.segments
    nameless = replace(
        checkpoint,
        where=None,
        recovery_offset=5,
        segments=[
            replace(
                segment,
                next_offset=5,
                size_bytes=4 * len(served[0]) + left_over,
                end_crc=None,
                index_crc=1,
                index_bytes=8,
            )
        ],
    )
    put(machine.disk, CHECKPOINT, encode_checkpoint(nameless))
    assert await values(await machine.start()) == served


# the file of batches


async def two_logs(machine: Machine) -> list[Partition]:
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    opened = [
        await machine.partitions.open(TOPIC, TOPIC_ID, index, machine.config) for index in range(2)
    ]
    await machine.partitions.run_notes.on_all_open()
    return opened


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("ends", ["records", "the same marker"])
@pytest.mark.parametrize("segment", [0, -1])
async def test_logs_of_one_size_that_were_exchanged_are_not_served_as_each_other(
    is_killed: bool, ends: str, segment: int
) -> None:
    machine = Machine(config=SMALL_SEGMENTS)
    logs = await two_logs(machine)
    for index, partition in enumerate(logs):
        for number in range(12):
            client = Client(partition, producer_id=3, epoch=number, is_transactional=True)
            client.send(f"{index} {number:04}")
            client.end(committed=True)
        if ends == "records":
            partition.leader().append_from_client(batch(f"{index} at the end"))
        await partition.flush()
        await partition.checkpoint()
    if not is_killed:
        await machine.stop()
    machine.disk.kill()
    paths = [partition.log.segments[segment].path() for partition in logs]
    contents = [machine.disk.bytes_of(path) for path in paths]
    assert len(contents[0]) == len(contents[1])
    assert contents[0] != contents[1]
    put(machine.disk, paths[0], contents[1])
    put(machine.disk, paths[1], contents[0])
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    for index in range(2):
        with pytest.raises(DamagedLog, match="may be that of another log"):
            await machine.partitions.open(TOPIC, TOPIC_ID, index, machine.config)


async def test_the_ends_of_compacted_and_of_rolled_segments_are_known() -> None:
    machine = Machine(config=SMALL_SEGMENTS)
    await filled(machine, count=40)
    await machine.stop()
    checkpoint = decode_checkpoint(machine.disk.bytes_of(CHECKPOINT))
    assert checkpoint is not None
    assert len(checkpoint.segments) > 3
    assert all(segment.end_crc is not None for segment in checkpoint.segments)
    before = machine.disk.read_bytes
    await machine.start()
    assert machine.disk.read_bytes - before < 40 * 400


# the log start


async def with_deleted(machine: Machine) -> list[bytes]:
    """Return what is served of a log whose first five records are deleted."""
    partition = await filled(machine)
    await partition.maintenance.delete_before(5)
    served = await values(partition)
    assert len(served) == 4
    await machine.stop()
    return served


def flip(disk: FakeDisk, path: str) -> None:
    data = bytearray(disk.bytes_of(path))
    data[len(data) // 2] ^= 1
    put(disk, path, bytes(data))


async def test_a_flipped_bit_in_the_checkpoint_does_not_bring_deleted_records_back() -> None:
    machine = Machine()
    served = await with_deleted(machine)
    for path in (CHECKPOINT, START_FILE, CHECKPOINT, START_FILE):  # each is written again
        flip(machine.disk, path)
        partition = await machine.start()
        assert partition.log_start_offset == 5
        assert await values(partition) == served
        await machine.stop()


async def test_an_older_checkpoint_does_not_bring_deleted_records_back() -> None:
    machine = Machine()
    partition = await filled(machine)
    await partition.checkpoint()
    older = machine.disk.bytes_of(CHECKPOINT)
    await partition.maintenance.delete_before(5)
    await machine.stop()
    put(machine.disk, CHECKPOINT, older)
    assert (await machine.start()).log_start_offset == 5


async def test_deleted_records_that_may_be_back_get_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    await with_deleted(machine)
    flip(machine.disk, CHECKPOINT)
    flip(machine.disk, START_FILE)
    with caplog.at_level(logging.WARNING):
        await machine.start()
    assert "records from offset 0 on were deleted with DeleteRecords, they are back" in caplog.text
    assert PARTITION_DIRECTORY in caplog.text


async def test_the_log_start_of_another_partition_does_not_count() -> None:
    machine = Machine()
    await with_deleted(machine)
    put(machine.disk, START_FILE, encode_log_start(TopicPartition(TOPIC, 1), TOPIC_ID, 7))
    partition = await machine.start()
    assert partition.log_start_offset == 5
    assert decode_log_start(machine.disk.bytes_of(START_FILE), HERE, TOPIC_ID) == 5


async def test_the_log_start_of_an_earlier_version_is_kept_twice_from_the_first_start_on() -> None:
    machine = Machine()
    await with_deleted(machine)
    machine.disk.remove(START_FILE)
    await machine.start()
    assert decode_log_start(machine.disk.bytes_of(START_FILE), HERE, TOPIC_ID) == 5


async def test_a_log_start_that_an_earlier_version_did_not_keep_up_to_date_does_not_count() -> None:
    machine = Machine()
    await with_deleted(machine)
    checkpoint = decode_checkpoint(machine.disk.bytes_of(CHECKPOINT))
    assert checkpoint is not None
    earlier = replace(checkpoint, where=None, log_start_offset=2)  # it was cut, and begins there
    put(machine.disk, CHECKPOINT, encode_checkpoint(earlier))
    assert (await machine.start()).log_start_offset == 2
    assert (await machine.restart_after_kill()).log_start_offset == 2


async def test_a_log_that_begins_with_a_segment_has_no_file_for_its_start() -> None:
    machine = Machine(config=SMALL_SEGMENTS)
    partition = await filled(machine, count=20)
    await partition.maintenance.delete_before(1)
    assert machine.disk.exists(START_FILE)
    await partition.maintenance.delete_before(partition.log.segments[2].base_offset)
    assert not machine.disk.exists(START_FILE)


async def test_a_repeated_deletion_is_not_answered_before_it_is_on_disk() -> None:
    """The first request had moved the log start in memory, and failed on a full disk."""
    machine = Machine()
    partition = await filled(machine)
    machine.disk.fail("append", errno.EIO, path_end=".tmp")
    with pytest.raises(OSError, match="Input/output"):
        await partition.maintenance.delete_before(5)
    await partition.maintenance.delete_before(5)
    machine.disk.crash()
    assert (await machine.start()).log_start_offset == 5


@dataclass
class Starts:
    """Log start offsets: the last that was answered, and the one that was asked for since."""

    answered: int = 0
    asked: int = 0

    async def move(self, offset: int, change: Callable[[int], Awaitable[None]]) -> None:
        self.asked = offset
        await change(offset)
        self.answered = offset


async def deletions(machine: Machine, starts: Starts) -> None:
    """Delete twice inside a segment, once up to a segment, and begin anew lower down."""
    partition = await filled(machine, count=20)
    upkeep = partition.maintenance
    for offset in (3, 4, partition.log.segments[2].base_offset, 19):
        await starts.move(offset, upkeep.delete_before)
    await starts.move(2, upkeep.start_anew_at)
    for number in range(5):
        partition.leader().append_from_client(batch(f"anew {number}"))
    await partition.flush()
    await starts.move(4, upkeep.delete_before)


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_deletion_survives_a_crash_at_any_operation_and_then_a_damaged_checkpoint(
    is_power_cut: bool,
) -> None:
    whole = Machine(config=SMALL_SEGMENTS)
    await deletions(whole, Starts())
    for operation in range(whole.disk.operations):
        machine, starts = Machine(config=SMALL_SEGMENTS), Starts()
        machine.disk.power_off_at(operation)
        with until_power_off():
            await deletions(machine, starts)
        machine.disk.crash() if is_power_cut else machine.disk.kill()
        partition = await machine.start()
        start = partition.log_start_offset
        assert start in (starts.answered, starts.asked), (operation, starts, start)
        served = await values(partition)
        machine.disk.kill()
        if machine.disk.exists(CHECKPOINT):
            flip(machine.disk, CHECKPOINT)
        partition = await machine.start()
        assert partition.log_start_offset == start, operation
        assert await values(partition) == served, operation


def test_four_zeros_are_no_small_file() -> None:
    """They are the right CRC of nothing."""
    assert small_file.decode(bytes(4)) is None
    assert decode_log_start(b"", None, None) < 0


def test_the_error_of_a_foreign_file_names_it_and_the_command() -> None:
    text = str(ForeignFile("/data/t-0/checkpoint", "t-1"))
    assert "/data/t-0/checkpoint is the file of t-1" in text
    assert "odradek log repair /data/t-0" in text
    assert issubclass(ForeignFile, OSError)
    assert not issubclass(ForeignFile, KafkaError)
