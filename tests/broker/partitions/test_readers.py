"""What readers see of a partition, and when they are woken."""

from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.partitions.partitions import Partitions, ReadResult
from odradek.broker.partitions.watch import Watch
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.marking import NewMarker
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.own_records import append_marker
from tests.broker.partitions.running import code_of, running
from tests.broker.storage.samples import DIRECTORY, PARTITION_DIRECTORY, Client, Machine, batch

# high watermark and last stable offset


async def test_the_last_stable_offset_waits_for_the_oldest_open_transaction() -> None:
    partition = await Machine().start()
    first = Client(partition, producer_id=1, is_transactional=True)
    second = Client(partition, producer_id=2, is_transactional=True)
    partition.leader().append_from_client(batch("plain"))  # 0
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
        results.append(await partition.leader().read(0, 1000, read_committed=True))
        results.append(await partition.leader().read(0, 1000, read_committed=False))

    async def abort() -> None:
        client.end(committed=False)
        await partition.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(abort)
    for result in [*results, await partition.leader().read(0, 1000, read_committed=True)]:
        visible = [header for header, _ in iter_batches(result.records)]
        end = max((header.next_offset for header in visible), default=0)
        assert end <= result.high_watermark
        if result.last_stable_offset == 0:
            assert result.aborted == ()
    committed = await partition.leader().read(0, 1000, read_committed=True)
    assert committed.aborted == (AbortedTxn(1, 0),)


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
        read = await partition.leader().read(begins_at, 1000, read_committed=True)
        assert (bytes(read.records), read.last_stable_offset) == (b"", begins_at)
        client.end(committed=False)
        await partition.flush()


async def test_a_marker_that_is_not_on_disk_yet_lets_nobody_read_on() -> None:
    """What was flushed before it raises the high watermark, and the transaction is not open any
    more in memory; but the marker, and with it the end of the transaction, could still be lost."""
    machine = Machine()
    async with running(machine) as partition:
        client = Client(partition, is_transactional=True)
        client.send("aborted")
        await partition.flush()
        first = machine.disk.fsync_gate = trio.Event()
        partition.leader().append_from_client(batch("plain"))
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


async def test_aborted_transactions_are_sorted_by_their_first_offset() -> None:
    """Clients rely on it; others sort by marker and hide the wrong records."""
    partition = await Machine().start()
    clients = [Client(partition, producer_id=n, is_transactional=True) for n in range(1, 5)]
    for client in clients:
        client.send(f"of {client.producer_id}")
    for client in reversed(clients):
        client.end(committed=False)
    await partition.flush()
    read = await partition.leader().read(0, 10_000, read_committed=True)
    assert read.aborted == tuple(AbortedTxn(n, n - 1) for n in range(1, 5))


async def test_a_transaction_without_records_here_is_in_no_index() -> None:
    """KAFKA-10702."""
    partition = await Machine().start()
    append_marker(
        partition, NewMarker(producer_id=9, producer_epoch=0, coordinator_epoch=0, committed=False)
    )
    client = Client(partition, is_transactional=True)
    client.send("one")
    client.end(committed=False)
    client.end(committed=False)
    await partition.flush()
    assert (await partition.leader().read(0, 10_000, read_committed=True)).aborted == (
        AbortedTxn(1, 1),
    )


# waiting for news


async def test_a_reader_of_many_partitions_is_woken_by_any_of_them() -> None:
    machine = Machine()
    first = await machine.start()
    second = await machine.partitions.create("other", UUID(int=3), 0, LogConfig())
    with Watch([each.marks.readers for each in (first, second, first)]) as watch:
        for partition in (second, first):
            with trio.move_on_after(0):
                await watch.wait()
                raise AssertionError("there was no news")
            partition.leader().append_from_client(batch())
            await partition.flush()
            await watch.wait()


async def test_news_between_looking_and_waiting_are_not_missed() -> None:
    machine = Machine()
    partition = await machine.start()
    with Watch([partition.marks.readers]) as watch:
        assert (await partition.leader().read(0, 100, read_committed=True)).records == b""
        partition.leader().append_from_client(batch())
        await partition.flush()
        await watch.wait()


