"""What a start asks of the disk for each partition, counted: the same with many as with few."""

from collections import Counter

import pytest

from odradek.broker.cluster.new_topic import WantedTopic
from tests.broker.cluster.test_topic_logs import Node
from tests.fakes.calls import counted
from tests.fakes.disk import FakeDisk

FEW = 10
QUESTIONS = ("listdir", "exists", "open", "pread", "size")


async def killed(partition_count: int, *, are_written: bool, are_closed: bool) -> FakeDisk:
    """Return the disk of a broker that was killed; if its logs are closed each has a checkpoint."""
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=partition_count))
    await node.note_made()
    if are_written:
        for index in range(partition_count):
            await node.append("t", index, b"value")
    if are_closed:
        await node.partitions.close()
    disk.kill()
    return disk


async def asked_by_a_start(partition_count: int, *, are_written: bool) -> Counter[str]:
    """Return the calls of a start behind a kill."""
    disk = await killed(partition_count, are_written=are_written, are_closed=are_written)
    disk.counts.clear()
    started = await Node.start(disk)
    assert len(started.partitions) == partition_count
    assert started.partitions.damaged_partitions() == []
    return Counter(disk.counts)


@pytest.mark.parametrize(
    ("are_written", "each"),
    [
        # `topic.meta`, and twice the size of the log
        (False, {"listdir": 1, "exists": 0, "open": 1, "pread": 1, "size": 2}),
        # the checkpoint, and the end of the log that it vouches for
        (True, {"listdir": 1, "exists": 0, "open": 3, "pread": 3, "size": 3}),
    ],
    ids=["empty", "written"],
)
async def test_a_start_lists_each_log_once_and_opens_what_it_reads(
    are_written: bool, each: dict[str, int]
) -> None:
    few = await asked_by_a_start(FEW, are_written=are_written)
    many = await asked_by_a_start(4 * FEW, are_written=are_written)
    more = {call: many[call] - few[call] for call in QUESTIONS}
    assert more == {call: 3 * FEW * count for call, count in each.items()}


async def calls_of_a_start(partition_count: int, *, are_closed: bool) -> int:
    """Return the function calls of a start on logs with a record each."""
    disk = await killed(partition_count, are_written=True, are_closed=are_closed)
    with counted() as calls:
        await Node.start(disk)
    return calls.count


@pytest.mark.parametrize("are_closed", [True, False], ids=["checkpointed", "never checkpointed"])
async def test_a_start_costs_each_log_the_same_however_many_there_are(are_closed: bool) -> None:
    """Each log that was read looked at all open files, of which a start has up to 256."""
    few = await calls_of_a_start(100, are_closed=are_closed)
    assert await calls_of_a_start(400, are_closed=are_closed) < 4 * few
