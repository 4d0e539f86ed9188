"""Finding and reading batches: by offset, by timestamp, across segments."""

import tracemalloc
from random import Random
from uuid import UUID

import pytest
import trio

from odradek.broker.partitions.by_time import first_at, largest
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage import scan
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.timestamps import TimestampOffset
from odradek.protocol.batch import Codec, TimestampType, iter_batches, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import decode_batch
from tests.broker.storage.samples import Client, Machine, batch, read_all
from tests.fakes.clock import START_MS

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


async def varied(config: LogConfig = CONFIG) -> tuple[Machine, Partition]:
    """Return batches of one to nine records and very different sizes, in many segments."""
    machine = Machine(config=config)
    partition = await machine.start()
    random = Random(5)
    for number in range(120):
        values = [f"{number}:{'x' * random.randrange(60)}" for _ in range(random.randrange(1, 10))]
        partition.leader().append_from_client(batch(*values, timestamp_ms=START_MS + number))
    await partition.flush()
    return machine, partition


async def test_every_offset_is_found_whatever_is_in_memory() -> None:
    machine, partition = await varied()
    expected = await read_all(partition)
    assert len(partition.log.segments) > 8
    for _ in range(2):
        for header, data in expected:
            for offset in range(header.base_offset, header.next_offset):
                read = await partition.leader().read(offset, 1, read_committed=False)
                assert bytes(read.records) == data
        partition = await machine.restart()


@pytest.mark.parametrize("max_bytes", [1, 100, 500, 1500, 10_000])
async def test_a_read_is_of_whole_batches_and_not_longer_than_wanted_but_for_the_first(
    max_bytes: int,
) -> None:
    _, partition = await varied()
    found = await read_all(partition, max_bytes=max_bytes)
    assert [header.base_offset for header, _ in found] == [
        header.base_offset for header, _ in await read_all(partition)
    ]
    for header, data in found:
        read = await partition.leader().read(header.base_offset, max_bytes, read_committed=False)
        assert len(read.records) <= max(max_bytes, len(data))
        assert sum(len(view) for _, view in iter_batches(read.records)) == len(read.records)
        without = await partition.leader().read(
            header.base_offset, max_bytes, read_committed=False, min_one=False
        )
        assert len(without.records) <= max_bytes
        assert bool(without.records) == (len(data) <= max_bytes)


async def test_a_sequential_reader_gets_most_of_what_it_asked_for() -> None:
    _, partition = await varied(LogConfig(index_interval_bytes=200))
    read = await partition.leader().read(0, 5000, read_committed=False)
    assert 5000 - 2 * 200 - 600 < len(read.records) <= 5000


async def test_a_reader_that_reads_on_needs_no_index_and_no_walk_over_headers() -> None:
    config = LogConfig(index_interval_bytes=200)
    machine, _ = await varied(config)
    partition = await machine.restart()
    expected = await read_all(partition)
    partition = await machine.restart()
    offset, reads_of_the_disk = 0, []
    while offset < partition.log_end_offset:
        before = machine.disk.counts["pread"]
        read = await partition.leader().read(offset, 1000, read_committed=False)
        reads_of_the_disk.append(machine.disk.counts["pread"] - before)
        offset = max(header.next_offset for header, _ in iter_batches(read.records))
    assert len(reads_of_the_disk) > 8
    assert set(reads_of_the_disk[1:]) == {1}
    # What it has left behind leads nobody else astray.
    for header, data in expected:
        for offset in range(header.base_offset, header.next_offset):
            read = await partition.leader().read(offset, 1, read_committed=False)
            assert bytes(read.records) == data


async def test_offsets_outside_of_the_log_are_out_of_range_and_its_end_is_empty() -> None:
    _, partition = await varied()
    end = partition.log_end_offset
    assert (await partition.leader().read(end, 100, read_committed=False)).records == b""
    for offset in (-1, end + 1):
        with pytest.raises(KafkaError) as caught:
            await partition.leader().read(offset, 100, read_committed=False)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_all_batches_are_there_for_a_coordinator_to_load() -> None:
    _, partition = await varied()
    expected = [header for header, _ in await read_all(partition)]
    leader = partition.leader()
    loaded = [header async for run in leader.runs() for header, _ in iter_batches(run)]
    assert loaded == expected
    later = leader.runs(expected[40].last_offset)
    assert [header async for run in later for header, _ in iter_batches(run)] == expected[40:]