async def test_a_marker_wakes_readers_who_wait_for_the_last_stable_offset() -> None:
    machine = Machine()
    partition = await machine.start()
    client = Client(partition, is_transactional=True)
    client.send("one")
    await partition.flush()
    with Watch([partition.marks.readers]) as watch:
        client.end(committed=True)
        await partition.flush()
        await watch.wait()
    assert partition.last_stable_offset == 2


async def test_a_reader_that_goes_away_leaves_nothing_behind() -> None:
    machine = Machine()
    partition = await machine.start()

    async def wait() -> None:
        with Watch([partition.marks.readers]) as watch:
            await watch.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert len(partition.marks.readers.watches) == 5
        nursery.cancel_scope.cancel()
    assert partition.marks.readers.watches == {}


# partitions that are not there


async def test_a_deleted_topic_is_gone_and_its_readers_are_told() -> None:
    machine = Machine()
    async with running(machine) as partition:
        partition.leader().append_from_client(batch())
        await partition.flush()
        with Watch([partition.marks.readers]) as watch:
            await machine.partitions.delete(partition.topic, [0])
            await watch.wait()
        for attempt in (
            lambda: machine.partitions.leader(partition.topic, 0),
            lambda: partition.leader().append_from_client(batch()),
            partition.leader,
        ):
            with pytest.raises(KafkaError) as caught:
                attempt()
            assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError) as caught:
            await partition.leader().read(0, 100, read_committed=False)
        assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await trio.testing.wait_all_tasks_blocked()
        assert machine.disk.listdir(DIRECTORY) == ["last-run"]
        again = await machine.partitions.create(partition.topic, UUID(int=8), 0, LogConfig())
        assert again.log_end_offset == 0


async def test_what_is_deleted_while_it_is_read_is_not_taken_for_committed() -> None:
    """What had been aborted of it was looked for in the segments that were left."""
    moment, is_over = 0, False
    while not is_over:
        machine = Machine(config=LogConfig(segment_bytes=300))
        partition = await machine.start()
        client = Client(partition, is_transactional=True)
        client.send("aborted")
        client.end(committed=False)
        for _ in range(4):
            client.send("committed")
        client.end(committed=True)
        await partition.flush()
        found: list[ReadResult | ErrorCode] = []

        async def read() -> None:
            try:
                found.append(await partition.leader().read(0, 1000, read_committed=True))  # noqa: B023
            except KafkaError as error:
                found.append(error.code)  # noqa: B023

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            is_over = bool(found)
            await partition.maintenance.delete_before(partition.log.active.base_offset)
        (answer,) = found
        if isinstance(answer, ReadResult):
            assert answer.aborted == (AbortedTxn(1, 0),), moment
        else:
            assert answer is ErrorCode.OFFSET_OUT_OF_RANGE
        moment += 1
    assert moment > 2


async def test_a_late_reader_of_a_deleted_topic_leaves_the_files_of_the_next_alone() -> None:
    """It opened them by their names, made one that was not there, and so ended the next start."""
    machine = Machine(config=LogConfig(segment_bytes=150))
    partition = await machine.start()
    for _ in range(4):
        partition.leader().append_from_client(batch())
    await partition.checkpoint()
    await machine.partitions.delete(partition.topic, [0])
    again = await machine.partitions.create(partition.topic, UUID(int=8), 0, LogConfig())
    names = machine.disk.listdir(PARTITION_DIRECTORY)
    for offset in range(4):
        with pytest.raises(KafkaError) as caught:
            await partition.log.reader.read(offset, 100, to_offset=4, min_one=True)
        assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert machine.disk.listdir(PARTITION_DIRECTORY) == names
    assert again.leader().append_from_client(batch()).base_offset == 0


async def test_who_waits_for_the_disk_when_a_topic_is_deleted_is_told() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch())
    gate = machine.disk.fsync_gate = trio.Event()

    async def wait() -> None:
        with pytest.raises(KafkaError) as caught:
            await partition.leader().wait_committed(1)
        assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(machine.partitions.delete, partition.topic, [0])
        await trio.testing.wait_all_tasks_blocked()
        gate.set()


async def test_an_unknown_partition_is_refused() -> None:
    partitions = Partitions(disk=Machine().disk, directory="/data", clock=Machine().clock)
    with pytest.raises(KafkaError) as caught:
        partitions.get_replica("nowhere", 0)
    assert code_of(caught) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partitions.recovery_summary == "nothing to recover"
