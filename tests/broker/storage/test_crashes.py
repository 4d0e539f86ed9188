"""The power goes off before every disk operation of a busy broker: nothing is lost or invented.

The workload does everything that changes files: appends of several producers, committed and aborted
transactions, rolling, checkpoints, retention, deletion of a topic, a clean shutdown and a start. It
runs once for every operation in it. The power goes off at the operation, the disk keeps nothing or
a random part of the unflushed writes, and the log is opened and compared with the written batches.
"""

from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

import pytest

from odradek.broker.partitions.partitions import Partition
from odradek.broker.storage.aborted import AbortedIndex, AbortedTxn
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.index import OffsetIndex, TimeIndex
from odradek.broker.storage.marking import NewMarker
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.tail import KEPT
from odradek.protocol.batch import BatchHeader, iter_batches, read_header
from tests.broker.own_records import append_marker
from tests.broker.storage.samples import (
    PARTITION_DIRECTORY,
    TOPIC,
    Client,
    Machine,
    batch,
    read_all,
)
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

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=1_000_000)
ROLLING = replace(CONFIG, segment_bytes=270)
"""About three batches in a segment."""


@dataclass
class Life(Story):
    deleted_before: int = 0
    """The offset that retention may have reached."""


async def workload(story: Life) -> None:
    machine = story.machine
    partition = await machine.start()
    plain = Client(partition, producer_id=1)
    first, second = (Client(partition, producer_id=n, is_transactional=True) for n in (2, 3))
    other = await machine.partitions.create("other", UUID(int=9), 0, CONFIG)
    other.leader().append_from_client(batch("x"))
    for turn in range(3):
        story.send(plain, "a", "b")
        await story.acknowledge(partition)
        story.send(first, "in a transaction")
        story.send(second, "in another", "twice")
        story.send(plain, "between")
        await story.acknowledge(partition)
        story.end(first, committed=turn != 1)
        story.send(second, "more")
        await story.acknowledge(partition)
        if turn == 1:
            await partition.checkpoint()
        story.end(second, committed=turn == 1)
        await story.acknowledge(partition)
    await machine.partitions.delete("other", [0])
    partition = await machine.restart()
    for client in (plain, first, second):
        client.partition = partition
    story.send(first, "open when the broker stops")
    await story.acknowledge(partition)
    story.deleted_before = partition.log.active.base_offset
    machine.clock.advance(2_000_000)
    await partition.maintenance.enforce_retention()
    story.send(plain, "after retention")
    await story.acknowledge(partition)
    story.end(first, committed=False)
    await story.acknowledge(partition)


async def check(story: Life, partition: Partition) -> list[BatchHeader]:
    """Check that the opened log is a prefix of the written batches, with the matching state."""
    end = partition.log_end_offset
    assert end >= story.acknowledged_offset
    assert partition.high_watermark == end
    assert partition.log_start_offset in {0, story.deleted_before}
    written = [data for data in story.written if read_header(data).base_offset < end]
    found = await read_all(partition, max_bytes=300)
    kept = [data for data in written if read_header(data).base_offset >= partition.log_start_offset]
    assert [data for _, data in found] == kept
    producers, aborted = recompute(written)
    assert by_id(partition.log.producers) == by_id(producers)
    first_open = producers.first_open_offset
    assert partition.last_stable_offset == (end if first_open is None else first_open)
    await check_aborted(partition, aborted)
    return [header for header, _ in found]


async def check_aborted(partition: Partition, aborted: AbortedIndex) -> None:
    start, end = partition.log_start_offset, partition.last_stable_offset
    for from_offset in range(start, end):
        for to_offset in (from_offset + 1, from_offset + 4, end):
            expected = sorted(
                AbortedTxn(entry.producer_id, entry.first_offset)
                for entry in aborted.entries
                if entry.last_offset >= from_offset and entry.first_offset < to_offset
            )
            found = await partition.log.reader.aborted(from_offset, to_offset)
            assert sorted(found) == expected
            assert list(found) == sorted(found, key=lambda transaction: transaction.first_offset)


async def goes_on(story: Life, partition: Partition) -> None:
    """Check that the last batch is recognised as a duplicate, and that new batches are accepted."""
    end = partition.log_end_offset
    producers, _ = recompute(
        [data for data in story.written if read_header(data).base_offset < end]
    )
    for data in story.written:
        header = read_header(data)
        if header.base_offset >= end or header.is_control:
            continue
        entry = producers.entries[header.producer_id]
        if header.base_offset in {known.base_offset for known in entry.batches}:
            again = bytearray(data)
            again[:8] = bytes(8)
            answer = partition.leader().append_from_client(memoryview(again))
            assert answer.is_duplicate
            assert answer.base_offset == header.base_offset
    assert partition.log_end_offset == end
    for producer_id in producers.entries:
        append_marker(
            partition,
            NewMarker(
                producer_id=producer_id,
                producer_epoch=40,
                coordinator_epoch=50,
                committed=True,
            ),
        )
    partition.leader().append_from_client(
        batch("new", producer_id=1, producer_epoch=41, base_sequence=0)
    )
    await partition.leader().wait_committed()
    assert partition.last_stable_offset == partition.log_end_offset
    assert (await read_all(partition))[-1][0].base_offset == end + len(producers.entries)
    await check_files(story.machine, partition)


