"""What goes on in the background for all partitions."""

from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.values.member_ids import member_id
from tests.broker.partitions.running import running
from tests.broker.storage.samples import DIRECTORY, Client, Machine, batch


async def test_a_checkpoint_is_never_older_than_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine()
    async with running(machine) as partition:
        partition.leader().append_from_client(batch("a"))
        assert partition.log.unsaved_bytes > 0
        await trio.sleep(5)
        assert partition.log.unsaved_bytes == 0
        before = machine.disk.operations
        await trio.sleep(60)
        assert machine.disk.operations == before  # nothing to do, nothing done


async def test_the_first_checkpoint_of_a_log_comes_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A log that was killed before it could be exchanged with another one of its size."""
    machine = Machine()
    async with running(machine) as partition:
        partition.leader().append_from_client(batch("a"))
        await trio.sleep(0.1)
        assert partition.log.unsaved_bytes == 0
        partition.leader().append_from_client(batch("b"))
        await trio.sleep(1)
        assert partition.log.unsaved_bytes > 0
        await trio.sleep(4)
        assert partition.log.unsaved_bytes == 0


async def test_a_checkpoint_comes_at_once_when_much_was_appended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine(config=LogConfig(max_message_bytes=20 << 20))
    async with running(machine) as partition:
        for _ in range(5):
            partition.leader().append_from_client(batch("x" * (4 << 20)))
        await trio.sleep(0.1)
        assert partition.log.unsaved_bytes == 0


async def test_what_is_left_of_deleted_topics_is_removed_at_the_next_start() -> None:
    machine = Machine()
    partition = await machine.start()
    await machine.partitions.delete(partition.topic, [0])
    machine.disk.kill()
    async with running(machine):
        await trio.testing.wait_all_tasks_blocked()
        assert [n for n in machine.disk.listdir(DIRECTORY) if n.endswith(".deleted")] == []


async def test_silent_producers_are_forgotten_and_retention_goes_on_in_the_background(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Redpanda #18198: they would be kept for ever."""
    machine = Machine(config=LogConfig(producer_id_expiration_ms=1000, retention_ms=5000))
    async with running(machine) as partition:
        for number in range(20):
            Client(partition, producer_id=number).send("once")
        assert len(partition.log.producers.entries) == 20
        machine.clock.advance(1001)
        await trio.sleep(601)
        assert not partition.log.producers.entries
        assert partition.log_start_offset == 0
        machine.clock.advance(5000)
        await trio.sleep(601)
        assert partition.log_start_offset == 20


async def test_members_of_groups_are_forgotten_sooner_also_after_a_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = LogConfig(producer_id_expiration_ms=10_000, member_producer_expiration_ms=1000)
    machine = Machine(config=config)
    async with running(machine) as partition:
        for producer_id in (1, member_id(2)):
            Client(partition, producer_id=producer_id).send("once")
    async with running(machine) as partition:
        assert len(partition.log.producers.entries) == 2
        machine.clock.advance(1001)
        await trio.sleep(601)
        assert list(partition.log.producers.entries) == [1]


@pytest.mark.parametrize("config", [LogConfig(retention_ms=5000), LogConfig(retention_bytes=0)])
async def test_retention_takes_what_counts_before_it_is_on_disk(config: LogConfig) -> None:
    """log.flush=os: an assertion failed there, and the broker ended."""
    machine = Machine(config=replace(config, flush=FlushPolicy.OS))
    partition = await machine.start()
    Client(partition).send("old")
    machine.clock.advance(5001)
    await partition.maintenance.enforce_retention()
    partition = await machine.restart_after_power_loss()
    assert partition.log_start_offset == partition.log_end_offset == 1
