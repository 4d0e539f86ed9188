"""A truncated log is a log that never had what was cut off, whenever the power goes off."""

import errno
from collections.abc import Callable
from random import Random

import pytest
import trio

from odradek.broker.storage.checkpoint import read_checkpoint
from odradek.broker.storage.log import Log
from odradek.broker.storage.truncation import start_anew, truncate
from odradek.protocol.batch import read_header
from tests.broker.storage.replicas import (
    DIRECTORY,
    Leader,
    contents,
    copy_of,
    facts_of,
    open_log,
    stable_offsets,
)
from tests.broker.storage.stories import KEEPING, crash
from tests.drawing import given, st
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk, until_power_off

pytestmark = pytest.mark.slow


async def filled(disk: FakeDisk, random: Random, *, step_count: int, checkpoint_at: int) -> Leader:
    """Return a log with a random history and a checkpoint somewhere in it."""
    leader = Leader(await open_log(disk))
    for number in range(step_count):
        if number == checkpoint_at:
            await checkpoint(leader.log)
        leader.step(random)
    return leader


async def checkpoint(log: Log) -> None:
    await log.sync()
    await log.saver.save(log.to_save())


def below(batches: list[bytes], offset: int) -> list[bytes]:
    return [data for data in batches if read_header(data).last_offset < offset]


async def check_cut(log: Log, batches: list[bytes], *, exactly: bool = True) -> None:
    """Check that a log has these batches, and all that follows from them, and nothing else.

    Not `exactly`: a producer may have fewer batches to recognise repeats by, but its last one.
    """
    high_watermark = max(0, log.state.high_watermark)
    expected = await facts_of(await copy_of(batches), high_watermark)
    found = await facts_of(log, high_watermark)
    if not exactly:
        assert [shortened(facts) for facts in found.producers] == [
            shortened(facts) for facts in expected.producers
        ]
        expected.producers[:] = found.producers
    assert found == expected


def shortened(facts: tuple[object, ...]) -> tuple[object, ...]:
    *numbers, _marker, timestamp, window = facts
    assert isinstance(window, list)
    return (*numbers, timestamp, [last[:3] for last in window[-1:]])


@given(st.integers(0, 1 << 32), st.integers(0, 60), st.floats(0, 1), st.floats(0, 1))
def test_a_truncated_log_never_had_what_was_cut_off(
    seed: int, step_count: int, cut_at: float, checkpoint_at: float
) -> None:
    trio.run(_truncate, seed, step_count, cut_at, checkpoint_at)


async def _truncate(seed: int, step_count: int, cut_at: float, checkpoint_at: float) -> None:
    random, disk = Random(seed), FakeDisk()
    leader = await filled(
        disk, random, step_count=step_count, checkpoint_at=int(checkpoint_at * step_count)
    )
    log = leader.log
    batches = await contents(log)
    offset = int(cut_at * (log.log_end_offset + 1))
    kept = below(batches, offset)
    found = await read_checkpoint(disk, DIRECTORY)
    exactly = found is not None and found.recovery_offset <= offset
    await truncate(log, offset, now_ms=START_MS)
    await check_cut(log, kept, exactly=exactly)
    if len(kept) < len(batches):
        assert log.flushed_offset == log.log_end_offset
    for _ in range(10):
        leader.step(random)
    again = await contents(log)
    assert again[: len(kept)] == kept
    await log.sync()
    disk.crash()
    await check_cut(await open_log(disk), again, exactly=False)