async def check_files(machine: Machine, partition: Partition) -> None:
    """Check that a clean shutdown leaves exactly the log's files, and that it opens unchanged."""
    disk, segments = machine.disk, list(partition.log.segments)
    end, size_bytes = partition.log_end_offset, partition.log.size_bytes
    await machine.stop()
    names = {"checkpoint"}
    for segment in segments:
        offsets, times, aborted = indexes_of(disk.bytes_of(segment.path()), segment)
        for suffix, expected in (
            (".index", offsets.data),
            (".timeindex", times.data),
            (".txnindex", aborted.encode()),
        ):
            name = segment.path(suffix).rpartition("/")[2]
            if expected or (suffix == ".index" and times.data):
                names.add(name)
                assert disk.bytes_of(segment.path(suffix)) == expected, name
        names.add(segment.path().rpartition("/")[2])
    found = disk.listdir(PARTITION_DIRECTORY)
    snapshots = [name for name in found if name.endswith(".snapshot")]
    assert snapshots[-1] == f"{end:020}.snapshot"
    kept = {name for name in found if name.endswith(KEPT) or f"{KEPT}-" in name}
    assert set(found) - set(snapshots) - kept == names
    reopened = await machine.start()
    assert (reopened.log_end_offset, reopened.log.size_bytes) == (end, size_bytes)
    assert machine.partitions.recovery_summary.startswith(
        "1 partitions after a clean stop, 0.0 MiB"
    )


def indexes_of(data: bytes, segment: Segment) -> tuple[OffsetIndex, TimeIndex, AbortedIndex]:
    """Return the indexes that a segment with these bytes must have."""
    offsets, times = OffsetIndex(segment.base_offset), TimeIndex(segment.base_offset)
    position = since = 0
    largest = (-1, segment.base_offset)
    for header, _ in iter_batches(data):
        if header.max_timestamp > largest[0]:
            largest = (header.max_timestamp, header.last_offset)
        if since > CONFIG.index_interval_bytes:
            offsets.append(header.last_offset, position)
            times.append(*largest)
            since = 0
        since += header.size_bytes
        position += header.size_bytes
    if segment.is_sealed and largest[0] >= 0:
        times.append(*largest)
    assert segment.indexes.aborted is not None
    return offsets, times, segment.indexes.aborted


async def count_operations(config: LogConfig) -> int:
    story = Life(Machine(config=config))
    await workload(story)
    await check(story, story.machine.partitions.get_replica(TOPIC, 0))
    return story.machine.disk.operations


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, ROLLING], ids=["few segments", "many segments"])
@pytest.mark.parametrize("keeping", KEEPING)
@at_every
async def test_a_crash_at_every_operation_loses_and_invents_nothing(
    keeping: str, config: LogConfig, every: int
) -> None:
    for operation in range(KEEPING.index(keeping) % every, await count_operations(config), every):
        story = await told(Life(Machine(config=config)), workload, until=operation)
        crash(story.machine.disk, keeping, operation)
        partition = await story.machine.start()
        await check(story, partition)
        await goes_on(story, partition)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, ROLLING], ids=["few segments", "many segments"])
async def test_what_recovery_shows_to_readers_survives_the_next_crash(config: LogConfig) -> None:
    """The process dies and leaves its writes in the page cache; then the power goes off."""
    for operation in range(await count_operations(config)):
        story = await told(Life(Machine(config=config)), workload, until=operation)
        partition = await story.machine.restart_after_kill()
        story.acknowledged_offset = partition.high_watermark
        await check(story, await story.machine.restart_after_power_loss())


async def test_crashes_while_recovering_lose_and_invent_nothing() -> None:
    """Crash at every operation of the recovery from the first crash (KAFKA-10471)."""
    random = Random(3)
    for first_crash in range(7, await count_operations(CONFIG), 9):
        await crash_again(
            lambda: Life(Machine(config=CONFIG)),
            workload,
            check,
            first_crash=first_crash,
            operations=range(60),
            random=random,
        )


async def test_with_flush_os_what_remains_is_still_the_beginning_of_what_was_written() -> None:
    config = replace(CONFIG, flush=FlushPolicy.OS)
    for operation in range(await count_operations(config)):
        story = await told(Life(Machine(config=config)), workload, until=operation)
        story.machine.disk.crash(Random(operation))
        story.acknowledged_offset = 0  # nothing was flushed, and the power went off
        partition = await story.machine.start()
        if partition.log_start_offset < partition.log_end_offset or story.deleted_before:
            await check(story, partition)  # the names of the first segments must be on disk
