"""The power goes off before every disk operation while a log is compacted repeatedly.

Whatever the disk kept, the opened log has the newest committed value of every key at its offset, no
deleted key, every producer with its five batches, and its transactions, and it can be compacted
again. The expected contents are computed from the written batches, without the broker's recovery.
"""

from dataclasses import dataclass, replace
from random import Random

import pytest

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.config import LogConfig
from odradek.protocol.batch import read_header
from odradek.protocol.record import Record, decode_batch
from tests.broker.storage.keyed import CONFIG, KeyedClient, compact, consume, newest
from tests.broker.storage.samples import PARTITION_DIRECTORY, TOPIC, Machine
from tests.broker.storage.stories import (
    KEEPING,
    Story,
    at_every,
    by_id,
    crash,
    crash_again,
    recompute,
    told,
)

MANY_SEGMENTS = replace(CONFIG, segment_bytes=300)


@dataclass
class Life(Story):
    first_operation: int = -1
    """The disk's operation count before the first compaction."""
    anew_operation: int = -1
    """The disk's operation count before compaction started again from the first offset."""


async def workload(story: Life) -> None:
    machine = story.machine
    partition = await machine.start()
    plain = KeyedClient(partition, producer_id=1)
    first, second = (KeyedClient(partition, producer_id=n, is_transactional=True) for n in (2, 3))
    for turn in range(3):
        story.send(plain, ("a", f"{turn}"), ("b", f"{turn}"))
        story.send(first, ("a", "in a transaction"), ("c", f"{turn}"))
        story.send(second, ("d", f"{turn}"), ("b", None))
        await story.acknowledge(partition)
        story.end(first, committed=turn != 1, transaction_version=2 if turn else 0)
        story.send(plain, ("e", f"{turn}"), ("gone", f"{turn}"))
        story.send(plain, ("gone", None if turn else "not yet"))
        await story.acknowledge(partition)
        if turn != 1:  # stays open over a compaction, and over several segments
            story.end(second, committed=turn == 2)
        await story.acknowledge(partition)
        if not turn:
            story.first_operation = machine.disk.operations
        await compact(partition, map_bytes=500 if turn == 1 else 10_000)
        machine.clock.advance(2000)
    story.send(plain, ("a", "the last"))
    await story.acknowledge(partition)
    partition.log.state.clean_offset = 0
    story.anew_operation = machine.disk.operations
    await compact(partition)


def expected(written: list[bytes]) -> dict[str, tuple[int, str]]:
    """Return the newest committed values below the first open transaction."""
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


async def check(story: Life, partition: Partition) -> None:
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


async def goes_on(story: Life, partition: Partition) -> None:
    """Check that the log can be compacted again, finds duplicates, and opens unchanged."""
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
            assert partition.leader().append_from_client(memoryview(again)).is_duplicate
    await check(story, await story.machine.restart())


async def operations(config: LogConfig) -> range:
    """Return the numbers of the disk operations since the first compaction began."""
    story = Life(Machine(config=config))
    await workload(story)
    partition = story.machine.partitions.get_replica(TOPIC, 0)
    await check(story, partition)
    written_count = sum(read_header(data).record_count for data in story.written)
    assert len(await consume(partition)) < written_count / 2
    return range(story.first_operation, story.machine.disk.operations)


async def operations_of_first_passes(config: LogConfig) -> range:
    """Return the same numbers without those of the pass from the first offset."""
    story = Life(Machine(config=config))
    await workload(story)
    return range(story.first_operation, story.anew_operation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keeping", "config"),
    [
        ("nothing", CONFIG),
        ("something", MANY_SEGMENTS),
        ("something else", CONFIG),
        ("all", MANY_SEGMENTS),
    ],
)
@at_every
async def test_a_crash_at_every_operation_of_a_compaction(
    keeping: str, config: LogConfig, every: int
) -> None:
    step = 2 if config is MANY_SEGMENTS else 1  # the second pass has as many again
    for operation in (await operations(config))[KEEPING.index(keeping) % every :: step * every]:
        story = await told(Life(Machine(config=config)), workload, until=operation)
        crash(story.machine.disk, keeping, operation)
        partition = await story.machine.start()
        await check(story, partition)
        await goes_on(story, partition)


@pytest.mark.slow
async def test_a_log_that_is_compacted_no_longer_opens_wherever_a_pass_was_interrupted() -> None:
    """The gaps of a first, interrupted pass were taken for damage."""
    kept = replace(MANY_SEGMENTS, is_compacted=False)
    for operation in (await operations_of_first_passes(MANY_SEGMENTS))[::2]:
        story = await told(Life(Machine(config=MANY_SEGMENTS)), workload, until=operation)
        crash(story.machine.disk, "all", operation)
        story.machine.config = kept
        await check(story, await story.machine.start())


@pytest.mark.slow
@at_every
async def test_crashes_while_a_replacement_is_finished(every: int) -> None:
    """Crash at every third operation of the recovery from the first crash."""
    random = Random(3)
    for first_crash in (await operations(CONFIG))[:: 4 * every]:
        await crash_again(
            lambda: Life(Machine(config=CONFIG)),
            workload,
            check,
            first_crash=first_crash,
            operations=range(first_crash // 4 % 3, 120, 3),
            random=random,
        )
