"""What the journal vouches for after a power failure, and what it must not."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import trio
import trio.testing
from click.testing import CliRunner

from odradek.broker.inspect.log_command import log
from odradek.broker.partitions.partitions import Partition
from odradek.broker.storage.captured import CAPTURED_MAX_BYTES
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.storage.journal import AHEAD_BYTES, FILE_BYTES
from odradek.broker.storage.journal_file import (
    JournalRecord,
    RecordKind,
    decode,
    encode_header,
    encode_record,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.journaled import (
    CONFIG,
    LOG_FILE,
    OTHER_ID,
    begun,
    checkpoint_of,
    cuts,
    journal_of,
    journaled,
    kernel_writes,
    put_checkpoint,
    values,
)
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    TOPIC_ID,
    Client,
    batch,
)

BATCH_BYTES = 8 * 1024


def record(sequence: int) -> JournalRecord:
    return JournalRecord(
        sequence=sequence,
        key=(TOPIC_ID.bytes, 0),
        kind=RecordKind.DATA,
        base_offset=sequence,
        next_offset=sequence + 1,
        data=bytes(20),
    )


def test_a_torn_record_ends_the_journal() -> None:
    first, second = (encode_record(70, record(sequence)) for sequence in (70, 71))
    whole = encode_header(3, 70) + first + second
    for end in range(len(whole) + 1):
        found = decode(whole[:end])
        expected = (end >= len(whole)) + (end >= len(whole) - len(second))
        assert (0 if found is None else len(found.records)) == expected
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        found = decode(damaged)
        assert found is None or len(found.records) < 2


def test_records_of_an_earlier_generation_behind_the_end_do_not_count() -> None:
    old = encode_header(3, 70) + b"".join(encode_record(70, record(n)) for n in (70, 71, 72))
    new = encode_header(3, 90) + encode_record(90, record(90))
    found = decode(new + old[len(new) :])
    assert found is not None
    assert [each.sequence for each in found.records] == [90]


async def test_one_fsync_makes_the_appends_of_a_turn_to_many_logs_durable() -> None:
    machine = journaled()
    first = await begun(machine)
    others = [
        await machine.partitions.create(f"other-{n}", UUID(int=20 + n), 0, CONFIG) for n in range(5)
    ]
    for partition in others:
        partition.leader().append_from_client(batch("first"))
        await partition.leader().wait_committed()
        await partition.checkpoint()
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        await trio.testing.wait_all_tasks_blocked()
        before = machine.disk.counts["start_fsync"], len(machine.disk.journal)
        for partition in (first, *others):
            partition.leader().append_from_client(batch("small"))
        for partition in (first, *others):
            await partition.leader().wait_committed()
        done = machine.disk.journal[before[1] :]
        nursery.cancel_scope.cancel()
    assert [each for each in done if "journal" in each] == [f"write_at {DIRECTORY}/journal-a"]
    machine.disk.crash()
    assert await values(await machine.start()) == [0, 1]


async def test_what_the_journal_vouches_for_outlives_a_power_failure() -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("a", "b"))
    await partition.leader().wait_committed()
    assert partition.log.flushed_offset == 1
    partition = await machine.restart_after_power_loss()
    assert await values(partition) == [0, 1]
    assert partition.log_end_offset == 3
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def test_a_large_append_flushes_its_log_and_counts_by_a_note() -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("x" * (CAPTURED_MAX_BYTES + 1)))
    partition.leader().append_from_client(batch("small"))
    await partition.leader().wait_committed()
    assert partition.log.flushed_offset >= 2
    assert journal_of(machine)._files[0].end < CAPTURED_MAX_BYTES
    assert await values(await machine.restart_after_power_loss()) == [0, 1, 2]


async def append_to_journal(partition: Partition, size_bytes: int) -> None:
    """Append small batches of so many bytes at least."""
    for _ in range(size_bytes // BATCH_BYTES + 1):
        partition.leader().append_from_client(batch("x" * BATCH_BYTES))
        await partition.leader().wait_committed()


async def test_a_journal_grows_by_steps_so_that_most_fsyncs_note_no_new_size() -> None:
    machine = journaled()
    partition = await begun(machine)
    active = journal_of(machine)._files[0]
    sizes = {active.file.size}
    for _ in range(3 * AHEAD_BYTES // BATCH_BYTES):
        await append_to_journal(partition, 0)
        sizes.add(active.file.size)
    assert active.end <= active.file.size <= active.end + AHEAD_BYTES
    assert len(sizes) <= 5
    count = partition.log_end_offset
    assert await values(await machine.restart_after_power_loss()) == [*range(count)]


@pytest.mark.parametrize("error", [None, errno.EOPNOTSUPP])
async def test_a_journal_takes_what_it_needs_and_no_more_of_a_disk_without_ample_room(
    error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = journaled()
    partition = await begun(machine)

    def free_bytes(_: str) -> int:
        if error is not None:
            raise OSError(error, os.strerror(error))
        return FILE_BYTES - 1

    monkeypatch.setattr(machine.disk, "free_bytes", free_bytes)
    await append_to_journal(partition, 2 * AHEAD_BYTES)
    active = journal_of(machine)._files[0]
    assert active.file.size == active.end > AHEAD_BYTES
    assert journal_of(machine).failure is None


async def test_a_journal_of_an_earlier_life_is_not_replayed() -> None:
    """The log was cut after that life; only the new checkpoint says so."""
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("a"))
    await partition.leader().wait_committed()
    old = machine.disk.bytes_of(f"{DIRECTORY}/journal-a")
    partition = await machine.restart()
    partition.end_lead(1)
    await partition.maintenance.truncate_to(1)
    # As a tool would: the checkpoint says nothing of the journal.
    checkpoint = await checkpoint_of(machine.disk)
    file = machine.disk.open(f"{DIRECTORY}/journal-b")
    file.write_at(0, old)
    await file.fsync()
    await machine.disk.fsync_dir(DIRECTORY)
    assert checkpoint.journal_sequence > 0
    await put_checkpoint(machine.disk, replace(checkpoint, journal_sequence=0))
    machine.disk.crash()
    assert await values(await machine.start()) == [0]


async def test_the_journal_is_not_replayed_over_a_log_that_was_cut() -> None:
    """The power goes off before the journal has the note of it."""
    machine = journaled()
    partition = await begun(machine)
    for value in "abc":
        partition.leader().append_from_client(batch(value))
    await partition.leader().wait_committed()
    partition.end_lead(1)
    await partition.maintenance.truncate_to(2)
    machine.disk.crash()
    partition = await machine.start()
    assert await values(partition) == [0, 1]
    assert cuts(machine) == []


async def test_a_log_that_was_cut_goes_on_in_the_journal() -> None:
    machine = journaled()
    partition = await begun(machine)
    for value in "abc":
        partition.leader().append_from_client(batch(value))
    await partition.leader().wait_committed()
    partition.end_lead(1)
    await partition.maintenance.truncate_to(2)
    partition = await machine.restart_after_kill()
    partition.leader().append_from_client(batch("another", "d"))
    await partition.leader().wait_committed()
    partition = await machine.restart_after_power_loss()
    assert await values(partition) == [0, 1, 2]
    assert partition.log_end_offset == 4


async def test_the_records_of_a_deleted_log_do_not_get_into_the_one_that_has_its_name() -> None:
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("of the deleted topic"))
    await partition.leader().wait_committed()
    await machine.partitions.delete(partition.topic, [0])
    anew = await machine.partitions.create(partition.topic, OTHER_ID, 0, CONFIG)
    anew.leader().append_from_client(batch("first"))
    await anew.leader().wait_committed()
    machine.disk.lose(f"{PARTITION_DIRECTORY}/checkpoint")  # which would say so, too
    machine.disk.crash()
    assert await values(await machine.start(topic_id=OTHER_ID)) == [0]


async def test_a_marker_that_the_kernel_wrote_before_its_decision_does_not_count() -> None:
    """Both are in one wave: the journal has neither, and the disk has one of them."""
    machine = journaled()
    partition = await begun(machine)
    other = await machine.partitions.create("decisions", OTHER_ID, 0, CONFIG)
    other.leader().append_from_client(batch("first"))
    await other.leader().wait_committed()
    await other.checkpoint()
    producer = Client(partition, producer_id=5, is_transactional=True)
    producer.send("in a transaction")
    await partition.leader().wait_committed()
    machine.disk.fsync_gate = trio.Event()
    other.leader().append_from_client(batch("the decision"))
    producer.end(committed=True)
    await trio.testing.wait_all_tasks_blocked()
    kernel_writes(machine.disk, LOG_FILE)
    machine.disk.crash()
    partition = await machine.start()
    assert await values(partition) == [0, 1]
    assert [each.producer_id for each in partition.open_transactions()] == [5]
    assert cuts(machine) == [f"{2:020}.cut"]


async def test_a_file_is_used_anew_only_when_all_that_it_vouches_for_is_saved() -> None:
    machine = journaled()
    partition = await begun(machine)
    other = await machine.partitions.create("other", OTHER_ID, 0, CONFIG)
    other.leader().append_from_client(batch("first"))
    await other.leader().wait_committed()
    await other.checkpoint()
    journal_of(machine).file_bytes = 1500
    partition.leader().append_from_client(batch("never saved"))
    await partition.leader().wait_committed()
    for _ in range(9):
        other.leader().append_from_client(batch("x" * 300))
        with trio.move_on_after(0.01):
            await other.leader().wait_committed()
        await other.checkpoint()
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def test_a_journal_that_is_full_goes_on_when_its_logs_are_saved(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = journaled()
    partition = await begun(machine)
    journal_of(machine).file_bytes = 1500
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        for _ in range(40):
            partition.leader().append_from_client(batch("x" * 300))
            await partition.leader().wait_committed()
        nursery.cancel_scope.cancel()
    assert machine.disk.size(f"{DIRECTORY}/journal-b") <= 1500
    assert len(await values(await machine.restart_after_power_loss())) == 41


async def test_a_failed_flush_of_the_journal_takes_its_logs_offline() -> None:
    machine = journaled()
    partition = await begun(machine)
    machine.disk.fail("fsync", errno.EIO, path_end="journal-a")
    partition.leader().append_from_client(batch("a"))
    with pytest.raises(KafkaError) as raised:
        await partition.leader().wait_committed()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.high_watermark == 1


async def test_without_room_for_the_journal_appends_wait_and_nothing_is_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = journaled()
    partition = await begun(machine)
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        machine.disk.fail("write_at", errno.ENOSPC, path_end="journal-a")
        partition.leader().append_from_client(batch("a"))
        await partition.leader().wait_committed()
        nursery.cancel_scope.cancel()
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def test_without_room_for_the_header_of_the_next_file_nothing_is_written_to_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Records stood in a file without a header, were acknowledged, and lost with the power."""
    machine = journaled()
    partition = await begun(machine)
    journal_of(machine).file_bytes = 1500
    machine.disk.fail("write_at", errno.ENOSPC, path_end="journal-b")
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        for _ in range(4):
            partition.leader().append_from_client(batch("x" * 300))
            await partition.leader().wait_committed()
        nursery.cancel_scope.cancel()
    assert machine.disk.size(f"{DIRECTORY}/journal-b")
    assert len(await values(await machine.restart_after_power_loss())) == 5


