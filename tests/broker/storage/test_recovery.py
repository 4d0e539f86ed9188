"""Opening a log after various changes to its files."""

import errno
from random import Random
from uuid import UUID

import pytest

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedLog
from odradek.broker.storage.end_sum import END_BYTES
from odradek.protocol.batch import set_base_offset
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.replicas import Leader, open_log
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC,
    TOPIC_ID,
    Client,
    Machine,
    batch,
    read_all,
)
from tests.fakes.disk import FakeDisk, until_power_off

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)


async def filled(machine: Machine, count: int = 30) -> Partition:
    """Return a partition with some segments, an aborted transaction in each, all flushed."""
    partition = await machine.start()
    client = Client(partition, producer_id=5, is_transactional=True)
    for number in range(count):
        client.send(f"value {number}")
        if number % 5 == 4:
            client.end(committed=number % 2 == 0)
    await partition.flush()
    return partition


def kept_files(machine: Machine) -> dict[str, bytes]:
    """Return the `.cut` files by name."""
    names = [name for name in machine.disk.listdir(PARTITION_DIRECTORY) if ".cut" in name]
    return {name: machine.disk.bytes_of(f"{PARTITION_DIRECTORY}/{name}") for name in names}


async def contents(partition: Partition) -> tuple[object, ...]:
    end = partition.last_stable_offset
    return (
        partition.log_end_offset,
        end,
        await read_all(partition),
        await partition.log.reader.aborted(0, end),
        [list(entry.batches) for entry in partition.log.producers.entries.values()],
    )


async def test_five_batches_in_flight_are_recognised_after_a_kill() -> None:
    """Redpanda #3038."""
    for with_checkpoint in (False, True):
        machine = Machine()
        partition = await machine.start()
        client = Client(partition)
        made = [client.make(f"{n}", "more") for n in range(5)]
        as_sent = [bytes(sent) for sent in made]
        for sent in made:
            partition.leader().append_from_client(sent)
        await partition.flush()
        if with_checkpoint:
            await partition.checkpoint()
        partition = await machine.restart_after_kill()
        for number, data in enumerate(as_sent):
            answer = partition.leader().append_from_client(memoryview(bytearray(data)))
            assert answer.is_duplicate
            assert answer.base_offset == 2 * number
        assert partition.log_end_offset == 10


async def test_what_is_known_to_be_on_disk_is_not_read_again() -> None:
    machine = Machine()
    partition = await filled(machine, 3000)
    stored_bytes = partition.log.size_bytes
    await partition.checkpoint()
    partition.leader().append_from_client(batch("after the checkpoint"))
    await partition.flush()
    disk = machine.disk
    disk.kill()
    before = disk.read_bytes
    partition = await machine.start()
    bookkeeping = disk.size(f"{PARTITION_DIRECTORY}/checkpoint")
    bookkeeping += sum(
        disk.size(partition.log.active.path(suffix))
        for suffix in (".index", ".timeindex", ".txnindex")
    )
    bookkeeping += END_BYTES // 2
    assert partition.log_end_offset == 3601
    assert disk.read_bytes - before < 2 * bookkeeping + 200 < stored_bytes / 3


async def test_a_torn_tail_is_cut_off_and_appending_goes_on() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("whole"))
    await partition.flush()
    torn = batch("torn")
    set_base_offset(torn, 1, 0)
    for size_bytes in (1, 8, 12, 17, 60, 61, 70):  # the state that a killed broker left
        file = machine.disk.open(partition.log.active.path())
        file.append(torn[:size_bytes])
        partition = await machine.restart_after_kill()
        assert partition.log_end_offset == 1
        assert "bytes cut off" in machine.partitions.recovery_summary
        assert not kept_files(machine)
    partition.leader().append_from_client(batch("next"))
    await partition.flush()
    partition = await machine.restart_after_power_loss()
    assert len(await read_all(partition)) == 2


async def test_bytes_left_behind_by_an_older_tail_are_not_taken_for_batches() -> None:
    """They are whole and their CRC is good, but their offset is not the next one."""
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("one"))
    await partition.flush()
    stale = batch("stale")
    set_base_offset(stale, 7, 0)
    file = machine.disk.open(partition.log.active.path())
    file.append(stale)
    await file.fsync()
    partition = await machine.restart_after_power_loss()
    assert partition.log_end_offset == 1
    assert kept_files(machine) == {f"{1:020}.cut": bytes(stale)}


async def test_a_segment_that_a_crash_left_empty_is_used() -> None:
    """KAFKA-6492."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    base = partition.log.roll().base_offset
    await partition.flush()
    partition = await machine.restart_after_kill()
    assert partition.log.active.base_offset == base
    partition.leader().append_from_client(batch("first in it"))
    await partition.flush()
    partition = await machine.restart()
    assert partition.log_end_offset == base + 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
async def test_a_missing_index_file_is_made_again(suffix: str) -> None:
    """KAFKA-13603: and without .txnindex aborted records would look committed."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    expected = await contents(partition)
    for number in range(len(partition.log.segments)):
        await machine.stop()
        path = partition.log.segments[number].path(suffix)
        if machine.disk.exists(path):
            machine.disk.remove(path)
        partition = await machine.start()
        assert await contents(partition) == expected


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
async def test_a_damaged_index_of_the_active_segment_is_made_again(suffix: str) -> None:
    machine = Machine(config=LogConfig(index_interval_bytes=100))
    partition = await filled(machine)
    expected = await contents(partition)
    await machine.stop()
    machine.disk.damage(partition.log.active.path(suffix), 0)
    partition = await machine.start()
    assert await contents(partition) == expected


