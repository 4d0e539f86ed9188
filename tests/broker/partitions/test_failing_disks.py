"""What a partition does when its disk is full or fails."""

import errno
import logging
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.files import file_path, offsets_in
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.partitions.running import code_of, running
from tests.broker.storage.samples import (
    DIRECTORY,
    PARTITION_DIRECTORY,
    Client,
    Machine,
    batch,
    read_all,
)


async def test_a_full_disk_refuses_an_append_and_later_ones_work_again() -> None:
    machine = Machine()
    partition = await machine.start()
    client = Client(partition)
    client.send("kept")
    await partition.flush()
    machine.disk.capacity_bytes = machine.disk.used_bytes + 20
    made = client.make("no room")
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(memoryview(bytearray(made)))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "full" in caught.value.message
    assert len(await read_all(partition)) == 1
    machine.disk.capacity_bytes = None
    assert partition.leader().append_from_client(made).base_offset == 1
    await partition.flush()
    partition = await machine.restart_after_power_loss()
    assert len(await read_all(partition)) == 2


@pytest.mark.parametrize("call", ["open", "append"])
async def test_a_full_disk_while_rolling_leaves_the_log_as_it_was(call: str) -> None:
    """KAFKA-7866: no offset is given twice, nothing is half there."""
    machine = Machine(config=LogConfig(segment_bytes=150))
    partition = await machine.start()
    client = Client(partition, is_transactional=True)
    client.send("one")
    client.send("two")
    made = client.make("three")
    end = {"open": (".log", ".snapshot"), "append": (".snapshot", ".log")}[call]
    for number, suffix in enumerate(end, start=1):
        machine.disk.fail(call, errno.ENOSPC, path_end=suffix)
        with pytest.raises(KafkaError) as caught:
            partition.leader().append_from_client(memoryview(bytearray(made)))
        assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log_end_offset == 2, number
    assert partition.leader().append_from_client(made).base_offset == 2
    await partition.flush()
    for _ in range(2):
        assert [h.base_offset for h, _ in await read_all(partition)] == [0, 1, 2]
        partition = await machine.restart_after_power_loss()


async def test_a_roll_that_fails_again_and_again_has_one_snapshot_to_flush() -> None:
    machine = Machine(config=LogConfig(segment_bytes=150))
    partition = await machine.start()
    client = Client(partition)
    client.send("one")
    client.send("two")
    made = client.make("three")
    for _ in range(5):
        machine.disk.fail("open", errno.ENOSPC, path_end=".log")
        with pytest.raises(KafkaError):
            partition.leader().append_from_client(memoryview(bytearray(made)))
    assert partition.leader().append_from_client(made).base_offset == 2
    await partition.checkpoint()
    path = file_path(PARTITION_DIRECTORY, 2, ".snapshot")
    assert machine.disk.journal.count(f"fsync {path}") == 1


@pytest.mark.parametrize("call", ["open", "append"])
async def test_a_log_that_could_not_roll_and_went_on_is_opened_again(call: str) -> None:
    """The empty file of the segment that was not begun was taken for one that lost its batches."""
    machine = Machine(config=LogConfig(segment_bytes=300))
    partition = await machine.start()
    client = Client(partition)
    client.send("one")
    client.send("two")
    machine.disk.fail(call, errno.ENOSPC, path_end=".snapshot")
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(batch("too much for this segment" * 5))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    client.send("still fits")
    for _ in range(2):
        await partition.checkpoint()
        partition = await machine.restart_after_power_loss()
        assert [h.base_offset for h, _ in await read_all(partition)] == [0, 1, 2]


