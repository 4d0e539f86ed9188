"""What the scrubber finds in segments that nobody reads."""

import logging

import pytest
import trio
import trio.testing

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.upkeep.scrubber import FIRST_AFTER_SECONDS, Scrubber, ScrubConfig
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.files import SNAPSHOT, file_path
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.keyed import KeyedClient, compact, compacted_machine
from tests.broker.storage.samples import PARTITION_DIRECTORY, Client, Machine
from tests.broker.storage.test_damaged_indexes import INDEXES, machine_with_sealed_segments, middle


def scrubber(machine: Machine, config: ScrubConfig | None = None) -> Scrubber:
    return Scrubber(
        machine.partitions.kept_logs, machine.partitions.on_damage, config or ScrubConfig()
    )


def is_online(partition: Partition) -> bool:
    if partition.log.failure is None:
        return True
    with pytest.raises(KafkaError) as caught:
        partition.leader()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return False


async def test_any_flipped_bit_of_a_sealed_log_takes_the_partition_offline(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It was served, and nobody knew until a reader stumbled over it."""
    machine, partition = await machine_with_sealed_segments()
    path = partition.log.segments[1].path()
    content = machine.disk.bytes_of(path)
    for at in range(0, len(content), 7):
        machine.disk.open(path).write_at(at, bytes([content[at] ^ 1 << at % 8]))
        caplog.clear()
        await scrubber(machine).scrub_all()
        assert not is_online(partition), at
        (line,) = [record.message for record in caplog.records]
        assert f"{path} is damaged at byte" in line
        machine.disk.open(path).write_at(at, content[at : at + 1])
        machine.disk.kill()
        partition = await machine.start()
    caplog.clear()
    await scrubber(machine).scrub_all()
    assert is_online(partition)
    assert caplog.records == []


@pytest.mark.parametrize("suffix", [*INDEXES, SNAPSHOT])
async def test_what_is_damaged_beside_a_log_is_made_again(
    suffix: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    machine, partition = await machine_with_sealed_segments()
    path = middle(partition, suffix)
    content = machine.disk.bytes_of(path)
    for damaged in (bytes(len(content)), content[:-1], content + b"garbage", b""):
        machine.disk.remove(path)
        machine.disk.open(path).append(damaged)
        caplog.clear()
        await scrubber(machine).scrub_all()
        assert [record.message for record in caplog.records] == [
            f"{path} is damaged: rebuilding it from the log"
        ]
        assert is_online(partition)
        assert machine.disk.bytes_of(path) == content
        partition = await machine.restart()


async def test_a_damaged_snapshot_before_the_first_segment_is_removed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It cannot be rebuilt: the records that it describes are deleted."""
    machine, partition = await machine_with_sealed_segments()
    first = partition.log.segments[1].base_offset
    await partition.maintenance.delete_before(first)
    path = file_path(PARTITION_DIRECTORY, first, SNAPSHOT)
    machine.disk.damage(path, 10)
    await scrubber(machine).scrub_all()
    assert not machine.disk.exists(path)
    assert is_online(partition)


async def test_a_compacted_log_with_gaps_is_sound(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition)
    for number in range(20):
        client.send(("a", f"{number}"), (f"b{number % 3}", "1"))
    await partition.flush()
    await compact(partition)
    content = machine.disk.bytes_of(partition.log.segments[0].path())
    assert [header.base_offset for header, _ in iter_batches(content)] != list(range(20))
    await scrubber(machine).scrub_all()
    assert is_online(partition)
    assert caplog.records == []
    machine.disk.damage(partition.log.segments[0].path(), len(content) - 1)
    await scrubber(machine).scrub_all()
    assert not is_online(partition)


async def test_a_batch_larger_than_one_read_is_checked_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine(config=LogConfig(segment_bytes=1 << 22, max_message_bytes=1 << 22))
    partition = await machine.start()
    client = Client(partition)
    client.send("x" * (3 << 20))
    client.send("y" * (1 << 20))
    client.send("z" * (2 << 20))
    await partition.flush()
    assert len(partition.log.segments) > 1
    await scrubber(machine).scrub_all()
    assert is_online(partition)
    machine.disk.damage(partition.log.segments[0].path(), 2 << 20)
    await scrubber(machine).scrub_all()
    assert not is_online(partition)


async def test_it_reads_no_more_in_a_second_than_it_may_and_begins_anew_after_its_interval(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine, partition = await machine_with_sealed_segments()
    sealed_bytes = sum(segment.size_bytes for segment in partition.log.segments[:-1])
    gentle = scrubber(machine, ScrubConfig(interval_ms=5_000_000, bytes_per_second=100))
    before = machine.disk.read_bytes
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gentle.run)
        await trio.sleep(FIRST_AFTER_SECONDS - 1)
        assert machine.disk.read_bytes == before
        began = trio.current_time()
        await trio.sleep(1 + sealed_bytes / 100 + 1)
        one_pass = machine.disk.read_bytes - before
        assert one_pass >= sealed_bytes
        await trio.sleep_until(began + 4999)
        assert machine.disk.read_bytes == before + one_pass
        await trio.sleep(sealed_bytes / 100 + 3)
        assert machine.disk.read_bytes == before + 2 * one_pass
        nursery.cancel_scope.cancel()


async def test_a_segment_that_goes_while_it_is_read_is_no_damage(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    machine, partition = await machine_with_sealed_segments()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber(machine, ScrubConfig(bytes_per_second=1)).scrub_all)
        await trio.sleep(1)
        await partition.maintenance.delete_before(partition.log.active.base_offset)
    assert is_online(partition)
    assert caplog.records == []