async def test_a_damaged_checkpoint_costs_time_and_nothing_else() -> None:
    """KAFKA-16541."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    expected = await contents(partition)
    for position in (0, 5, 50):
        await machine.stop()
        machine.disk.damage(f"{PARTITION_DIRECTORY}/checkpoint", position)
        partition = await machine.start()
        assert await contents(partition) == expected
        assert partition.log_start_offset == 0


@pytest.mark.parametrize("lose_checkpoint", [False, True])
async def test_producers_outlive_their_records_even_without_a_checkpoint(
    lose_checkpoint: bool,
) -> None:
    """KAFKA-7190: a producer must still be known after its records are deleted."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    silent = Client(partition, producer_id=6)
    silent.send("soon deleted")
    while partition.log.segments[-1].base_offset <= 40:
        partition.leader().append_from_client(batch("more"))
    await partition.flush()
    await partition.maintenance.delete_before(partition.log.active.base_offset)
    assert all(header.producer_id != 6 for header, _ in await read_all(partition))
    await machine.stop()
    if lose_checkpoint:
        machine.disk.remove(f"{PARTITION_DIRECTORY}/checkpoint")
    silent.partition = partition = await machine.start()
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(
            batch(producer_id=6, producer_epoch=0, base_sequence=silent.sequence + 1)
        )
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    silent.send("goes on")
    await partition.flush()


async def test_recovery_keeps_the_snapshots_that_it_may_need_once_more() -> None:
    """KAFKA-5829: recovery removed them, and the next recovery did not know idle producers."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    silent = Client(partition, producer_id=6)
    silent.send("soon deleted")
    while partition.log.segments[-1].base_offset <= 40:
        partition.leader().append_from_client(batch("more"))
    await partition.flush()
    await partition.maintenance.delete_before(partition.log.active.base_offset)
    for _ in range(3):
        machine.disk.kill()
        machine.disk.remove(f"{PARTITION_DIRECTORY}/checkpoint")
        partition = await machine.start()
        assert all(header.producer_id != 6 for header, _ in await read_all(partition))
        assert 6 in partition.log.producers.entries


async def test_a_snapshot_from_beyond_the_end_is_removed_for_good() -> None:
    """KAFKA-12520: it would describe other batches once the log has grown to its offset again."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    end = partition.log_end_offset
    for offset in (end + 5, end + 10):
        machine.disk.open(f"{PARTITION_DIRECTORY}/{offset:020}.snapshot").append(b"?")
    await machine.disk.fsync_dir(PARTITION_DIRECTORY)
    await machine.restart_after_kill()
    machine.disk.crash()
    names = machine.disk.listdir(PARTITION_DIRECTORY)
    assert not [name for name in names if name.endswith(".snapshot") and int(name[:20]) > end]


async def test_a_log_that_lost_what_was_on_disk_is_not_opened_until_a_person_says_so() -> None:
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    await partition.checkpoint()
    first, second = (segment.path() for segment in partition.log.segments[:2])
    await machine.stop()
    file = machine.disk.open(second)
    await file.truncate(file.size - 1)
    with pytest.raises(DamagedLog, match="odradek log repair") as lost:
        await machine.start()
    assert str(lost.value).startswith(f"{second} is damaged at byte {file.size}")
    machine.disk.kill()
    machine.disk.remove(second)
    with pytest.raises(DamagedLog, match="missing"):
        await machine.start()
    machine.disk.kill()
    machine.disk.remove(f"{PARTITION_DIRECTORY}/checkpoint")
    with pytest.raises(DamagedLog, match="missing"):
        await machine.start()
    assert machine.disk.exists(first)


async def test_damage_that_a_full_read_finds_below_the_checkpoint_is_not_cut_off() -> None:
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    await machine.stop()
    machine.disk.damage(partition.log.segments[1].path(), 100)
    # so that recovery reads the whole segment
    machine.disk.open(partition.log.segments[0].path()).append(b"\0")
    size_bytes = machine.disk.size(partition.log.segments[1].path())
    with pytest.raises(DamagedLog):
        await machine.start()
    assert machine.disk.size(partition.log.segments[1].path()) == size_bytes