async def test_a_journal_that_gets_no_room_at_the_end_of_a_flush_tries_again() -> None:
    """Its task was waiting for an append, and no client sends one while it waits for an answer."""
    machine = journaled()
    partition = await begun(machine)
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        machine.disk.fsync_gate = trio.Event()
        for value in "ab":  # the first is being flushed, and the second waits
            partition.leader().append_from_client(batch(value))
            await trio.testing.wait_all_tasks_blocked()
        machine.disk.fail("write_at", errno.ENOSPC, path_end="journal-a")
        machine.disk.fsync_gate.set()
        with trio.fail_after(5):
            await partition.leader().wait_committed()
        nursery.cancel_scope.cancel()
    assert await values(await machine.restart_after_power_loss()) == [0, 1, 2]


async def test_what_is_appended_in_one_turn_is_written_once_at_its_end() -> None:
    machine = journaled()
    partition = await begun(machine)
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        writes = machine.disk.counts["write_at"]

        def append() -> None:
            for value in "ab":
                partition.leader().append_from_client(batch(value))
            assert machine.disk.counts["write_at"] == writes

        journal_of(machine).in_one_turn(append)
        assert machine.disk.counts["write_at"] == writes + 1
        await partition.leader().wait_committed()
        nursery.cancel_scope.cancel()
    assert await values(await machine.restart_after_power_loss()) == [0, 1, 2]


