"""Records without timestamps, and with timestamps before 1970: their age is that of their file."""

import pytest

from odradek.broker.inspect.repair import repair, survey_log
from odradek.broker.partitions.by_time import largest
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.compaction.plan import plan
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.timestamps import TimestampOffset
from tests.broker.storage.keyed import compact, compacted_machine, keyed
from tests.broker.storage.samples import PARTITION_DIRECTORY, Machine, batch, read_all
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk

RETENTION_MS = 10_000
BEFORE_1970 = -86_400_000


def machine_with_retention() -> Machine:
    return Machine(config=LogConfig(segment_bytes=300, retention_ms=RETENTION_MS))


async def append(partition: Partition, timestamp_ms: int, count: int = 12) -> None:
    for number in range(count):
        partition.leader().append_from_client(batch(f"{number:04}", timestamp_ms=timestamp_ms))
    await partition.flush()


async def remaining(partition: Partition) -> int:
    await partition.maintenance.enforce_retention()
    return partition.log_end_offset - partition.log_start_offset


@pytest.mark.parametrize("timestamp_ms", [-1, BEFORE_1970])
async def test_retention_removes_records_without_a_timestamp_and_what_is_behind_them(
    timestamp_ms: int,
) -> None:
    """A segment without timestamps stayed for ever, and so did every segment behind it."""
    machine = machine_with_retention()
    partition = await machine.start()
    await append(partition, timestamp_ms)
    await append(partition, START_MS)
    machine.clock.advance(RETENTION_MS)
    assert await remaining(partition) == 24
    machine.clock.advance(1)
    assert await remaining(partition) == 0


async def test_records_without_a_timestamp_are_as_old_as_the_last_append_to_their_file() -> None:
    machine = machine_with_retention()
    partition = await machine.start()
    await append(partition, -1, count=11)
    count = len(partition.log.segments)
    machine.clock.advance(RETENTION_MS - 1)
    partition.leader().append_from_client(batch("later", timestamp_ms=-1))
    await partition.flush()
    assert len(partition.log.segments) == count
    machine.clock.advance(2)
    assert 1 < await remaining(partition) < 12


@pytest.mark.parametrize("end", ["stopped", "killed", "without a checkpoint", "power lost"])
async def test_a_restart_does_not_make_records_without_a_timestamp_younger(end: str) -> None:
    machine = machine_with_retention()
    partition = await machine.start()
    await append(partition, -1)
    await partition.checkpoint()
    machine.clock.advance(RETENTION_MS - 1)
    if end == "stopped":
        partition = await machine.restart()
    elif end == "power lost":
        partition = await machine.restart_after_power_loss()
    else:
        if end == "without a checkpoint":
            machine.disk.remove(f"{PARTITION_DIRECTORY}/checkpoint")
        partition = await machine.restart_after_kill()
    assert await remaining(partition) == 12
    machine.clock.advance(2)
    assert await remaining(partition) == 0


async def test_compaction_does_not_make_records_without_a_timestamp_younger() -> None:
    machine = compacted_machine(is_limited=True, retention_ms=RETENTION_MS)
    partition = await machine.start()
    for number in range(30):
        partition.leader().append_from_client(
            keyed((f"{number % 3}", f"{number}"), timestamp_ms=-1)
        )
    machine.clock.advance(RETENTION_MS - 1)
    await compact(partition)
    assert await remaining(partition) == 30
    assert await read_all(partition)
    machine.clock.advance(2)
    assert await remaining(partition) == 0


async def test_records_without_a_timestamp_wait_for_the_compaction_lag() -> None:
    """They counted as older than any lag."""
    machine = compacted_machine(min_compaction_lag_ms=RETENTION_MS)
    partition = await machine.start()
    for number in range(30):
        partition.leader().append_from_client(
            keyed((f"{number % 3}", f"{number}"), timestamp_ms=-1)
        )
    partition.log.roll()

    def planned() -> int:
        made = plan(
            partition.log.segments,
            machine.config,
            clean_offset=0,
            stable_offset=partition.log_end_offset,
            now_ms=machine.clock.wall_ms(),
        )
        return len(made.segments)

    assert planned() == 0
    machine.clock.advance(RETENTION_MS)
    assert planned() == len(partition.log.segments) - 1


async def test_a_repair_that_leaves_damage_out_keeps_the_age_of_the_file() -> None:
    machine = Machine(config=LogConfig(retention_ms=RETENTION_MS))
    partition = await machine.start()
    await append(partition, -1)
    path = partition.log.active.path()
    machine.disk.kill()
    machine.disk.damage(path, machine.disk.size(path) // 2)
    machine.clock.advance(RETENTION_MS + 1)
    found = await survey_log(machine.disk, PARTITION_DIRECTORY)
    await repair(machine.disk, found, leaves_out=True, now_ms=machine.clock.wall_ms())
    assert machine.disk.modified_ms(path) == START_MS


async def test_a_timestamp_before_1970_is_stored() -> None:
    """It was refused with INVALID_TIMESTAMP; Kafka stores it."""
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("moon", timestamp_ms=BEFORE_1970))
    await partition.flush()
    ((header, _),) = await read_all(partition)
    assert header.base_timestamp == header.max_timestamp == BEFORE_1970
    partition = await machine.restart_after_kill()
    assert len(await read_all(partition)) == 1


async def test_the_largest_timestamp_of_records_without_one_is_that_of_the_first_record() -> None:
    machine = Machine()
    partition = await machine.start()
    assert await largest(partition.leader()) is None
    await append(partition, -1, count=3)
    assert await largest(partition.leader()) == TimestampOffset(timestamp_ms=-1, offset=0)
    await partition.maintenance.delete_before(2)
    assert await largest(partition.leader()) == TimestampOffset(timestamp_ms=-1, offset=2)
    await append(partition, START_MS, count=2)
    assert await largest(partition.leader()) == TimestampOffset(timestamp_ms=START_MS, offset=3)


async def test_only_timestamps_before_1970_have_no_largest_one() -> None:
    """As in Kafka, whose segments begin to count at -1."""
    machine = Machine()
    partition = await machine.start()
    await append(partition, BEFORE_1970)
    assert await largest(partition.leader()) is None


async def test_a_file_knows_when_it_was_written_last() -> None:
    disk = FakeDisk()
    disk.mkdir("/data")
    disk.wall_ms = lambda: 5
    disk.open("/data/f").append(b"x")
    assert disk.modified_ms("/data/f") == 5
    disk.set_modified_ms("/data/f", 3)
    disk.rename("/data/f", "/data/g")
    assert disk.modified_ms("/data/g") == 3
