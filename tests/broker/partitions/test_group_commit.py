"""One fsync serves everything that waits for the same log."""

import errno
import traceback
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from odradek.broker.environment import compiled
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.partitions.waiters import CALLBACKS_AT_ONCE
from odradek.broker.storage import disk
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.disk import SystemDisk
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.partitions.running import code_of, running
from tests.broker.storage.samples import TOPIC, TOPIC_ID, Machine, batch
from tests.fakes.clock import FakeClock

PATIENCE_SECONDS = 60


async def append_first(partition: Partition) -> None:
    """Append what makes the directory of the log durable, which takes more than one fsync."""
    partition.leader().append_from_client(batch("first"))
    await partition.flush()
    await trio.testing.wait_all_tasks_blocked()  # the first checkpoint


async def test_what_is_appended_during_an_fsync_waits_for_the_next_one() -> None:
    machine = Machine()
    called: list[int] = []
    async with running(machine) as partition:
        await append_first(partition)
        gate = machine.disk.fsync_gate = trio.Event()
        before = machine.disk.counts["fsync"]
        for number in range(3):
            partition.leader().append_from_client(batch("x"))
            partition.leader().call_when_committed(partial(called.append, number))
            await trio.testing.wait_all_tasks_blocked()
        assert called == []
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert called == [0, 1, 2]
        assert machine.disk.counts["fsync"] == before + 2
        assert partition.high_watermark == partition.log_end_offset


async def test_a_roll_during_an_fsync_is_flushed_and_its_waiters_are_called() -> None:
    """The new segment needs a task: more than one file and a name must reach the disk."""
    machine = Machine(config=LogConfig(segment_bytes=100))
    called: list[int] = []
    async with running(machine) as partition:
        await append_first(partition)
        gate = machine.disk.fsync_gate = trio.Event()
        for number in range(4):
            partition.leader().append_from_client(batch("x"))
            partition.leader().call_when_committed(partial(called.append, number))
            await trio.testing.wait_all_tasks_blocked()
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert called == [0, 1, 2, 3]
    partition = await machine.restart_after_power_loss()
    assert partition.log_end_offset == 5


async def test_a_failed_fsync_calls_those_that_wait_and_no_fsync_follows() -> None:
    machine = Machine()
    called: list[int] = []
    async with running(machine) as partition:
        await append_first(partition)
        machine.disk.fail("fsync", errno.EIO)
        for number in range(2):
            partition.leader().append_from_client(batch("x"))
            partition.leader().call_when_committed(partial(called.append, number))
        before = machine.disk.counts["fsync"]
        with pytest.raises(KafkaError) as caught:
            await partition.leader().wait_committed(partition.log_end_offset)
        await trio.testing.wait_all_tasks_blocked()
        assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
        assert called == [0, 1]
        assert partition.high_watermark == 1
        assert machine.disk.counts["fsync"] == before + 1


async def test_what_waits_for_an_fsync_that_has_ended_is_called() -> None:
    machine = Machine()
    async with running(machine) as partition:
        await append_first(partition)
        called: list[int] = []
        partition.leader().call_when_committed(partial(called.append, 1))
        await trio.testing.wait_all_tasks_blocked()
        assert called == [1]


def test_an_error_of_an_fsync_that_is_none_of_the_disk_ends_the_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was ignored, and the fsync started again and again."""

    def broken(_descriptor: int) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setenv(compiled.OFF, "1")  # in C there is nothing that could raise it

    async def main() -> None:
        partitions = Partitions(disk=SystemDisk(), directory=str(tmp_path), clock=FakeClock())
        partition = await partitions.open(TOPIC, TOPIC_ID, 0, LogConfig())
        await partitions.run_notes.on_all_open()
        async with trio.open_nursery() as nursery:
            await nursery.start(partitions.run)
            await append_first(partition)
            monkeypatch.setattr(disk, "_sync", broken)
            partition.leader().append_from_client(batch("x"))
            await trio.sleep(PATIENCE_SECONDS)

    with pytest.raises(trio.TrioInternalError) as ended:
        trio.run(main)
    assert "a bug of ours" in "".join(traceback.format_exception(ended.value))


async def test_thousands_that_wait_for_one_fsync_do_not_hold_the_loop() -> None:
    machine = Machine()
    count = 20 * CALLBACKS_AT_ONCE
    called: list[int] = []
    at_once = 0
    async with running(machine) as partition:
        await append_first(partition)
        partition.leader().append_from_client(batch("x"))
        for number in range(count):
            partition.leader().call_when_committed(partial(called.append, number))
        while len(called) < count:
            before = len(called)
            await trio.lowlevel.checkpoint()
            at_once = max(at_once, len(called) - before)
    assert called == list(range(count))
    # Trio runs the tasks of a turn in any order: twice between two looks of this one.
    assert at_once <= 2 * CALLBACKS_AT_ONCE