async def test_what_retention_could_not_remove_goes_once_the_disk_has_room() -> None:
    machine = Machine(config=LogConfig(segment_bytes=150, retention_bytes=150))
    partition = await machine.start()
    for _ in range(6):
        partition.leader().append_from_client(batch("a"))
    await partition.flush()
    machine.disk.fail("append", errno.ENOSPC, path_end="checkpoint.tmp")
    with pytest.raises(OSError, match="No space"):
        await partition.maintenance.enforce_retention()
    await partition.maintenance.enforce_retention()
    names = machine.disk.listdir(PARTITION_DIRECTORY)
    assert offsets_in(names, ".log") == [segment.base_offset for segment in partition.log.segments]
    partition = await machine.restart_after_power_loss()
    assert partition.log_start_offset == partition.log.segments[0].base_offset > 0


async def test_a_missing_descriptor_takes_no_partition_offline() -> None:
    """Seen: the first checkpoint met it at the flush of an index, and records were refused."""
    machine = Machine(config=LogConfig(segment_bytes=150))
    partition = await machine.start()
    client = Client(partition)
    client.send("one")
    client.send("two")
    made = client.make("three")
    machine.disk.fail("open", errno.EMFILE, path_end=".snapshot")
    with pytest.raises(KafkaError, match="Too many open files"):
        partition.leader().append_from_client(memoryview(bytearray(made)))
    assert partition.leader().append_from_client(made).base_offset == 2
    machine.disk.fail("open", errno.ENFILE, path_end=".snapshot")
    with pytest.raises(OSError, match="Too many open files"):
        await partition.checkpoint()
    await partition.checkpoint()
    partition = await machine.restart_after_power_loss()
    assert [header.base_offset for header, _ in await read_all(partition)] == [0, 1, 2]


async def test_an_io_error_on_append_takes_the_partition_offline_and_no_other() -> None:
    """KAFKA-10778."""
    machine = Machine()
    partition = await machine.start()
    other = await machine.partitions.create("other", UUID(int=3), 0, LogConfig())
    partition.leader().append_from_client(batch("kept"))
    await partition.flush()
    machine.disk.fail("append", errno.EIO)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            partition.leader().append_from_client(batch("lost"))
        assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError) as caught:
        await partition.leader().read(0, 100, read_committed=False)
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    other.leader().append_from_client(batch("fine"))
    await other.flush()
    partition = await machine.restart_after_power_loss()
    assert len(await read_all(partition)) == 1


async def test_a_failed_fsync_is_never_tried_again_and_everybody_who_waits_is_told() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("a"))
    told: list[ErrorCode] = []

    async def wait() -> None:
        with pytest.raises(KafkaError) as caught:
            await partition.leader().wait_committed(1)
        told.append(caught.value.code)

    machine.disk.fail("fsync_end", errno.EIO)
    gate = machine.disk.fsync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert partition.high_watermark == 0
    before = machine.disk.counts["fsync"]
    with pytest.raises(KafkaError):
        await partition.flush()
    with pytest.raises(KafkaError):
        partition.leader().append_from_client(batch("b"))
    await machine.stop()
    assert machine.disk.counts["fsync"] == before
    assert not machine.disk.exists(f"{DIRECTORY}/clean-shutdown")


async def test_a_failed_fsync_of_an_index_takes_the_partition_offline() -> None:
    machine = Machine(config=LogConfig(index_interval_bytes=0))
    partition = await machine.start()
    for _ in range(3):
        partition.leader().append_from_client(batch("a"))
    machine.disk.fail("fsync", errno.EIO, path_end=".index")
    with pytest.raises(OSError, match="Input/output"):
        await partition.checkpoint()
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(batch("b"))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    partition = await machine.restart_after_power_loss()
    assert partition.log_end_offset == 3


async def test_a_checkpoint_that_cannot_be_written_is_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    machine = Machine()
    async with running(machine) as partition:
        partition.leader().append_from_client(batch("a"))
        machine.disk.fail("append", errno.ENOSPC, path_end="checkpoint.tmp")
        await trio.sleep(4)
        assert partition.log.unsaved_bytes > 0
        await trio.sleep(15)
        assert partition.log.unsaved_bytes == 0
        assert partition.leader().append_from_client(batch("b")).base_offset == 1