async def test_after_a_run_without_a_journal_none_counts() -> None:
    machine = journaled()
    await begun(machine)
    machine.disk.kill()
    machine.config = replace(CONFIG, flush=FlushPolicy.ACK)
    partition = await machine.start()
    partition.leader().append_from_client(batch("a"))
    await partition.leader().wait_committed()
    assert not machine.disk.exists(f"{DIRECTORY}/journal-a")
    assert await values(await machine.restart_after_power_loss()) == [0, 1]
    machine.disk.kill()
    machine.config = CONFIG
    partition = await machine.start()
    partition.leader().append_from_client(batch("b"))
    await partition.leader().wait_committed()
    assert await values(await machine.restart_after_power_loss()) == [0, 1, 2]


async def test_a_kill_just_after_a_failed_flush_loses_nothing() -> None:
    """The note that the log has failed is not written yet, and the page cache seems whole."""
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("acknowledged"))
    await partition.leader().wait_committed()
    machine.disk.fail("fsync", errno.EIO, path_end=".log")
    with pytest.raises(KafkaError):
        await partition.checkpoint()
    before = len(machine.disk.journal)
    partition = await machine.restart_after_kill()
    assert f"write_at {LOG_FILE}" in machine.disk.journal[before:]
    assert await values(partition) == [0, 1]
    assert await values(await machine.restart_after_power_loss()) == [0, 1]


