"""The records of a log that has failed, or that cannot be opened: the journal keeps them."""

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.inspect.repair import repair, restore_from_journal, survey_log
from odradek.broker.partitions.partitions import Partition
from odradek.broker.storage.damage import DamagedLog
from odradek.broker.storage.journal_file import (
    RecordKind,
)
from odradek.protocol.errors import KafkaError
from tests.broker.storage.journaled import (
    CONFIG,
    LOG_FILE,
    OTHER_ID,
    begun,
    checkpoint_of,
    cuts,
    identified,
    journal_of,
    journaled,
    kernel_writes,
    values,
)
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC_ID,
    Machine,
    batch,
)
from tests.fakes.disk import FakeDisk


async def test_the_journal_is_kept_if_a_log_that_it_vouches_for_cannot_be_opened() -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("a"))
    await partition.leader().wait_committed()
    machine.disk.crash()
    machine.disk.fail("open", errno.EACCES, path_end="checkpoint")
    with pytest.raises(OSError, match="denied") as raised:
        await machine.start()
    machine.partitions.keep_offline(partition.topic, TOPIC_ID, 0, raised.value)
    await machine.partitions.run_notes.on_all_open()
    assert any(name.endswith(".kept") for name in machine.disk.listdir(DIRECTORY))
    await machine.restart_after_power_loss()
    assert cuts(machine) == []


async def test_a_kept_file_is_removed_when_its_logs_were_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("acknowledged"))
    await partition.leader().wait_committed()
    machine.disk.crash()
    for _ in range(3):  # starts at which it cannot be opened
        machine.disk.fail("open", errno.EACCES, path_end="checkpoint")
        with pytest.raises(OSError, match="denied") as raised:
            await machine.start()
        machine.partitions.keep_offline(partition.topic, TOPIC_ID, 0, raised.value)
        await machine.partitions.run_notes.on_all_open()
        assert any(name.endswith(".kept") for name in machine.disk.listdir(DIRECTORY))
        machine.disk.kill()
    assert f"`odradek log repair {DIRECTORY}`" in caplog.text
    assert await values(await machine.start()) == [0, 1]
    assert _names(machine.disk.listdir(DIRECTORY)) == ["journal-a", "journal-b"]
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def test_a_log_that_gets_the_name_of_one_that_could_not_be_opened_keeps_its_records() -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("of the deleted topic"))
    await partition.leader().wait_committed()
    machine.disk.crash()
    machine.disk.fail("open", errno.EACCES, path_end="checkpoint")
    with pytest.raises(OSError, match="denied") as raised:
        await machine.start()
    machine.partitions.keep_offline(partition.topic, TOPIC_ID, 0, raised.value)
    await machine.partitions.run_notes.on_all_open()
    await machine.partitions.delete(partition.topic, [0])
    anew = await machine.partitions.create(partition.topic, OTHER_ID, 0, CONFIG)
    for value in ("first", "second"):
        anew.leader().append_from_client(batch(value))
        await anew.leader().wait_committed()
        if value == "first":
            await anew.checkpoint()
    machine.disk.kill()
    assert await values(await machine.start(topic_id=OTHER_ID)) == [0, 1]
    assert _names(machine.disk.listdir(DIRECTORY)) == ["journal-a", "journal-b"]


async def test_the_journal_of_a_killed_broker_is_on_disk_when_a_log_is_opened() -> None:
    """A log that can be opened may have a marker that follows a decision of one that cannot."""
    machine = journaled()
    partition = await begun(machine)
    machine.disk.fsync_gate = trio.Event()
    partition.leader().append_from_client(batch("in the page cache only"))
    machine.disk.kill()
    machine.disk.fail("open", errno.EACCES, path_end="checkpoint")
    with pytest.raises(OSError, match="denied") as raised:
        await machine.start()
    machine.partitions.keep_offline(partition.topic, TOPIC_ID, 0, raised.value)
    await machine.partitions.run_notes.on_all_open()
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def with_more_than_was_acknowledged(machine: Machine) -> Partition:
    """Acknowledge a record, and let the kernel write another one, which the journal lacks."""
    partition = await begun(machine)
    partition.leader().append_from_client(batch("acknowledged"))
    await partition.leader().wait_committed()
    await identified(machine)
    machine.disk.fsync_gate = trio.Event()
    partition.leader().append_from_client(batch("not acknowledged"))
    kernel_writes(machine.disk, LOG_FILE)
    return partition


def spoil_checkpoint(disk: FakeDisk) -> None:
    disk.damage(f"{PARTITION_DIRECTORY}/checkpoint", 5)


