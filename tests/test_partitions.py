"""What is acknowledged, what readers see, when they are woken, and what failing disks do."""

import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.partition import Partition
from odradek.broker.partitions import Partitions
from odradek.broker.storage.aborted import AbortedTransaction
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.watch import Watch
from odradek.protocol.batch import iter_batches, read_header
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch
from tests.storage.samples import DIRECTORY, Client, Machine, batch, read_all


@asynccontextmanager
async def running(machine: Machine) -> AsyncIterator[Partition]:
    """A partition with everything going on in the background."""
    partition = await machine.start()
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.partitions.run)
        yield partition
        nursery.cancel_scope.cancel()


def code_of(caught: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return caught.value.code


# high watermark and last stable offset


async def test_nothing_is_seen_before_it_is_on_disk() -> None:
    partition = await Machine().start()
    appended = partition.append_from_client(batch("a", "b"))
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    assert (partition.high_watermark, partition.log_end_offset) == (0, 2)
    assert (await partition.read(0, 100, read_committed=False)).records == b""
    await partition.flushed(2)
    assert partition.high_watermark == partition.last_stable_offset == 2


async def test_with_flush_os_it_is_seen_at_once() -> None:
    machine = Machine(config=LogConfig(flush=FlushPolicy.OS))
    partition = await machine.start()
    partition.append_from_client(batch("a", "b"))
    assert partition.high_watermark == 2
    before = machine.disk.counts["fsync"]
    await partition.flushed(2)
    assert machine.disk.counts["fsync"] == before


async def test_the_last_stable_offset_waits_for_the_oldest_open_transaction() -> None:
    partition = await Machine().start()
    first = Client(partition, producer_id=1, is_transactional=True)
    second = Client(partition, producer_id=2, is_transactional=True)
    partition.append_from_client(batch("plain"))  # 0
    first.send("one")  # 1
    second.send("two")  # 2
    await partition.flush()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 1)
    second.end(committed=True)  # 3
    await partition.flush()
    assert partition.last_stable_offset == 1
    first.end(committed=False)  # 4
    assert partition.last_stable_offset == 1  # its marker is not on disk yet
    await partition.flush()
    assert partition.last_stable_offset == 5
    assert [entry.producer_id for entry in partition.open_transactions()] == []


async def test_high_watermark_and_last_stable_offset_of_a_read_are_of_one_moment() -> None:
    """KAFKA-9807: an abort that comes while a read is under way must not change what it returns."""
    machine = Machine()
    partition = await machine.start()
    client = Client(partition, is_transactional=True)
    client.send("aborted")
    await partition.flush()
    results = []

    async def read() -> None:
        results.append(await partition.read(0, 1000, read_committed=True))
        results.append(await partition.read(0, 1000, read_committed=False))

    async def abort() -> None:
        client.end(committed=False)
        await partition.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(abort)
    for result in [*results, await partition.read(0, 1000, read_committed=True)]:
        visible = [header for header, _ in iter_batches(result.records)]
        end = max((header.next_offset for header in visible), default=0)
        assert end <= result.high_watermark
        if result.last_stable_offset == 0:
            assert result.aborted == ()
    committed = await partition.read(0, 1000, read_committed=True)
    assert committed.aborted == (AbortedTransaction(1, 0),)


async def test_no_moment_shows_a_transaction_that_begins_at_the_high_watermark() -> None:
    """KAFKA-9807: the high watermark was read twice. By the first reading the transaction was not
    there yet, so that the second was taken for the last stable offset, too."""
    partition = await Machine().start()
    client = Client(partition, is_transactional=True)
    for begins_at in range(0, 9, 3):
        assert partition.high_watermark == begins_at
        client.send("not decided")
        client.send("not decided")
        await partition.flush()
        assert (partition.high_watermark, partition.last_stable_offset) == (
            begins_at + 2,
            begins_at,
        )
        read = await partition.read(begins_at, 1000, read_committed=True)
        assert (bytes(read.records), read.last_stable_offset) == (b"", begins_at)
        client.end(committed=False)
        await partition.flush()


