"""Logs with `log.flush=journal` of which one is damaged or has failed."""

import errno
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.partitions.early import may_follow_now
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.storage.journaled import (
    CONFIG,
    LOG_FILE,
    begun,
    journal_of,
    journaled,
    kernel_writes,
)
from tests.broker.storage.samples import batch


async def test_a_log_noted_as_damaged_gets_its_records_from_the_journal() -> None:
    """The scrubber may read bad bytes once, and the next start good ones."""
    machine = journaled()
    partition = await begun(machine)
    partition.leader().append_from_client(batch("a", "b"))
    await partition.leader().wait_committed()
    acknowledged = partition.leader().marks.high_watermark
    await machine.partitions.take_offline(partition, "bad bytes were read once")
    opened = await machine.restart_after_power_loss()
    assert opened.log_end_offset == acknowledged


async def test_a_log_noted_as_damaged_ends_where_the_journal_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = journaled()
    partition = await begun(machine)
    end = partition.log_end_offset
    journal = journal_of(machine)
    journal._is_blocked = True
    monkeypatch.setattr(journal, "end_turn", lambda: None)  # what is appended now never counts
    partition.leader().append_from_client(batch("never acknowledged"))
    kernel_writes(machine.disk, LOG_FILE)
    await machine.partitions.take_offline(partition, "bad bytes were read once")
    opened = await machine.restart_after_power_loss()
    assert opened.log_end_offset == end


async def test_a_log_of_coordinators_follows_none() -> None:
    """A client may add a partition of that topic, and a checkpoint waited for itself."""
    machine = journaled()
    await machine.start()
    state = await machine.partitions.create(TRANSACTION_STATE_TOPIC, UUID(int=20), 0, CONFIG)
    other = await machine.partitions.create("other", UUID(int=21), 0, CONFIG)
    for partition in (state, other):
        partition.leader().append_from_client(batch("first"))
        await partition.leader().wait_committed()
        await partition.checkpoint()
    state.leader().append_from_client(batch("prepare"))
    assert not may_follow_now(machine.partitions, 0, [state.by_id, other.by_id])
    assert may_follow_now(machine.partitions, 0, [other.by_id])


@pytest.mark.parametrize("fails", [False, True])
async def test_a_journal_goes_on_when_the_log_that_others_follow_has_failed(
    fails: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Both files were full, and no partition was acknowledged any more."""
    machine = journaled()
    await machine.start()
    found = []
    for number, name in enumerate((TRANSACTION_STATE_TOPIC, "marked", "another")):
        partition = await machine.partitions.create(name, UUID(int=20 + number), 0, CONFIG)
        partition.leader().append_from_client(batch("first"))
        await partition.leader().wait_committed()
        await partition.checkpoint()
        found.append(partition)
    state, marked, another = found
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        await trio.testing.wait_all_tasks_blocked()
        journal = journal_of(machine)
        async with marked.maintenance._one_at_a_time, state.maintenance._one_at_a_time:
            for partition in (marked, another):
                partition.leader().append_from_client(batch("x"))
                await partition.leader().wait_committed()
                journal.file_bytes = journal._files[0].end  # it is full
            state.leader().append_from_client(batch("prepare"))
            assert may_follow_now(machine.partitions, 0, [marked.by_id])
            marked.leader().append_from_client(batch("marker"))
            await trio.testing.wait_all_tasks_blocked()
            assert journal._is_blocked
            if fails:
                state.log.fail(OSError(errno.EIO, "Input/output error"))
        journal.file_bytes = journal._files[0].end + 10  # the other file must be used anew
        with trio.fail_after(60):
            another.leader().append_from_client(batch("y"))
            await another.leader().wait_committed()
        assert marked.log.failure is None
        nursery.cancel_scope.cancel()
