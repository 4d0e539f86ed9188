"""Other changes of a log during a pass of compaction, at every moment of the pass."""

from functools import partial

import pytest
import trio

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.upkeep.log_cleaner import LogCleaner
from tests.broker.storage.keyed import (
    CONFIG,
    KeyedClient,
    compact,
    compact_again_and_again,
    compacted_machine,
    consume,
    newest,
)
from tests.broker.storage.samples import DIRECTORY, TOPIC, TOPIC_ID, Machine


async def with_work_to_do(machine: Machine) -> Partition:
    """Return a partition of several segments, all of which can be compacted."""
    partition = await machine.start()
    client = KeyedClient(partition)
    for number in range(12):
        client.send((f"key {number % 5}", f"{number}"))
    await partition.flush()
    partition.log.roll()
    return partition


@pytest.mark.slow
async def test_records_that_are_deleted_meanwhile_stay_deleted() -> None:
    """Records that the pass has read may be deleted before it ends."""
    moment, is_over = 0, False
    while not is_over:
        machine = compacted_machine(segment_bytes=400)
        partition = await with_work_to_do(machine)
        over = trio.Event()

        async def clean() -> None:
            await compact(partition, roll=False)  # noqa: B023
            over.set()  # noqa: B023

        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            is_over = over.is_set()
            await partition.maintenance.delete_before(8)
        assert partition.log_start_offset == 8
        expected = {f"key {number % 5}": (number, f"{number}") for number in range(8, 12)}
        assert newest(await consume(partition)) == expected, moment
        await compact_again_and_again(partition, machine, times=1)
        partition = await machine.restart_after_kill()
        assert newest(await consume(partition)) == expected, moment
        moment += 1
    assert moment > 20


async def test_a_topic_that_is_deleted_meanwhile_ends_the_pass() -> None:
    """After the deletion nothing more is written, and a new topic of the name finds no files."""
    moment, compacted = 0, 0
    while not compacted:
        machine = compacted_machine(segment_bytes=400)
        partition = await with_work_to_do(machine)
        cleaner = LogCleaner(partial(list, [partition.maintenance]))

        async def clean() -> None:
            nonlocal compacted
            compacted = await cleaner.clean_what_is_due()  # noqa: B023

        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            await machine.partitions.delete(TOPIC, [0])
            operations = machine.disk.operations
        assert machine.disk.operations == operations, moment
        assert set(machine.disk.listdir(DIRECTORY)) == {f"{TOPIC_ID.hex}-0.deleted", "last-run"}
        again = await machine.partitions.create(TOPIC, TOPIC_ID, 0, CONFIG)
        assert again.log_end_offset == 0
        moment += 1
    assert moment > 20