async def test_a_segment_rolls_by_size_by_time_and_when_its_index_is_full() -> None:
    machine = Machine(config=LogConfig(segment_bytes=300, segment_ms=1000))
    partition = await machine.start()
    for _ in range(8):
        partition.leader().append_from_client(batch())
    sizes = [segment.size_bytes for segment in partition.log.segments]
    assert all(200 < size <= 300 for size in sizes[:-1])
    count = len(sizes)
    partition.leader().append_from_client(batch(timestamp_ms=START_MS + 1001))
    assert len(partition.log.segments) == count + 1
    partition.leader().append_from_client(batch(timestamp_ms=START_MS + 2001))
    assert len(partition.log.segments) == count + 1
    partition.leader().append_from_client(batch(timestamp_ms=START_MS + 2002))
    assert len(partition.log.segments) == count + 2

    machine = Machine(config=LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    partition = await machine.start()
    for _ in range(9):
        partition.leader().append_from_client(batch())
    assert [segment.base_offset for segment in partition.log.segments] == [0, 4, 8]


async def test_an_idle_segment_rolls_when_its_time_has_come() -> None:
    machine = Machine(config=LogConfig(segment_ms=1000, retention_ms=-1))
    partition = await machine.start()
    partition.leader().append_from_client(batch())
    await partition.flush()
    machine.clock.advance(1000)
    await partition.maintenance.enforce_retention()
    assert len(partition.log.segments) == 1
    machine.clock.advance(1)
    await partition.maintenance.enforce_retention()
    await partition.maintenance.enforce_retention()  # the new segment is empty and stays
    assert [segment.base_offset for segment in partition.log.segments] == [0, 1]


# Timestamps


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_the_first_record_at_or_after_a_time_is_found(codec: Codec) -> None:
    machine = Machine(config=LogConfig(segment_bytes=600, index_interval_bytes=100))
    partition = await machine.start()
    times = [5, 5, 9, 3, 12, 11, 12, 20, 1, 30] * 6
    for number, time in enumerate(times):
        later = START_MS + time + 100 * (number // 10)
        partition.leader().append_from_client(batch("a", "b", timestamp_ms=later, codec=codec))
    await partition.flush()
    records = [record for _, data in await read_all(partition) for record in decode_batch(data)]
    for _ in range(2):
        for wanted in range(START_MS - 2, START_MS + 540):
            expected = next(
                (
                    TimestampOffset(timestamp_ms=record.timestamp_ms, offset=record.offset)
                    for record in records
                    if record.timestamp_ms >= wanted
                ),
                None,
            )
            assert await first_at(partition.leader(), wanted) == expected
        newest = max(record.timestamp_ms for record in records)
        first_newest = next(record for record in records if record.timestamp_ms == newest)
        found = await largest(partition.leader())
        assert found == TimestampOffset(timestamp_ms=newest, offset=first_newest.offset)
        partition = await machine.restart()


async def test_a_time_in_an_open_transaction_is_not_found_by_a_committed_reader() -> None:
    """KAFKA-5522."""
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch(timestamp_ms=START_MS))
    client = Client(partition, is_transactional=True)
    client.send("in a transaction")
    await partition.flush()
    later = START_MS - 10
    assert await first_at(partition.leader(), later, read_committed=True) is not None
    partition.leader().append_from_client(batch(timestamp_ms=START_MS + 50))
    await partition.flush()
    assert await first_at(partition.leader(), START_MS + 50, read_committed=True) is None
    found = await largest(partition.leader(), read_committed=True)
    assert found == TimestampOffset(timestamp_ms=START_MS, offset=0)
    assert await first_at(partition.leader(), START_MS + 50) is not None


async def test_a_time_is_found_behind_what_is_thrown_away_meanwhile() -> None:
    """The error was OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR."""
    moment, is_over = 0, False
    while not is_over:
        machine = Machine(config=LogConfig(segment_bytes=300, index_interval_bytes=1))
        partition = await machine.start()
        for number in range(24):
            partition.leader().append_from_client(batch(timestamp_ms=START_MS + number % 23))
        await partition.flush()
        partition = await machine.restart()  # the indexes are only in their files
        found: list[TimestampOffset | None] = []

        async def look_up() -> None:
            found.append(await first_at(partition.leader(), START_MS + 1))  # noqa: B023
            found.append(await largest(partition.leader()))  # noqa: B023

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look_up)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            is_over = len(found) == 2
            await partition.maintenance.delete_before(20)
        either = [TimestampOffset(timestamp_ms=START_MS + at, offset=at) for at in (1, 20)]
        assert found[0] in either, moment
        assert found[1] == TimestampOffset(timestamp_ms=START_MS + 22, offset=22), moment
        moment += 1
    assert moment > 2


async def test_nothing_has_a_time_in_an_empty_log() -> None:
    partition = await Machine().start()
    assert await first_at(partition.leader(), 0) is None
    assert await largest(partition.leader()) is None


async def test_the_brokers_time_replaces_the_clients() -> None:
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    machine = Machine(config=config)
    partition = await machine.start()
    machine.clock.advance(7)
    appended = partition.leader().append_from_client(batch("a", "b", timestamp_ms=5))
    assert appended.log_append_time_ms == START_MS + 7
    await partition.flush()
    ((header, data),) = await read_all(partition)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == START_MS + 7
    assert {record.timestamp_ms for record in decode_batch(data)} == {START_MS + 7}
    found = await first_at(partition.leader(), START_MS)
    assert found == TimestampOffset(timestamp_ms=START_MS + 7, offset=0)
    assert read_header(data) == header


