"""The partitions whose logs have failed or are damaged: found without a look at the others."""

import errno
from uuid import UUID

from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.values.topic_partition import TopicPartition
from tests.fakes.calls import counted
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk


async def some(count: int) -> Partitions:
    partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
    for index in range(count):
        await partitions.open("t", UUID(int=1), index, LogConfig())
    return partitions


def names(partitions: Partitions) -> list[str]:
    return [f"{each.topic}-{each.index}" for each in partitions.troubles.partitions()]


async def test_a_log_that_fails_and_one_that_a_reader_finds_damaged_are_in_trouble() -> None:
    partitions = await some(4)
    assert names(partitions) == []
    partitions.get_replica("t", 2).log.fail(OSError(errno.EIO, "the disk has failed"))
    partitions.get_replica("t", 1).log.reader.note_damage("a batch is damaged")
    assert names(partitions) == ["t-2", "t-1"]
    assert partitions.damaged_partitions() == []  # it is served until it is taken offline
    partitions.get_replica("t", 3).take_offline("a batch is damaged")
    assert partitions.damaged_partitions() == [TopicPartition("t", 3)]


async def test_a_log_that_is_made_anew_is_not_in_the_trouble_of_the_one_before() -> None:
    partitions = await some(2)
    partitions.get_replica("t", 1).take_offline("a batch is damaged")
    await partitions.delete("t", [1])
    assert names(partitions) == []
    await partitions.create("t", UUID(int=2), 1, LogConfig())
    assert names(partitions) == []
    partitions.get_replica("t", 1).take_offline("another batch is damaged")
    assert names(partitions) == ["t-1"]


async def calls_of_a_look(count: int) -> int:
    partitions = await some(count)
    partitions.get_replica("t", 0).take_offline("a batch is damaged")
    with counted() as calls:
        assert partitions.damaged_partitions() == [TopicPartition("t", 0)]
    return calls.count


async def test_to_find_what_is_in_trouble_costs_the_same_among_four_times_as_many() -> None:
    assert await calls_of_a_look(40) == await calls_of_a_look(10)


async def calls_of_the_cleaner(count: int) -> int:
    partitions = await some(count)
    with counted() as calls:
        assert await partitions.cleaner.clean_what_is_due() == 0
    return calls.count


async def test_the_cleaner_passes_over_logs_that_are_not_compacted() -> None:
    assert await calls_of_the_cleaner(40) == await calls_of_the_cleaner(10)
