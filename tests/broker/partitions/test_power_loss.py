"""What a broker that answers before its records are on disk knows after a crash."""

import pytest

from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.damage import DamagedLog, Others
from tests.broker.storage.samples import DIRECTORY, TOPIC, TOPIC_ID, batch
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk


async def start(disk: FakeDisk, flush: FlushPolicy = FlushPolicy.OS) -> Partitions:
    partitions = Partitions(disk=disk, directory=DIRECTORY, clock=FakeClock(), flush=flush)
    await partitions.open(TOPIC, TOPIC_ID, 0, LogConfig(flush=flush))
    await partitions.run_notes.on_all_open()
    return partitions


async def run(disk: FakeDisk, flush: FlushPolicy = FlushPolicy.OS) -> Partitions:
    """Start a broker that has told the others what it may lack."""
    partitions = await start(disk, flush)
    await partitions.run_notes.note_none_relies_on_this()
    return partitions


async def test_after_a_power_failure_a_log_may_lack_records_until_the_others_know() -> None:
    disk = FakeDisk()
    await run(disk)
    disk.crash()
    assert (await start(disk)).run_notes.lacks_records
    disk.kill()
    partitions = await start(disk)
    assert partitions.run_notes.lacks_records
    await partitions.run_notes.note_none_relies_on_this()
    disk.kill()
    assert not (await start(disk)).run_notes.lacks_records


async def test_a_killed_broker_lacks_nothing() -> None:
    disk = FakeDisk()
    await run(disk)
    disk.kill()
    assert not (await start(disk)).run_notes.lacks_records


async def test_a_broker_that_stopped_cleanly_lacks_nothing_after_a_power_failure() -> None:
    disk = FakeDisk()
    await (await run(disk)).close()
    disk.crash()
    assert not (await start(disk)).run_notes.lacks_records


@pytest.mark.parametrize(
    ("flush", "others", "is_damage"),
    [
        (FlushPolicy.ACK, Others.WHOLE, True),
        (FlushPolicy.ACK, Others.REPLICAS, False),
        (FlushPolicy.ACK, Others.NONE, False),
        (FlushPolicy.OS, Others.WHOLE, False),  # it lacks records anyway, and is not elected
    ],
)
async def test_bad_bytes_before_the_last_segment_are_damage_if_another_replica_is_whole(
    flush: FlushPolicy, others: Others, is_damage: bool
) -> None:
    """Otherwise the log ends there: after a power failure any page may be missing."""
    disk = FakeDisk()
    partitions = await run(disk, flush)
    partition = partitions.all()[0]
    partition.leader().append_from_client(batch("a"))
    partition.log.roll()
    partition.leader().append_from_client(batch("b"))
    disk.make_durable()
    disk.damage(f"{partition.log.directory}/00000000000000000000.log", 65)
    disk.crash()
    again = Partitions(disk=disk, directory=DIRECTORY, clock=FakeClock(), flush=flush)
    if is_damage:
        for _ in range(2):
            with pytest.raises(DamagedLog):
                await again.open(TOPIC, TOPIC_ID, 0, LogConfig(flush=flush), others=others)
    else:
        opened = await again.open(TOPIC, TOPIC_ID, 0, LogConfig(flush=flush), others=others)
        assert opened.log_end_offset == 0


async def test_what_is_flushed_before_it_is_answered_is_not_lost_with_the_power() -> None:
    disk = FakeDisk()
    await run(disk, FlushPolicy.ACK)
    disk.crash()
    assert not (await start(disk, FlushPolicy.ACK)).run_notes.lacks_records


async def test_the_setting_of_the_run_that_crashed_counts() -> None:
    disk = FakeDisk()
    await run(disk, FlushPolicy.OS)
    disk.crash()
    assert (await start(disk, FlushPolicy.ACK)).run_notes.lacks_records


async def test_an_empty_directory_lacks_everything() -> None:
    """A broker whose disk was replaced must not lead what others have."""
    assert (await start(FakeDisk(), FlushPolicy.ACK)).run_notes.lacks_records


async def test_a_replica_whose_first_segment_is_gone_is_damaged() -> None:
    """A power failure can take a name and keep a later one. What is left may not be all."""
    disk = FakeDisk()
    partitions = await run(disk)
    partition = partitions.all()[0]
    partition.leader().append_from_client(batch("a"))
    partition.log.roll()
    partition.leader().append_from_client(batch("b"))
    disk.make_durable()
    disk.crash()
    disk.remove(f"{partition.log.directory}/00000000000000000000.log")
    again = Partitions(disk=disk, directory=DIRECTORY, clock=FakeClock(), flush=FlushPolicy.OS)
    config = LogConfig(flush=FlushPolicy.OS)
    for _ in range(2):  # it is not forgotten either
        with pytest.raises(DamagedLog):
            await again.open(TOPIC, TOPIC_ID, 0, config, others=Others.REPLICAS)
    alone = Partitions(disk=disk, directory=DIRECTORY, clock=FakeClock(), flush=FlushPolicy.OS)
    opened = await alone.open(TOPIC, TOPIC_ID, 0, config)
    assert opened.log_start_offset == 1  # as on one node, what is there is served