# Deletion


async def test_old_segments_go_by_time() -> None:
    machine = Machine(config=LogConfig(segment_bytes=300, retention_ms=100))
    partition = await machine.start()
    for number in range(12):
        partition.leader().append_from_client(batch(timestamp_ms=START_MS + 10 * number))
    await partition.flush()
    bases = [segment.base_offset for segment in partition.log.segments]
    machine.clock.advance(155)
    await partition.maintenance.enforce_retention()
    kept = [segment.base_offset for segment in partition.log.segments]
    # the newest record of an expired segment is older than START + 55: offset 5 at most
    assert kept == [base for base in bases if base >= 6 - 6 % 4]
    assert partition.log_start_offset == kept[0]
    files = machine.disk.listdir("/data/departures-0")
    assert [int(name[:20]) for name in files if name.endswith(".log")] == kept
    partition = await machine.restart_after_power_loss()
    assert partition.log_start_offset == kept[0]
    with pytest.raises(KafkaError) as caught:
        await partition.leader().read(kept[0] - 1, 100, read_committed=False)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_everything_goes_once_it_is_old_and_offsets_go_on() -> None:
    machine = Machine(config=LogConfig(retention_ms=100))
    partition = await machine.start()
    for _ in range(3):
        partition.leader().append_from_client(batch())
    await partition.flush()
    machine.clock.advance(101)
    await partition.maintenance.enforce_retention()
    assert (partition.log_start_offset, partition.log_end_offset) == (3, 3)
    assert (
        partition.leader().append_from_client(batch(timestamp_ms=machine.clock.now_ms)).base_offset
        == 3
    )
    await partition.flush()
    partition = await machine.restart_after_power_loss()
    assert (partition.log_start_offset, partition.log_end_offset) == (3, 4)


async def test_old_segments_go_by_size() -> None:
    machine = Machine(config=LogConfig(segment_bytes=300, retention_ms=-1, retention_bytes=700))
    partition = await machine.start()
    for _ in range(20):
        partition.leader().append_from_client(batch())
    await partition.flush()
    await partition.maintenance.enforce_retention()
    assert 700 <= partition.log.size_bytes <= 1000


async def test_nothing_is_thrown_away_that_a_committed_reader_has_not_been_allowed_to_see() -> None:
    """KAFKA-5634: retention must not pass the last stable offset."""
    machine = Machine(config=LogConfig(segment_bytes=300, retention_ms=100, retention_bytes=0))
    partition = await machine.start()
    for _ in range(4):
        partition.leader().append_from_client(batch())
    client = Client(partition, is_transactional=True)
    client.send("keeps all that follows")
    for _ in range(12):
        partition.leader().append_from_client(batch())
    await partition.flush()
    machine.clock.advance(1000)
    await partition.maintenance.enforce_retention()
    assert 0 < partition.log_start_offset <= partition.last_stable_offset == 4
    client.end(committed=True)
    await partition.flush()
    await partition.maintenance.enforce_retention()
    assert partition.log_start_offset >= 16


async def test_state_topics_are_never_thrown_away() -> None:
    machine = Machine(config=LogConfig(segment_bytes=300, retention_ms=1, retention_bytes=0))
    await machine.start()
    state = await machine.partitions.create("__transaction_state", UUID(int=3), 0, machine.config)
    for _ in range(12):
        state.leader().append_from_client(batch())
    await state.flush()
    machine.clock.advance(10**10)
    await state.maintenance.enforce_retention()
    assert state.log_start_offset == 0


async def test_a_reader_in_a_segment_that_is_thrown_away_is_out_of_range() -> None:
    machine = Machine(config=LogConfig(segment_bytes=300))
    partition = await machine.start()
    for _ in range(12):
        partition.leader().append_from_client(batch())
    await partition.flush()
    reader = scan.batches(partition.log, 0, partition.log_end_offset)
    first, _ = await anext(reader)
    assert first.base_offset == 0
    await partition.maintenance.delete_before(9)
    with pytest.raises(KafkaError) as caught:
        async for _ in reader:
            pass
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log_start_offset == 9
    assert (await read_all(partition))[0][0].base_offset <= 9


async def test_a_sealed_segment_takes_little_memory() -> None:
    """Each kept the positions of its last batches, 18 KB, as long as the broker ran."""
    machine = Machine(config=LogConfig(segment_bytes=10_000))
    partition = await machine.start()
    tracemalloc.start()
    try:
        while len(partition.log.segments) < 60:
            partition.leader().append_from_client(batch())
        await partition.checkpoint()
        ours = [tracemalloc.Filter(inclusive=True, filename_pattern="*/broker/storage/*")]
        found = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in found) < 60 * 4096
