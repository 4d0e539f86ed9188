"""A coordinator acts on what it has read only when it cannot be lost any more."""

import trio
import trio.testing

from odradek.broker.coordination.tenure import Tenure, Tenures
from odradek.protocol.record import Record
from tests.fakes.state_partition import FakeStatePartition, FakeStatePartitions


async def test_nothing_is_read_before_the_followers_have_it() -> None:
    """A decision that was lost after its markers had gone out tore its transaction."""
    partitions = FakeStatePartitions(1)
    partition: FakeStatePartition = partitions.current[0]
    partition.append_records([Record(key=b"id", value=b"decided")])
    partition.hold()
    read: list[int] = []

    async def take_up(tenure: Tenure) -> None:
        await trio.lowlevel.checkpoint()
        read.append(tenure.coordinator_epoch)

    tenures = Tenures("t", lambda _key: 0, partitions, Tenure)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tenures.load, 0, take_up)
        await trio.testing.wait_all_tasks_blocked()
        assert read == []
        partition.release()
    assert len(read) == 1


async def test_a_lead_that_ends_while_it_waits_reads_nothing() -> None:
    partitions = FakeStatePartitions(1)
    partition: FakeStatePartition = partitions.current[0]
    partition.append_records([Record(key=b"id", value=b"decided")])
    partition.hold()

    async def take_up(_tenure: Tenure) -> None:
        raise AssertionError("it was read")

    tenures = Tenures("t", lambda _key: 0, partitions, Tenure)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tenures.load, 0, take_up)
        await trio.testing.wait_all_tasks_blocked()
        tenures.unload(0)
        partition.lose()
    assert tenures.get(0) is None
