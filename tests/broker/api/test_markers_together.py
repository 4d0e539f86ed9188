"""The markers of a transaction group for one partition: appended, and seen, together."""

from types import SimpleNamespace
from typing import cast

import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.markers import write_txn_markers
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.reads import read_for_follower
from odradek.broker.storage.marking import NewMarker
from odradek.protocol.apis.txn import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from tests.broker.storage.samples import TOPIC, Client, Machine

HERE, FOLLOWER = 1, 2
MEMBERS = range(1, 200)


async def begun(machine: Machine) -> Partition:
    """Return a partition with an open transaction of each member, and one follower."""
    partition = await machine.start()
    partition.begin_lead(
        InSyncView.over(
            node_id=HERE,
            leader_epoch=1,
            replicas=(HERE, FOLLOWER),
            isr=(HERE, FOLLOWER),
            partition_epoch=1,
            now=0.0,
        )
    )
    for member in MEMBERS:
        Client(partition, producer_id=member, is_transactional=True).send()
    await partition.wait_flushed(partition.log_end_offset)
    return partition


def follow(partition: Partition, offset: int) -> None:
    """Have the follower fetch from `offset`."""
    partition.leader().view.note_fetched(FOLLOWER, offset, partition.log_end_offset, 0.0)
    partition.update_visible()


async def mark(machine: Machine, *members: int) -> WriteTxnMarkersResponse:
    """Write the markers of some members, as their coordinator has them written."""

    def reached(point: str) -> None:
        raise AssertionError(f"something may come between: {point}")

    core = cast(Core, SimpleNamespace(partitions=machine.partitions, reached=reached))
    context = RequestContext(core=core, api_version=2, client_id="", host="", is_from_broker=True)
    topics = (WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0,)),)
    request = WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=member,
                producer_epoch=1,
                transaction_result=True,
                topics=topics,
                coordinator_epoch=0,
                transaction_version=2,
            )
            for member in members
        )
    )
    return await write_txn_markers(context, request)


async def test_a_follower_gets_all_of_them_or_none() -> None:
    """A follower that had some of them could lead next."""
    machine = Machine()
    partition = await begun(machine)
    first_marker = partition.log_end_offset
    new = [
        NewMarker(member, producer_epoch=1, coordinator_epoch=0, committed=False)
        for member in MEMBERS
    ]
    appends = machine.disk.counts["append"]
    partition.leader().append_markers(new)
    assert machine.disk.counts["append"] == appends + 1, "kill -9 must not come between them"
    end = partition.log_end_offset
    for offset in (0, first_marker - 1, first_marker, first_marker + 5):
        for max_bytes in range(0, 100_000, 997):
            found = await read_for_follower(partition.log, offset, max_bytes, min_one=True)
            (*_, last) = (header for header, _ in iter_batches(memoryview(found)))
            assert last.next_offset <= first_marker or last.next_offset == end
    machine.disk.kill()


async def test_nothing_comes_between_them_and_no_reader_sees_some_of_them() -> None:
    machine = Machine()
    partition = await begun(machine)
    first_marker = partition.log_end_offset
    follow(partition, first_marker)
    assert partition.last_stable_offset == 0
    end = first_marker + len(MEMBERS)
    async with trio.open_nursery() as nursery:
        answers: list[WriteTxnMarkersResponse] = []

        async def write() -> None:
            answers.append(await mark(machine, *MEMBERS))

        nursery.start_soon(write)
        with trio.fail_after(60):
            while partition.log_end_offset < end:
                await trio.lowlevel.checkpoint()
        await partition.wait_flushed(end)
        for offset in range(first_marker, end):
            follow(partition, offset)
            assert partition.high_watermark == offset
            assert partition.last_stable_offset == 0
        follow(partition, end)
    assert partition.last_stable_offset == end
    codes = {marker.topics[0].partitions[0].error_code for marker in answers[0].markers}
    assert codes == {ErrorCode.NONE}
    machine.disk.kill()
