"""The file `topic.meta` of a log that is open when the settings of its topic change."""

import errno
import logging
from uuid import UUID

import pytest
import trio

from odradek.broker.partitions.upkeep.identities import RETRY_SECONDS
from odradek.broker.storage.identity import IDENTITY, Identity, read_identity
from odradek.broker.values.topic_partition import TopicPartition
from tests.broker.partitions.running import running
from tests.broker.storage.samples import DIRECTORY, Client, Machine

PLACE = f"{DIRECTORY}/departures-0"


def identity(retention_ms: int) -> Identity:
    return Identity(
        where=TopicPartition("departures", 0),
        topic_id=UUID(int=1),
        partition_count=1,
        configs={"retention.ms": str(retention_ms)},
        cluster_id="the-cluster",
    )


async def test_the_newest_settings_are_on_disk_although_they_change_while_they_are_written(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine()
    async with running(machine) as partition:
        for number in (1, 2):
            machine.partitions.identities.keep(partition.log, identity(number))
            await trio.lowlevel.checkpoint()
        machine.partitions.identities.keep(partition.log, identity(1))
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
    machine.disk.crash()
    assert await read_identity(machine.disk, PLACE) == identity(1)


async def test_a_full_disk_keeps_the_settings_from_the_file_until_there_is_room(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    with caplog.at_level(logging.WARNING, logger="odradek.broker.partitions.upkeep.identities"):
        async with running(machine) as partition:
            for _ in range(3):
                machine.disk.fail("append", errno.ENOSPC, path_end=f"{IDENTITY}.tmp")
            machine.partitions.identities.keep(partition.log, identity(1))
            await trio.sleep(RETRY_SECONDS / 2)
            Client(partition).send("the broker goes on")
            assert await read_identity(machine.disk, PLACE) is None
            await trio.sleep(5 * RETRY_SECONDS)
    (line,) = [record.message for record in caplog.records if record.name.endswith("identities")]
    assert line.startswith("departures-0: its file topic.meta cannot be written: ")
    assert await read_identity(machine.disk, PLACE) == identity(1)


async def test_nothing_is_written_for_a_deleted_log(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    async with running(machine) as partition:
        machine.partitions.identities.keep(partition.log, identity(1))
        await machine.partitions.delete("departures", [0])
        await trio.sleep(5 * RETRY_SECONDS)
    assert "cannot be written" not in caplog.text
    assert not machine.disk.exists(PLACE)
