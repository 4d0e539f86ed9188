"""Power goes off before every single operation while a log is compacted again and again.

Whatever the disk kept, the log that is opened has the newest committed value of every key at its
own offset, no deleted one, every producer with its window of batches, and its transactions; and it
can be compacted again. What it must say is computed from what was written, without our recovery.
"""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from odradek.broker.partition import Partition
from odradek.broker.storage.config import LogConfig
from odradek.protocol.batch import iter_batches, read_header
from odradek.protocol.record import Record, decode_batch
from tests.fakes.disk import PowerOff, until_power_off
from tests.storage.keyed import CONFIG, KeyedClient, Pair, compact, consume, newest
from tests.storage.samples import PARTITION_DIRECTORY, TOPIC, Machine
from tests.storage.test_crashes import by_id, recompute

MANY_SEGMENTS = replace(CONFIG, segment_bytes=300)


@dataclass
class Story:
    machine: Machine
    written: list[bytes] = field(default_factory=list)
    acknowledged_offset: int = 0
    first_operation: int = -1
    """Of the disk, when there was something to compact for the first time."""

    async def acknowledge(self, partition: Partition) -> None:
        end = partition.log_end_offset
        await partition.flushed(end)
        self.acknowledged_offset = end


@dataclass
class Writer:
    """Producers that tell the story what they have written."""

    story: Story
    partition: Partition

    def __post_init__(self) -> None:
        self.plain = KeyedClient(self.partition, producer_id=1)
        self.first = KeyedClient(self.partition, producer_id=2, is_transactional=True)
        self.second = KeyedClient(self.partition, producer_id=3, is_transactional=True)

    def send(self, client: KeyedClient, *pairs: Pair) -> None:
        client.send(*pairs)
        self._tell()

    def end(self, client: KeyedClient, *, committed: bool, transaction_version: int = 2) -> None:
        client.end(committed=committed, transaction_version=transaction_version)
        self._tell()

    def _tell(self) -> None:
        data = self.story.machine.disk.bytes_of(self.partition.log.active.path())
        *_, (_, last) = iter_batches(data)
        self.story.written.append(bytes(last))


async def workload(story: Story) -> None:
    machine = story.machine
    partition = await machine.start()
    writer = Writer(story, partition)
    plain, first, second = writer.plain, writer.first, writer.second
    for turn in range(3):
        writer.send(plain, ("a", f"{turn}"), ("b", f"{turn}"))
        writer.send(first, ("a", "in a transaction"), ("c", f"{turn}"))
        writer.send(second, ("d", f"{turn}"), ("b", None))
        await story.acknowledge(partition)
        writer.end(first, committed=turn != 1, transaction_version=2 if turn else 0)
        writer.send(plain, ("e", f"{turn}"), ("gone", f"{turn}"))
        writer.send(plain, ("gone", None if turn else "not yet"))
        await story.acknowledge(partition)
        if turn != 1:  # it stays open over a compaction, and over several segments
            writer.end(second, committed=turn == 2)
        await story.acknowledge(partition)
        if not turn:
            story.first_operation = machine.disk.operations
        await compact(partition, map_bytes=500 if turn == 1 else 10_000)
        machine.clock.advance(2000)
    writer.send(plain, ("a", "the last"))
    await story.acknowledge(partition)
    partition.log.clean_offset = 0
    await compact(partition)


def expected(written: list[bytes]) -> dict[str, tuple[int, str]]:
    """The newest committed values, and what is not in a transaction, below the first open one."""
    producers, aborted = recompute(written)
    end = producers.first_open_offset
    records: list[Record] = []
    for data in written:
        header = read_header(data)
        if header.is_control or (end is not None and header.base_offset >= end):
            continue
        is_aborted = header.is_transactional and any(
            entry.producer_id == header.producer_id
            and entry.first_offset <= header.base_offset < entry.last_offset
            for entry in aborted.entries
        )
        if not is_aborted:
            records += decode_batch(data)
    return newest(records)


async def check(story: Story, partition: Partition) -> None:
    end = partition.log_end_offset
    assert end >= story.acknowledged_offset
    written = [data for data in story.written if read_header(data).base_offset < end]
    assert newest(await consume(partition, max_bytes=200)) == expected(written)
    assert newest(await consume(partition)) == expected(written)
    producers, _ = recompute(written)
    assert by_id(partition.log.producers) == by_id(producers)
    first_open = producers.first_open_offset
    assert partition.last_stable_offset == (end if first_open is None else first_open)
    names = story.machine.disk.listdir(PARTITION_DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".tmp"))]


async def goes_on(story: Story, partition: Partition) -> None:
    """It is compacted once more, what was sent last is recognised, and it opens as it was."""
    await compact(partition)
    await check(story, partition)
    for data in story.written:
        header = read_header(data)
        entry = partition.log.producers.entries.get(header.producer_id)
        if entry is None or header.is_control or header.next_offset > partition.log_end_offset:
            continue
        if header.last_offset in {batch.last_offset for batch in entry.batches}:
            again = bytearray(data)
            again[:8] = bytes(8)
            assert partition.append_from_client(memoryview(again)).is_duplicate
    await check(story, await story.machine.restart())


async def operations(config: LogConfig) -> range:
    """The numbers of the disk's operations since the first compaction began."""
    story = Story(Machine(config=config))
    await workload(story)
    partition = story.machine.partitions.get(TOPIC, 0)
    await check(story, partition)
    written_count = sum(read_header(data).record_count for data in story.written)
    assert len(await consume(partition)) < written_count / 2
    return range(story.first_operation, story.machine.disk.operations)


@pytest.mark.parametrize(
    ("keeping", "config"),
    [
        ("nothing", CONFIG),
        ("something", MANY_SEGMENTS),
        ("something else", CONFIG),
        ("all", MANY_SEGMENTS),
    ],
)
async def test_a_crash_at_every_operation_of_a_compaction(keeping: str, config: LogConfig) -> None:
    step = 2 if config is MANY_SEGMENTS else 1  # it has as many again
    for operation in (await operations(config))[::step]:
        story = Story(Machine(config=config))
        disk = story.machine.disk
        disk.power_off_at(operation)
        with until_power_off():
            await workload(story)
        if keeping == "all":
            disk.kill()
        else:
            seed = f"{keeping} {operation}"
            disk.crash(None if keeping == "nothing" else Random(seed))
        partition = await story.machine.start()
        await check(story, partition)
        await goes_on(story, partition)


async def test_crashes_while_a_replacement_is_finished() -> None:
    """The second crash comes at every third operation of the recovery from the first."""
    random = Random(3)
    for first_crash in (await operations(CONFIG))[::4]:
        for operation in range(first_crash // 4 % 3, 120, 3):
            story = Story(Machine(config=CONFIG))
            disk = story.machine.disk
            disk.power_off_at(first_crash)
            with until_power_off():
                await workload(story)
            disk.crash(Random(first_crash))
            disk.power_off_at(disk.operations + operation)
            try:
                await story.machine.start()
            except PowerOff:
                disk.crash(random)
                await check(story, await story.machine.start())
            else:
                break
        else:
            raise AssertionError("recovery has more operations than that")