async def test_no_file_is_begun_while_the_full_one_is_not_flushed() -> None:
    """The fsync of the new file would have vouched for what the old one has."""
    machine = journaled()
    partition = await begun(machine)
    journal_of(machine).file_bytes = journal_of(machine)._files[0].end + 400
    machine.disk.fail("start_fsync", errno.EAGAIN, path_end="journal-a")
    partition.leader().append_from_client(batch("x" * 100))
    partition.leader().append_from_client(batch("y" * 300))
    assert machine.disk.size(f"{DIRECTORY}/journal-b") == 0
    await partition.leader().wait_committed()
    assert await values(await machine.restart_after_power_loss()) == [0, 1, 2]


def test_log_dump_shows_the_records_of_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal-a"
    path.write_bytes(encode_header(3, 70) + encode_record(70, record(70)) + bytes(50))
    result = CliRunner().invoke(log, ["dump", "--json", str(path)])
    assert result.exit_code == 0, result.output
    header, *records = map(json.loads, result.output.splitlines())
    assert header == {"type": "journal", "life": 3, "generation": 70}
    assert [(each["kind"], each["sequence"], each["bytes"]) for each in records] == [
        ("data", 70, 20)
    ]
    path.write_bytes(bytes(50))
    assert CliRunner().invoke(log, ["dump", str(path)]).exit_code == 1