CUTS: dict[str, Callable[[Log, list[bytes]], int]] = {
    "to the start": lambda _log, _batches: 0,
    "into the first segment": lambda log, _batches: log.segments[0].next_offset - 1,
    "to the start of a segment": lambda log, _batches: log.segments[-2].base_offset,
    "to an empty active segment": lambda log, _batches: log.active.base_offset,
    "into the active segment": lambda log, _batches: log.log_end_offset - 1,
    "into a batch": lambda _log, batches: max(
        header.last_offset for header in map(read_header, batches) if header.last_offset_delta
    ),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("keeping", KEEPING)
async def test_a_crash_at_every_operation_leaves_the_old_log_or_the_truncated_one(
    keeping: str, cut: Callable[[Log, list[bytes]], int]
) -> None:
    """KAFKA-6492: a log could not be truncated to an active segment that is empty then."""
    seed = KEEPING.index(keeping)
    operation, is_over = 0, False
    while not is_over:
        disk = FakeDisk()
        leader = await filled(disk, Random(seed), step_count=45, checkpoint_at=15 * seed)
        log = leader.log
        await log.sync()
        batches = await contents(log)
        offset = cut(log, batches)
        kept = below(batches, offset)
        before = disk.operations
        disk.power_off_at(before + operation)
        with until_power_off():
            await truncate(log, offset, now_ms=START_MS)
            is_over = True
        crash(disk, keeping, operation)
        log = await open_log(disk, same_boot=keeping == "all")
        found = await contents(log)
        assert found in ([kept] if is_over else [kept, batches])
        await check_cut(log, found, exactly=False)
        await truncate(log, offset, now_ms=START_MS)
        await check_cut(log, kept, exactly=False)
        log.append_replicated(b"".join(batches[len(kept) :]), now_ms=START_MS)
        await log.sync()
        disk.crash()
        await check_cut(await open_log(disk), batches, exactly=False)
        operation += 1
    assert operation > 8


async def test_recovery_from_a_crash_while_cutting_may_crash_too() -> None:
    for first_crash in range(30):
        for operation in range(0, 30, 3):
            disk = FakeDisk()
            leader = await filled(disk, Random(5), step_count=40, checkpoint_at=15)
            log = leader.log
            await log.sync()
            batches = await contents(log)
            kept = below(batches, log.segments[1].next_offset - 1)
            disk.power_off_at(disk.operations + first_crash)
            with until_power_off():
                await truncate(log, log.segments[1].next_offset - 1, now_ms=START_MS)
            disk.crash(Random(first_crash))
            disk.power_off_at(disk.operations + operation)
            with until_power_off():
                await open_log(disk)
            disk.crash(Random(operation))
            log = await open_log(disk)
            found = await contents(log)
            assert found in (kept, batches)
            await check_cut(log, found, exactly=False)


async def test_a_cut_inside_an_open_transaction_leaves_it_as_it_was_there() -> None:
    """KAFKA-12153: the first unstable offset stayed beyond the end of the log."""
    leader = Leader(await open_log(FakeDisk()))
    leader.send()
    leader.send(1)
    leader.send(2)
    leader.send(1)
    assert leader.log.producers.first_unstable_offset == 1
    await truncate(leader.log, 2, now_ms=START_MS)
    assert [entry.producer_id for entry in leader.log.producers.open_transactions()] == [1]
    await truncate(leader.log, 1, now_ms=START_MS)
    assert leader.log.producers.first_unstable_offset is None
    assert leader.log.producers.open_count == 0
    assert stable_offsets(leader.log.producers, 1) == [0, 1]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_whose_marker_is_cut_off_is_open_again(committed: bool) -> None:
    leader = Leader(await open_log(FakeDisk()))
    leader.send(1)
    leader.send()
    await checkpoint(leader.log)
    leader.end(1, committed=committed)
    leader.send()
    await truncate(leader.log, 2, now_ms=START_MS)
    assert leader.log.producers.first_unstable_offset == 0
    assert await leader.log.reader.aborted(0, 2) == ()
    leader.end(1, committed=not committed)
    assert len(await leader.log.reader.aborted(0, 3)) == committed
    await check_cut(leader.log, await contents(leader.log))


async def test_a_cut_at_the_log_end_or_beyond_changes_nothing_but_empty_epochs() -> None:
    """KAFKA-10706: an epoch without records at the end of the log conflicted with the leader's."""
    disk = FakeDisk()
    leader = Leader(await open_log(disk))
    leader.send()
    leader.log.epochs.assign(3, 1)
    for offset in (1, 2):
        before = disk.operations
        await truncate(leader.log, offset, now_ms=START_MS)
        assert disk.operations == before
        assert leader.log.epochs.latest == 0
    assert leader.log.log_end_offset == 1


async def test_a_log_that_starts_inside_the_batch_at_the_cut_starts_anew() -> None:
    disk = FakeDisk()
    leader = Leader(await open_log(disk))
    leader.send(4, 10)
    await leader.log.sync()
    leader.log.begin_at(3)
    await checkpoint(leader.log)
    await truncate(leader.log, 5, now_ms=START_MS)
    for log in (leader.log, await open_log(disk)):
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


async def test_a_log_that_starts_inside_a_batch_it_did_not_get_is_empty() -> None:
    """The power failed between the start of an empty log and its first append."""
    disk = FakeDisk()
    log = await open_log(disk)
    await start_anew(log, 20, 23)
    assert log.log_start_offset == 23
    disk.crash()
    log = await open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_cut_at_the_log_start_keeps_the_producers_whose_records_were_deleted(
    number: int,
) -> None:
    """KAFKA-7190: a producer was unknown then, and its next batch out of order."""
    disk = FakeDisk()
    leader = await filled(disk, Random(8), step_count=60, checkpoint_at=0)
    log = leader.log
    await log.sync()
    start = log.segments[number].base_offset
    expected = await copy_of(below(await contents(log), start))
    log.begin_at(start)
    await checkpoint(log)
    await log.remove_deleted()
    await truncate(log, start, now_ms=START_MS)
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset) == (start, start)
        assert {
            entry.producer_id: (entry.epoch, entry.last_sequence, entry.first_offset)
            for entry in log.producers.entries.values()
        } == {
            entry.producer_id: (entry.epoch, entry.last_sequence, entry.first_offset)
            for entry in expected.producers.entries.values()
        }
        disk.crash()
        log = await open_log(disk)