async def test_garbage_at_the_end_of_a_sealed_segment_does_not_hide_what_follows() -> None:
    """An append failed, its truncation failed too, and then the log rolled."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    expected = await contents(partition)
    for stop in (machine.disk.kill, None):
        machine.disk.open(partition.log.segments[0].path()).append(b"half a batch")
        if stop is None:
            await machine.stop()
        else:
            stop()
        partition = await machine.start()
        assert await contents(partition) == expected


async def test_a_full_disk_does_not_keep_a_log_from_being_opened() -> None:
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    machine.disk.capacity_bytes = machine.disk.used_bytes
    partition = await machine.restart_after_kill()
    assert partition.log_end_offset == 36
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(batch("no room"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    machine.disk.capacity_bytes = None
    partition.leader().append_from_client(batch("room"))
    await partition.flush()
    assert partition.log_end_offset == 37


async def test_a_crash_while_opening_is_not_taken_for_a_clean_stop() -> None:
    """KAFKA-10471: the mark of a clean shutdown is removed before anything else."""
    machine = Machine(config=CONFIG)
    await filled(machine)
    await machine.stop()
    assert machine.disk.exists(f"{DIRECTORY}/clean-shutdown")
    partition = await machine.start()
    partition.leader().append_from_client(batch())
    await partition.flush()
    machine.disk.crash()
    assert not machine.disk.exists(f"{DIRECTORY}/clean-shutdown")
    machine.disk.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        await machine.start()
    await machine.restart_after_power_loss()
    assert "after a crash" in machine.partitions.recovery_summary


async def test_a_stop_that_could_not_flush_everything_is_not_a_clean_one() -> None:
    """KAFKA-13315."""
    machine = Machine(config=CONFIG)
    partition = await filled(machine)
    partition.leader().append_from_client(batch())
    machine.disk.fail("fsync", errno.EIO)
    await machine.stop()
    assert not machine.disk.exists(f"{DIRECTORY}/clean-shutdown")


@pytest.mark.slow
async def test_a_power_failure_while_stopping_loses_nothing() -> None:
    for operation in range(100):
        machine = Machine(config=CONFIG)
        partition = await filled(machine)
        end = partition.log_end_offset
        machine.disk.power_off_at(machine.disk.operations + operation)
        with until_power_off():
            await machine.stop()
            return
        partition = await machine.restart_after_power_loss()
        assert partition.log_end_offset == end
    raise AssertionError("stopping takes more operations than that")


async def test_a_topic_of_the_same_name_does_not_find_the_old_ones_records() -> None:
    """The broker died after the topic was deleted and before its files were."""
    machine = Machine()
    await filled(machine)
    machine.disk.kill()
    machine.partitions = Partitions(disk=machine.disk, directory=DIRECTORY, clock=machine.clock)
    await machine.partitions.remove_deleted(TOPIC, TOPIC_ID)
    partition = await machine.partitions.create(TOPIC, UUID(int=8), 0, machine.config)
    assert partition.log_end_offset == 0
    left = [name for name in machine.disk.listdir(DIRECTORY) if name.endswith(".deleted")]
    assert len(left) == 1


async def test_a_leader_epoch_begins_where_the_log_ended_when_it_was_opened() -> None:
    """KAFKA-7415: also if the epoch has no records."""
    machine = Machine()
    partition = await filled(machine)
    end = partition.log_end_offset
    machine.disk.crash()
    partition = await machine.start(leader_epoch=3)
    assert partition.log.epochs.end_offset(0, partition.log_end_offset) == (0, end)
    assert partition.log.epochs.end_offset(3, partition.log_end_offset) == (3, end)
    machine.disk.crash()
    partition = await machine.start(leader_epoch=4)
    partition.leader().append_from_client(batch())
    await partition.flush()
    machine.disk.crash()
    partition = await machine.start(leader_epoch=5)
    assert partition.log.epochs.end_offset(0, partition.log_end_offset) == (0, end)
    assert partition.log.epochs.end_offset(4, partition.log_end_offset) == (4, end + 1)
    assert partition.log.epochs.end_offset(5, partition.log_end_offset) == (5, end + 1)


async def test_opening_a_log_that_was_closed_cleanly_writes_nothing() -> None:
    """A broker may have many logs, and every start has a new leader epoch."""
    machine = Machine(config=CONFIG)
    await filled(machine)
    await machine.stop()
    await machine.start()
    await machine.stop()
    before = machine.disk.operations
    await machine.start(leader_epoch=9)
    mark_and_parent = 3
    assert machine.disk.operations <= before + mark_and_parent


@pytest.mark.slow
async def test_a_name_in_the_page_cache_is_on_disk_before_recovery_removes_what_it_replaces() -> (
    None
):
    """A broker was killed while retention wrote its checkpoint, and then the power failed.

    Recovery had removed segments that the checkpoint on disk still named, and the log was damaged.
    """
    for failed_at in range(1, 12):
        for seed in range(60):
            disk = FakeDisk()
            leader = Leader(await open_log(disk))
            for _ in range(40):
                leader.send()
            log = leader.log
            await log.sync()
            await log.saver.save(log.to_save())
            log.begin_at(log.segments[2].base_offset)
            disk.power_off_at(disk.operations + 4)
            with until_power_off():
                await log.saver.save(log.to_save())
            assert disk.journal[-1].startswith("rename")
            disk.kill()
            disk.power_off_at(disk.operations + failed_at)
            with until_power_off():
                await open_log(disk, same_boot=True)
            disk.crash(Random(seed))
            assert (await open_log(disk)).log_end_offset == 40
