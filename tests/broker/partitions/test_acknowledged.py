"""What is appended to a partition, and when it counts: group commit."""

import pytest
import trio
import trio.testing

from odradek.broker.partitions.watch import Watch
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.marking import NewMarker
from odradek.protocol.batch import read_header
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, decode_batch
from tests.broker.own_records import append_marker, append_records
from tests.broker.partitions.running import code_of, running
from tests.broker.storage.samples import Client, Machine, batch, read_all


async def test_nothing_is_seen_before_it_is_on_disk() -> None:
    partition = await Machine().start()
    appended = partition.leader().append_from_client(batch("a", "b"))
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    assert (partition.high_watermark, partition.log_end_offset) == (0, 2)
    assert (await partition.leader().read(0, 100, read_committed=False)).records == b""
    await partition.leader().wait_committed(2)
    assert partition.high_watermark == partition.last_stable_offset == 2


async def test_with_flush_os_it_is_seen_at_once() -> None:
    machine = Machine(config=LogConfig(flush=FlushPolicy.OS))
    partition = await machine.start()
    partition.leader().append_from_client(batch("a", "b"))
    assert partition.high_watermark == 2
    before = machine.disk.counts["fsync"]
    await partition.leader().wait_committed(2)
    assert machine.disk.counts["fsync"] == before


async def test_a_marker_says_what_it_was_told() -> None:
    partition = await Machine().start()
    append_marker(
        partition,
        NewMarker(
            producer_id=9,
            producer_epoch=3,
            coordinator_epoch=7,
            committed=True,
            transaction_version=2,
        ),
    )
    await partition.flush()
    ((header, data),) = await read_all(partition)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert header.is_control
    assert header.is_transactional
    marker = read_marker(data)
    assert (marker.committed, marker.coordinator_epoch) == (True, 7)
    again = append_marker(
        partition,
        NewMarker(
            producer_id=9,
            producer_epoch=3,
            coordinator_epoch=7,
            committed=True,
            transaction_version=2,
        ),
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
        append_marker(
            partition,
            NewMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=0,
                committed=True,
                transaction_version=transaction_version,
            ),
        )
    assert code_of(caught) is code
    assert partition.log_end_offset == 0


async def test_a_repeated_batch_is_answered_as_the_first_and_not_stored_again() -> None:
    machine = Machine()
    partition = await machine.start()
    client = Client(partition)
    made = client.make("a", "b", "c")
    again = memoryview(bytearray(made))
    first = partition.leader().append_from_client(made)
    answer = partition.leader().append_from_client(again)
    assert (answer.base_offset, answer.last_offset) == (first.base_offset, first.last_offset)
    assert answer.is_duplicate
    assert answer.log_append_time_ms == machine.clock.now_ms  # the batch's time, as in Kafka
    assert partition.log_end_offset == 3


async def test_a_refused_batch_leaves_no_trace() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("good"))
    before = machine.disk.bytes_of(partition.log.active.path())
    bad = batch("bad")
    bad[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        partition.leader().append_from_client(bad)
    assert code_of(caught) is ErrorCode.CORRUPT_MESSAGE
    assert machine.disk.bytes_of(partition.log.active.path()) == before
    assert partition.log_end_offset == 1


async def test_offset_and_leader_epoch_are_set_in_the_senders_own_bytes() -> None:
    machine = Machine()
    partition = await machine.start(leader_epoch=6)
    partition.leader().append_from_client(batch("a"))
    data = batch("b", "c")
    partition.leader().append_from_client(data)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 6)
    assert machine.disk.bytes_of(partition.log.active.path()).endswith(bytes(data))
    assert partition.log.epochs.at(2) == 6


async def test_the_brokers_own_records_come_back_as_written() -> None:
    machine = Machine()
    partition = await machine.start()
    appended = append_records(
        partition, [Record(key=b"k", value=b"v"), Record(key=b"k2", value=None, timestamp_ms=5)]
    )
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    await partition.leader().wait_committed(2)
    found = [record for _, data in await read_all(partition) for record in decode_batch(data)]
    assert [(record.key, record.value) for record in found] == [(b"k", b"v"), (b"k2", None)]
    assert [record.timestamp_ms for record in found] == [machine.clock.now_ms, 5]


# group commit


async def test_one_fsync_serves_everybody_who_waited_before_it_began() -> None:
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("the first takes longer"))
    await partition.flush()
    before = machine.disk.counts["fsync"]
    done: list[int] = []

    async def append_and_wait(number: int) -> None:
        appended = partition.leader().append_from_client(batch(str(number)))
        await partition.leader().wait_committed(appended.last_offset + 1)
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
            await partition.leader().wait_committed(2)
            ended.append(name)

    partition.leader().append_from_client(batch("a", "b"))
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
        with Watch([partition.marks.readers]) as watch:
            for _ in range(3):
                end = partition.leader().append_from_client(batch("a")).last_offset + 1
                while partition.high_watermark < end:
                    await watch.wait()


async def test_what_is_appended_while_an_fsync_runs_is_flushed_by_another() -> None:
    machine = Machine()
    async with running(machine) as partition:
        gate = machine.disk.fsync_gate = trio.Event()
        partition.leader().append_from_client(batch("a"))
        await trio.testing.wait_all_tasks_blocked()
        partition.leader().append_from_client(batch("b"))
        await trio.testing.wait_all_tasks_blocked()
        machine.disk.fsync_gate = None
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert partition.high_watermark == 2
