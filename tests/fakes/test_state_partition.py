"""The fake state partition loses exactly what a real one may lose, and fails on request."""

import pytest
import trio
import trio.testing

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record, batch_of
from tests.fakes.state_partition import FakeStatePartition, FakeStatePartitions


def record(text: str) -> Record:
    return Record(key=text.encode(), value=b"")


def keys(records: list[Record]) -> str:
    return b"".join(record.key or b"" for record in records).decode()


async def test_only_what_was_flushed_survives_a_crash() -> None:
    partition = FakeStatePartition()
    appended = partition.append_records([record("a"), record("b")])
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    await partition.wait_committed(2)
    partition.append_records([record("c")])
    partition.append_records([record("d")])
    assert keys(partition.records) == "abcd"
    assert keys(partition.durable_records) == "ab"
    successor = partition.crash(keep=1)
    assert keys(successor.records) == keys(successor.durable_records) == "abc"
    assert successor.leader_epoch == 1
    assert keys(FakeStatePartition().crash().records) == ""


async def test_a_held_flush_covers_only_what_was_there_when_it_began(
    nursery: trio.Nursery,
) -> None:
    partition = FakeStatePartition()
    partition.append_records([record("a")])
    partition.hold()
    nursery.start_soon(partition.wait_committed, 1)
    await trio.testing.wait_all_tasks_blocked()
    partition.append_records([record("b")])
    assert keys(partition.durable_records) == ""
    partition.release()
    await trio.testing.wait_all_tasks_blocked()
    assert keys(partition.durable_records) == "a"


async def test_a_failed_append_writes_nothing_and_a_failed_flush_may_have() -> None:
    partition = FakeStatePartition()
    partition.append_errors = [ErrorCode.KAFKA_STORAGE_ERROR]
    with pytest.raises(KafkaError):
        partition.append_records([record("a")])
    partition.append_records([record("b")])
    partition.flush_errors = [ErrorCode.KAFKA_STORAGE_ERROR]
    with pytest.raises(KafkaError):
        await partition.wait_committed(1)
    assert keys(partition.durable_records) == ""
    assert keys(partition.crash(keep=1).records) == "b"


async def test_whoever_lost_the_partition_can_do_nothing_with_it() -> None:
    partition = FakeStatePartition()
    partition.append_records([record("a")])
    successor = partition.hand_over()
    with pytest.raises(KafkaError):
        partition.append_records([record("b")])
    with pytest.raises(KafkaError):
        await partition.wait_committed(1)
    assert [header.base_offset async for header, _ in successor.batches()] == [0]


async def test_markers_are_control_batches_among_the_others() -> None:
    partition = FakeStatePartition()
    batch = batch_of([record("a")])
    partition.append_batch(batch, producer_id=5, producer_epoch=0, is_transactional=True)
    partition.append_marker(committed=True, producer_id=5, producer_epoch=0, coordinator_epoch=2)
    found = [header async for header, _ in partition.batches(1)]
    assert [(header.is_control, header.base_offset) for header in found] == [(True, 1)]
    assert keys(partition.records) == "a"


def test_a_partition_that_is_not_here_is_refused() -> None:
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        FakeStatePartitions(2).get(2)
