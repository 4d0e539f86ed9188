"""What a start asks of the disk for each partition, counted: the same with many as with few."""

from collections import Counter

import pytest

from odradek.broker.cluster.new_topic import WantedTopic
from tests.broker.cluster.test_topic_logs import Node
from tests.fakes.disk import FakeDisk

FEW = 10
QUESTIONS = ("listdir", "exists", "open", "pread", "size")


async def asked_by_a_start(partition_count: int, *, are_written: bool) -> Counter[str]:
    """Return the calls of a start behind a kill."""
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=partition_count))
    await node.note_made()
    if are_written:
        for index in range(partition_count):
            await node.append("t", index, b"value")
        await node.partitions.close()
    disk.kill()
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