@pytest.mark.parametrize("offset", [200, 0])
@pytest.mark.parametrize("keeping", KEEPING)
async def test_a_log_starts_anew_at_the_leaders_start_or_stays_as_it_was(
    keeping: str, offset: int
) -> None:
    """The leader's log may start beyond the follower's end, or below the follower's start."""
    operation, is_over = 0, False
    while not is_over:
        disk = FakeDisk()
        leader = await filled(disk, Random(1), step_count=60, checkpoint_at=30)
        log = leader.log
        await log.sync()
        log.begin_at(log.segments[1].base_offset)
        await checkpoint(log)
        await log.remove_deleted()
        batches = await contents(log)
        disk.power_off_at(disk.operations + operation)
        with until_power_off():
            await start_anew(log, offset)
            is_over = True
        crash(disk, keeping, operation)
        log = await open_log(disk, same_boot=keeping == "all")
        if is_over or log.log_end_offset == offset:
            assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
            assert log.producers.entries == {}
            assert all(entry.start_offset == offset for entry in log.epochs.entries)
        else:
            assert await contents(log) == batches
            await start_anew(log, offset)
        leader.log = log
        leader.epoch = 9
        leader.send(7)
        await log.sync()
        disk.crash()
        log = await open_log(disk)
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 1)
        assert list(log.producers.entries) == [7]
        operation += 1


async def test_readers_wait_for_no_truncation_and_see_whole_batches() -> None:
    """Readers that run while the log is cut get batches below the cut, and no error."""
    disk = FakeDisk()
    leader = await filled(disk, Random(2), step_count=80, checkpoint_at=30)
    log = leader.log
    batches = await contents(log)
    cut = log.segments[2].next_offset - 1
    kept = below(batches, cut)
    end = read_header(kept[-1]).next_offset
    done = False
    reads = 0

    async def read(random: Random) -> None:
        nonlocal reads
        while not done:
            offset = random.randrange(end)
            data, _ = await log.reader.read(offset, 400, to_offset=end, min_one=True)
            assert bytes(data) in b"".join(kept)
            await log.reader.aborted(offset, end)
            reads += 1

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(read, Random(number))
            await truncate(log, cut, now_ms=START_MS)
            done = True
    assert reads > 10


@pytest.mark.parametrize("call", ["fsync", "rename", "append", "rmtree", "truncate", "open"])
async def test_a_failing_disk_leaves_the_log_as_it_was_or_offline(call: str) -> None:
    disk = FakeDisk()
    leader = await filled(disk, Random(4), step_count=60, checkpoint_at=20)
    log = leader.log
    await log.sync()
    batches = await contents(log)
    offset = log.segments[2].next_offset - 1
    disk.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        await truncate(log, offset, now_ms=START_MS)
    if log.failure is None:
        assert await contents(log) == batches
        await truncate(log, offset, now_ms=START_MS)
        await check_cut(log, below(batches, offset), exactly=False)
    disk.kill()
    log = await open_log(disk, same_boot=True)
    found = await contents(log)
    assert found in (batches, below(batches, offset))
    await check_cut(log, found, exactly=False)
