"""What a broker notes of the logs of a topic does not count for another topic of its name."""

from uuid import UUID

import trio
import trio.testing

from odradek.broker.storage.last_run import read_last_run
from odradek.broker.values.topic_partition import TopicPartition
from tests.broker.storage.samples import DIRECTORY, TOPIC, Machine

OTHER = UUID(int=99)


async def test_a_log_made_anew_is_not_suspected_for_the_damaged_one_of_its_name() -> None:
    """At the next start it was judged as strictly: what a power failure tears was damage."""
    machine = Machine()
    partition = await machine.start()
    await machine.partitions.take_offline(partition, "a bad batch")
    assert (await read_last_run(machine.disk, DIRECTORY)).damaged == {f"{TOPIC}-0"}
    await machine.partitions.delete(TOPIC, [0])
    await machine.partitions.create(TOPIC, OTHER, 0, machine.config)
    machine.disk.kill()
    assert (await read_last_run(machine.disk, DIRECTORY)).damaged == set()


async def test_what_is_noted_of_two_logs_at_once_is_on_disk_and_goes_with_each_of_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The two writes took each other's file away, and the broker took the older one for noted."""
    machine = Machine()
    first = await machine.start()
    second = await machine.partitions.create("second", OTHER, 0, machine.config)
    machine.disk.delay_s = lambda call: 1.0 if call == "fsync" else 0.0
    async with trio.open_nursery() as nursery:
        for partition in (first, second):
            nursery.start_soon(machine.partitions.take_offline, partition, "a bad batch")
            await trio.sleep(0.5)
    noted = (await read_last_run(machine.disk, DIRECTORY)).damaged
    assert noted == {f"{TOPIC}-0", "second-0"}
    for partition in (second, first):
        await machine.partitions.delete(partition.topic, [0])
        noted -= {f"{partition.topic}-0"}
        assert (await read_last_run(machine.disk, DIRECTORY)).damaged == noted


async def test_a_log_made_anew_lacks_nothing_that_the_one_before_lacked() -> None:
    machine = Machine()
    await machine.start()
    where = TopicPartition(TOPIC, 0)
    machine.partitions.run_notes.missing.add(where)
    await machine.partitions.delete(TOPIC, [0])
    assert not machine.partitions.is_offline(TOPIC, 0)
    await machine.partitions.create(TOPIC, OTHER, 0, machine.config)
    assert where not in machine.partitions.run_notes.missing
    assert machine.partitions.topic_id_of(where) == OTHER
