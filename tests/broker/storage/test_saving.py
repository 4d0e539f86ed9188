"""The saved state of a log, without the log."""

from uuid import UUID

import pytest
import trio

from odradek.broker.storage.checkpoint import (
    read_checkpoint,
)
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.files import SNAPSHOT, OpenFiles, file_path, parent_of
from odradek.broker.storage.log_state import LogState
from odradek.broker.storage.producer_entry import BatchMetadata, ProducerEntry
from odradek.broker.storage.reading import LogReader
from odradek.broker.storage.saving import LogSaver
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.snapshot import encode_snapshot
from odradek.broker.storage.truncation import start_anew, truncate
from odradek.broker.storage.unflushed import Unflushed
from tests.broker.storage.replicas import Leader, open_log, stable_offsets
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk
from tests.fakes.turns import longest_turn

DIRECTORY = "/t-0"
TOPIC_ID = UUID(int=7)


def saver_of(disk: FakeDisk) -> tuple[LogSaver, LogState]:
    disk.mkdir(DIRECTORY)
    files = OpenFiles(disk)
    state = LogState(segments=[Segment(files, DIRECTORY, 0)])
    reader = LogReader(files, DIRECTORY, LogConfig(), state)
    saver = LogSaver(
        files,
        DIRECTORY,
        TOPIC_ID,
        state,
        reader=reader,
        unflushed=Unflushed(files, DIRECTORY, 0),
        fail=fail,
    )
    return saver, state


def fail(error: OSError) -> None:
    raise AssertionError(error)


async def test_a_change_of_the_state_is_up_to_date_once_it_is_saved() -> None:
    disk = FakeDisk()
    saver, state = saver_of(disk)
    assert saver.is_up_to_date
    state.log_start_offset = 5
    assert not saver.is_up_to_date
    await saver.save(saver.to_save(100))
    assert saver.is_up_to_date
    assert saver.saved_bytes == 100
    checkpoint = await read_checkpoint(disk, DIRECTORY)
    assert checkpoint is not None
    assert (checkpoint.topic_id, checkpoint.log_start_offset) == (TOPIC_ID, 5)


@pytest.mark.parametrize("change", ["the log start", "a snapshot"])
async def test_a_change_during_a_saving_is_left_for_the_next_saving(change: str) -> None:
    disk = FakeDisk()
    saver, state = saver_of(disk)
    to_save = saver.to_save(100)
    if change == "the log start":
        state.log_start_offset = 5
    else:
        saver.write_snapshot()
    saver.note_saved(to_save)
    assert not saver.is_up_to_date
    await saver.save(saver.to_save(100))
    assert saver.is_up_to_date


async def test_a_snapshot_is_on_disk_when_the_state_is_saved() -> None:
    disk = FakeDisk()
    saver, _ = saver_of(disk)
    await disk.fsync_dir(parent_of(DIRECTORY))
    saver.write_snapshot()
    assert not saver.is_up_to_date
    await saver.save(saver.to_save(0))
    disk.crash()
    assert disk.bytes_of(file_path(DIRECTORY, 0, SNAPSHOT)) == encode_snapshot([])


def test_the_end_of_a_log_without_producers_needs_no_snapshot() -> None:
    disk = FakeDisk()
    saver, _ = saver_of(disk)
    saver.mark_clean_end()
    assert saver.is_up_to_date


async def test_a_marker_above_the_high_watermark_still_counts_after_a_restart() -> None:
    """The last stable offset was at the high watermark then, inside the transaction."""
    disk = FakeDisk()
    leader = Leader(await open_log(disk))
    leader.send(1)
    leader.send()
    leader.end(1, committed=True)
    leader.send()
    log = leader.log
    for _ in range(2):
        await log.sync()
        await log.saver.save(log.to_save())
        disk.crash()
        log = await open_log(disk)
        assert stable_offsets(log.producers, 4) == [0, 0, 0, 3, 4]
    log.state.high_watermark = 3
    await log.saver.save(log.to_save())
    disk.crash()
    assert (await open_log(disk)).producers.ended == ()


async def test_the_high_watermark_is_kept_by_each_checkpoint() -> None:
    disk = FakeDisk()
    leader = Leader(await open_log(disk))
    for _ in range(4):
        leader.send()
    log = leader.log
    assert log.saved_high_watermark == -1
    await log.sync()
    await log.saver.save(log.to_save())
    assert log.saver.is_up_to_date
    log.state.high_watermark = 3
    assert not log.saver.is_up_to_date
    await log.saver.save(log.to_save())
    log.state.high_watermark = 4
    for _ in range(2):
        disk.kill()
        log = await open_log(disk, same_boot=True)
        assert log.saved_high_watermark == log.state.high_watermark == 3
        await log.saver.save(log.to_save())
    await truncate(log, 2, now_ms=START_MS)
    disk.crash()
    log = await open_log(disk)
    assert log.saved_high_watermark == 2
    await start_anew(log, 50)
    disk.crash()
    assert (await open_log(disk)).saved_high_watermark == 50


@pytest.mark.slow
async def test_the_checkpoint_of_very_many_producers_holds_nobody_up() -> None:
    """It was packed in one piece, as long as there were producers."""
    disk = FakeDisk()
    saver, state = saver_of(disk)
    entries = state.producers.entries
    last = BatchMetadata(last_sequence=0, last_offset=1, offset_delta=0, timestamp_ms=START_MS)
    for producer_id in range(20_000):
        entries[producer_id] = ProducerEntry(producer_id)
        entries[producer_id].batches = (last,)
    to_save = saver.to_save(0)
    entries[0].epoch, entries[0].batches = 7, ()  # appended meanwhile: not in this checkpoint
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(saver.save, to_save)
    assert longest.calls < 15_000, longest
    checkpoint = await read_checkpoint(disk, DIRECTORY)
    assert checkpoint is not None
    assert [entry.producer_id for entry in checkpoint.producers] == list(range(20_000))
    assert checkpoint.producers[0].epoch == ProducerEntry(0).epoch
    assert all(entry.batches == (last,) for entry in checkpoint.producers)