async def test_aborted_transactions_are_sorted_by_their_first_offset() -> None:
    """Clients rely on it; others sort by marker and hide the wrong records."""
    partition = await Machine().start()
    clients = [Client(partition, producer_id=n, is_transactional=True) for n in range(1, 5)]
    for client in clients:
        client.send(f"of {client.producer_id}")
    for client in reversed(clients):
        client.end(committed=False)
    await partition.flush()
    read = await partition.read(0, 10_000, read_committed=True)
    assert read.aborted == tuple(AbortedTransaction(n, n - 1) for n in range(1, 5))


async def test_a_transaction_without_records_here_is_in_no_index() -> None:
    """KAFKA-10702."""
    partition = await Machine().start()
    partition.append_marker(producer_id=9, producer_epoch=0, coordinator_epoch=0, committed=False)
    client = Client(partition, is_transactional=True)
    client.send("one")
    client.end(committed=False)
    client.end(committed=False)
    await partition.flush()
    assert (await partition.read(0, 10_000, read_committed=True)).aborted == (
        AbortedTransaction(1, 1),
    )


async def test_a_marker_says_what_it_was_told() -> None:
    partition = await Machine().start()
    partition.append_marker(
        producer_id=9, producer_epoch=3, coordinator_epoch=7, committed=True, transaction_version=2
    )
    await partition.flush()
    ((header, data),) = await read_all(partition)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert header.is_control
    assert header.is_transactional
    marker = read_marker(data)
    assert (marker.committed, marker.coordinator_epoch) == (True, 7)
    again = partition.append_marker(
        producer_id=9, producer_epoch=3, coordinator_epoch=7, committed=True, transaction_version=2
    )
    assert again is None


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "transaction_version", "code"),
    [
        (9, -1, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (9, -2, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (9, 0, -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (-1, 0, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (-5, 0, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_marker_of_nobody_is_refused(
    producer_id: int, producer_epoch: int, transaction_version: int, code: ErrorCode
) -> None:
    partition = await Machine().start()
    with pytest.raises(KafkaError) as caught:
        partition.append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=0,
            committed=True,
            transaction_version=transaction_version,
        )
    assert code_of(caught) is code
    assert partition.log_end_offset == 0


async def test_a_repeated_batch_is_answered_as_the_first_and_not_stored_again() -> None:
    machine = Machine()
    partition = await machine.start()
    client = Client(partition)
    made = client.make("a", "b", "c")
    again = memoryview(bytearray(made))
    first = partition.append_from_client(made)
    answer = partition.append_from_client(again)
    assert (answer.base_offset, answer.last_offset) == (first.base_offset, first.last_offset)
    assert answer.is_duplicate
    assert answer.log_append_time_ms == machine.clock.now_ms  # the batch's time, as in Kafka
    assert partition.log_end_offset == 3


async def test_a_refused_batch_leaves_no_trace() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.append_from_client(batch("good"))
    before = machine.disk.bytes_of(partition.log.active.path())
    bad = batch("bad")
    bad[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        partition.append_from_client(bad)
    assert code_of(caught) is ErrorCode.CORRUPT_MESSAGE
    assert machine.disk.bytes_of(partition.log.active.path()) == before
    assert partition.log_end_offset == 1


async def test_offset_and_leader_epoch_are_set_in_the_senders_own_bytes() -> None:
    machine = Machine()
    partition = await machine.start(leader_epoch=6)
    partition.append_from_client(batch("a"))
    data = batch("b", "c")
    partition.append_from_client(data)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 6)
    assert machine.disk.bytes_of(partition.log.active.path()).endswith(bytes(data))
    assert partition.leader_epoch_at(2) == 6


async def test_the_brokers_own_records_get_its_time_and_come_back_as_written() -> None:
    machine = Machine()
    partition = await machine.start()
    appended = partition.append_records(
        [Record(key=b"k", value=b"v"), Record(key=b"k2", value=None, timestamp_ms=5)]
    )
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    await partition.flushed(2)
    found = [record async for _, data in partition.batches() for record in decode_batch(data)]
    assert [(record.key, record.value) for record in found] == [(b"k", b"v"), (b"k2", None)]
    assert [record.timestamp_ms for record in found] == [machine.clock.now_ms, 5]


# group commit


async def test_one_fsync_serves_everybody_who_waited_before_it_began() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.append_from_client(batch("the first takes longer"))
    await partition.flush()
    before = machine.disk.counts["fsync"]
    done: list[int] = []

    async def append_and_wait(number: int) -> None:
        appended = partition.append_from_client(batch(str(number)))
        await partition.flushed(appended.last_offset + 1)
        done.append(number)

    gate = machine.disk.fsync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_and_wait, 0)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 50):
            nursery.start_soon(append_and_wait, number)
        await trio.testing.wait_all_tasks_blocked()
        assert done == []
        assert machine.disk.counts["fsync"] == before + 1
        assert partition.high_watermark == 1
        gate.set()
    assert sorted(done) == list(range(50))
    assert machine.disk.counts["fsync"] == before + 2


async def test_who_is_cancelled_while_flushing_does_not_take_the_others_along() -> None:
    machine = Machine()
    partition = await machine.start()
    gate = machine.disk.fsync_gate = trio.Event()
    ended: list[str] = []

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await partition.flushed(2)
            ended.append(name)

    partition.append_from_client(batch("a", "b"))
    scopes = [trio.CancelScope() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for number, scope in enumerate(scopes):
            nursery.start_soon(wait, f"waiter {number}", scope)
        await trio.testing.wait_all_tasks_blocked()
        scopes[0].cancel()
        scopes[1].cancel()
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert "waiter 2" in ended
    assert partition.high_watermark == 2


async def test_what_nobody_waits_for_is_flushed_all_the_same() -> None:
    """acks 0 and 1, and connections that are gone."""
    async with running(Machine()) as partition:
        with Watch([partition]) as watch:
            for _ in range(3):
                end = partition.append_from_client(batch("a")).last_offset + 1
                while partition.high_watermark < end:
                    await watch.wait()


async def test_what_is_appended_while_an_fsync_runs_is_flushed_by_another() -> None:
    machine = Machine()
    async with running(machine) as partition:
        gate = machine.disk.fsync_gate = trio.Event()
        partition.append_from_client(batch("a"))
        await trio.testing.wait_all_tasks_blocked()
        partition.append_from_client(batch("b"))
        await trio.testing.wait_all_tasks_blocked()
        machine.disk.fsync_gate = None
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert partition.high_watermark == 2


async def test_a_marker_that_is_not_on_disk_yet_lets_nobody_read_on() -> None:
    """What was flushed before it raises the high watermark, and the transaction is not open any
    more in memory; but the marker, and with it the end of the transaction, could still be lost."""
    machine = Machine()
    async with running(machine) as partition:
        client = Client(partition, is_transactional=True)
        client.send("aborted")
        await partition.flush()
        first = machine.disk.fsync_gate = trio.Event()
        partition.append_from_client(batch("plain"))
        await trio.testing.wait_all_tasks_blocked()
        client.end(committed=False)
        second = machine.disk.fsync_gate = trio.Event()
        first.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
        machine.disk.fsync_gate = None
        second.set()
        await trio.testing.wait_all_tasks_blocked()
        assert partition.last_stable_offset == partition.high_watermark == 3


# checkpoints


async def test_a_checkpoint_is_never_older_than_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine()
    async with running(machine) as partition:
        partition.append_from_client(batch("a"))
        assert partition.log.unsaved_bytes > 0
        await trio.sleep(5)
        assert partition.log.unsaved_bytes == 0
        before = machine.disk.operations
        await trio.sleep(60)
        assert machine.disk.operations == before  # nothing to do, nothing done


async def test_a_checkpoint_comes_at_once_when_much_was_appended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    machine = Machine(config=LogConfig(max_message_bytes=20 << 20))
    async with running(machine) as partition:
        for _ in range(5):
            partition.append_from_client(batch("x" * (4 << 20)))
        await trio.sleep(0.1)
        assert partition.log.unsaved_bytes == 0


async def test_a_checkpoint_that_cannot_be_written_is_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    machine = Machine()
    async with running(machine) as partition:
        partition.append_from_client(batch("a"))
        machine.disk.fail("append", errno.ENOSPC, path_end="checkpoint.tmp")
        await trio.sleep(5)
        assert partition.log.unsaved_bytes > 0
        await trio.sleep(15)
        assert partition.log.unsaved_bytes == 0
        assert partition.append_from_client(batch("b")).base_offset == 1


# failing disks


async def test_a_full_disk_refuses_an_append_and_later_ones_work_again() -> None:
    machine = Machine()
    partition = await machine.start()
    client = Client(partition)
    client.send("kept")
    await partition.flush()
    machine.disk.capacity_bytes = machine.disk.used_bytes + 20
    made = client.make("no room")
    with pytest.raises(KafkaError) as caught:
        partition.append_from_client(memoryview(bytearray(made)))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "full" in caught.value.message
    assert len(await read_all(partition)) == 1
    machine.disk.capacity_bytes = None
    assert partition.append_from_client(made).base_offset == 1
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
            partition.append_from_client(memoryview(bytearray(made)))
        assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log_end_offset == 2, number
    assert partition.append_from_client(made).base_offset == 2
    await partition.flush()
    for _ in range(2):
        assert [h.base_offset for h, _ in await read_all(partition)] == [0, 1, 2]
        partition = await machine.restart_after_power_loss()


async def test_an_io_error_on_append_takes_the_partition_offline_and_no_other() -> None:
    """KAFKA-10778."""
    machine = Machine()
    partition = await machine.start()
    other = await machine.partitions.create("other", UUID(int=3), 0, LogConfig())
    partition.append_from_client(batch("kept"))
    await partition.flush()
    machine.disk.fail("append", errno.EIO)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            partition.append_from_client(batch("lost"))
        assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError) as caught:
        await partition.read(0, 100, read_committed=False)
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    other.append_from_client(batch("fine"))
    await other.flush()
    partition = await machine.restart_after_power_loss()
    assert len(await read_all(partition)) == 1


async def test_a_failed_fsync_is_never_tried_again_and_everybody_who_waits_is_told() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.append_from_client(batch("a"))
    told: list[ErrorCode] = []

    async def wait() -> None:
        with pytest.raises(KafkaError) as caught:
            await partition.flushed(1)
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
        partition.append_from_client(batch("b"))
    await machine.stop()
    assert machine.disk.counts["fsync"] == before
    assert not machine.disk.exists(f"{DIRECTORY}/clean-shutdown")


async def test_a_failed_fsync_of_an_index_takes_the_partition_offline() -> None:
    machine = Machine(config=LogConfig(index_interval_bytes=0))
    partition = await machine.start()
    for _ in range(3):
        partition.append_from_client(batch("a"))
    machine.disk.fail("fsync", errno.EIO, path_end=".index")
    with pytest.raises(OSError, match="Input/output"):
        await partition.checkpoint()
    with pytest.raises(KafkaError) as caught:
        partition.append_from_client(batch("b"))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    partition = await machine.restart_after_power_loss()
    assert partition.log_end_offset == 3


# waiting for news


async def test_a_reader_of_many_partitions_is_woken_by_any_of_them() -> None:
    machine = Machine()
    first = await machine.start()
    second = await machine.partitions.create("other", UUID(int=3), 0, LogConfig())
    with machine.partitions.watch([first, second, first]) as watch:
        for partition in (second, first):
            with trio.move_on_after(0):
                await watch.wait()
                raise AssertionError("there was no news")
            partition.append_from_client(batch())
            await partition.flush()
            await watch.wait()


async def test_news_between_looking_and_waiting_are_not_missed() -> None:
    machine = Machine()
    partition = await machine.start()
    with machine.partitions.watch([partition]) as watch:
        assert (await partition.read(0, 100, read_committed=True)).records == b""
        partition.append_from_client(batch())
        await partition.flush()
        await watch.wait()


async def test_a_marker_wakes_readers_who_wait_for_the_last_stable_offset() -> None:
    machine = Machine()
    partition = await machine.start()
    client = Client(partition, is_transactional=True)
    client.send("one")
    await partition.flush()
    with machine.partitions.watch([partition]) as watch:
        client.end(committed=True)
        await partition.flush()
        await watch.wait()
    assert partition.last_stable_offset == 2


async def test_a_reader_that_goes_away_leaves_nothing_behind() -> None:
    machine = Machine()
    partition = await machine.start()

    async def wait() -> None:
        with machine.partitions.watch([partition]) as watch:
            await watch.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert len(partition.watches) == 5
        nursery.cancel_scope.cancel()
    assert partition.watches == {}


# deleting


async def test_a_deleted_topic_is_gone_and_its_readers_are_told() -> None:
    machine = Machine()
    async with running(machine) as partition:
        partition.append_from_client(batch())
        await partition.flush()
        with machine.partitions.watch([partition]) as watch:
            await machine.partitions.delete(partition.topic, [0])
            await watch.wait()
        for attempt in (
            lambda: machine.partitions.get(partition.topic, 0),
            lambda: partition.append_from_client(batch()),
            partition.check_available,
        ):
            with pytest.raises(KafkaError) as caught:
                attempt()
            assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError) as caught:
            await partition.read(0, 100, read_committed=False)
        assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await trio.testing.wait_all_tasks_blocked()
        assert machine.disk.listdir(DIRECTORY) == []
        again = await machine.partitions.create(partition.topic, UUID(int=8), 0, LogConfig())
        assert again.log_end_offset == 0


async def test_who_waits_for_the_disk_when_a_topic_is_deleted_is_told() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.append_from_client(batch())
    gate = machine.disk.fsync_gate = trio.Event()

    async def wait() -> None:
        with pytest.raises(KafkaError) as caught:
            await partition.flushed(1)
        assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(machine.partitions.delete, partition.topic, [0])
        await trio.testing.wait_all_tasks_blocked()
        gate.set()


async def test_what_is_left_of_deleted_topics_is_removed_at_the_next_start() -> None:
    machine = Machine()
    partition = await machine.start()
    await machine.partitions.delete(partition.topic, [0])
    machine.disk.kill()
    async with running(machine):
        await trio.testing.wait_all_tasks_blocked()
        assert [n for n in machine.disk.listdir(DIRECTORY) if n.endswith(".deleted")] == []


# age


async def test_silent_producers_are_forgotten_and_retention_goes_on_in_the_background(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Redpanda #18198: they would be kept for ever."""
    machine = Machine(config=LogConfig(producer_id_expiration_ms=1000, retention_ms=5000))
    async with running(machine) as partition:
        for number in range(20):
            Client(partition, producer_id=number).send("once")
        assert len(partition.producers()) == 20
        machine.clock.advance(1001)
        await trio.sleep(601)
        assert partition.producers() == []
        assert partition.log_start_offset == 0
        machine.clock.advance(5000)
        await trio.sleep(601)
        assert partition.log_start_offset == 20


async def test_an_unknown_partition_is_refused() -> None:
    partitions = Partitions(disk=Machine().disk, directory="/data", clock=Machine().clock)
    with pytest.raises(KafkaError) as caught:
        partitions.get("nowhere", 0)
    assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partitions.recovered == "nothing to recover"