async def test_a_log_whose_checkpoint_cannot_be_read_is_offline_after_a_power_failure() -> None:
    """What the disk has behind the acknowledged records may be a marker without its decision."""
    machine = journaled()
    partition = await with_more_than_was_acknowledged(machine)
    machine.disk.crash()
    spoil_checkpoint(machine.disk)
    before = machine.disk.bytes_of(LOG_FILE)
    with pytest.raises(DamagedLog, match="it cannot be read") as raised:
        await machine.start()
    machine.partitions.keep_offline(partition.topic, TOPIC_ID, 0, raised.value)
    await machine.partitions.run_notes.on_all_open()
    machine.disk.kill()
    with pytest.raises(DamagedLog, match="it cannot be read"):
        await machine.start()
    assert machine.disk.bytes_of(LOG_FILE) == before
    machine.disk.kill()
    (kept,) = await restore_from_journal(machine.disk, PARTITION_DIRECTORY)
    assert kept.endswith(f"{2:020}.cut")
    found = await survey_log(machine.disk, PARTITION_DIRECTORY)
    assert found.is_damaged
    await repair(machine.disk, found, leaves_out=False, now_ms=0)
    assert await values(await machine.start()) == [0, 1]
    assert await values(await machine.restart_after_power_loss()) == [0, 1]
    assert _names(machine.disk.listdir(DIRECTORY)) == ["journal-a", "journal-b"]


async def test_a_log_whose_checkpoint_cannot_be_read_is_read_completely_after_a_kill() -> None:
    machine = journaled()
    await with_more_than_was_acknowledged(machine)
    machine.disk.kill()
    spoil_checkpoint(machine.disk)
    assert await values(await machine.start()) == [0, 1, 2]


async def test_without_a_checkpoint_repair_writes_over_no_compacted_segment() -> None:
    """The journal still has records of what was in its place, and of a segment that is gone."""
    machine = journaled(replace(CONFIG, segment_bytes=120))
    partition = await begun(machine)
    for number in range(4):
        partition.leader().append_from_client(batch(f"{number}" * 40))
        await partition.leader().wait_committed()
        await partition.checkpoint()
    names = [segment.path() for segment in partition.log.segments]
    assert len(names) > 2
    journal = journal_of(machine)
    for segment in partition.log.segments[:-1]:
        journal.add(
            None,
            (TOPIC_ID.bytes, 0),
            RecordKind.DATA,
            segment.base_offset,
            segment.next_offset,
            segment_base=segment.base_offset,
            position=0,
            data=b"what compaction has removed",
        )
    journal.end_turn()
    await trio.testing.wait_all_tasks_blocked()
    await identified(machine)
    machine.disk.crash()
    spoil_checkpoint(machine.disk)
    before = [machine.disk.bytes_of(name) for name in names]
    await restore_from_journal(machine.disk, PARTITION_DIRECTORY)
    assert [machine.disk.bytes_of(name) for name in names[:-1]] == before[:-1]


def _names(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith("journal")]


async def test_a_file_with_records_of_a_log_that_failed_is_set_aside(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = journaled()
    failed = await begun(machine)
    other = await machine.partitions.create("other", OTHER_ID, 0, CONFIG)
    other.leader().append_from_client(batch("first"))
    await other.leader().wait_committed()
    await other.checkpoint()
    journal_of(machine).file_bytes = 1500
    failed.leader().append_from_client(batch("acknowledged"))
    await failed.leader().wait_committed()
    failed.log.fail(OSError(errno.EIO, "a bad sector"))
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        for _ in range(20):
            other.leader().append_from_client(batch("x" * 300))
            await other.leader().wait_committed()
        nursery.cancel_scope.cancel()
    assert any(name.endswith(".kept") for name in _names(machine.disk.listdir(DIRECTORY)))
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def test_a_log_that_failed_gets_its_records_from_the_journal_at_the_next_start() -> None:
    """After a failed fsync the page cache has what the disk has not, and calls it clean."""
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("acknowledged"))
    await partition.leader().wait_committed()
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        machine.disk.fail("fsync", errno.EIO, path_end=".log")
        with pytest.raises(KafkaError):
            await partition.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    before = len(machine.disk.journal)
    partition = await machine.restart_after_kill()
    assert f"write_at {LOG_FILE}" in machine.disk.journal[before:]
    assert await values(partition) == [0, 1]


async def test_repair_puts_back_what_the_journal_has() -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("acknowledged"))
    await partition.leader().wait_committed()
    machine.disk.crash()
    await restore_from_journal(machine.disk, PARTITION_DIRECTORY)
    found = await survey_log(machine.disk, PARTITION_DIRECTORY)
    assert (found.is_damaged, found.log_end_offset) == (False, 2)
    await repair(machine.disk, found, leaves_out=False, now_ms=0)
    assert (await checkpoint_of(machine.disk)).recovery_offset == 2
    machine.disk.crash()
    assert await values(await machine.start()) == [0, 1]


async def test_a_log_that_could_not_be_restored_is_restored_at_a_later_start() -> None:
    """The disk was full at the start after a power failure."""
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("acknowledged"))
    await partition.leader().wait_committed()
    machine.disk.crash()
    machine.disk.fail("write_at", errno.ENOSPC, path_end=LOG_FILE)
    with pytest.raises(OSError, match="space") as raised:
        await machine.start()
    machine.partitions.keep_offline(partition.topic, TOPIC_ID, 0, raised.value)
    await machine.partitions.run_notes.on_all_open()
    machine.disk.crash()
    assert await values(await machine.start()) == [0, 1]
    assert cuts(machine) == []
    assert await values(await machine.restart_after_power_loss()) == [0, 1]
