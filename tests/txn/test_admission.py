"""Which batches of a Produce are let into a transaction that others are ending at the same time."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import trio
import trio.testing

from odradek.broker.api.context import RequestContext
from odradek.broker.api.produce import Batch
from odradek.broker.api.transactional import admit
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.produce import ProduceRequest
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from tests.txn.world import ID, P0, P1, P2, Marker, World

TV2_PRODUCE: Final = 12


@dataclass
class Leader:
    """What admission asks of a partition."""

    open_epochs: dict[int, int] = field(default_factory=dict)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.open_epochs.get(producer_id) == producer_epoch

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        return False


def a_batch(who: ProducerIdAndEpoch, partition: TopicPartition, leader: Leader) -> Batch:
    records = encode_batch(
        [Record(key=None, value=b"1", timestamp_ms=0)],
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    return Batch(
        topic=partition.topic,
        index=partition.partition,
        records=memoryview(records),
        header=read_header(records),
        partition=cast(Any, leader),
    )


def asking(world: World, version: int) -> RequestContext:
    config = SimpleNamespace(transaction_partition_verification_enable=True)
    core = cast(Any, SimpleNamespace(transactions=world.coordinator, config=config))
    return RequestContext(core=core, api_version=version, client_id="", host="127.0.0.1")


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_transaction_that_ends_while_a_partition_is_added_takes_no_more_records(
    world: World, is_stuck: bool
) -> None:
    """Partition 0 had the transaction open, so nobody asked about it; then the request waited for
    partition 1, and meanwhile the transaction was ended by a request of generation 1, whose marker
    has the same epoch. The record behind the marker was in a transaction that nobody would end:
    neither the one that was complete (or, if `is_stuck`, nearly), nor the next one."""
    me = await world.init()
    await world.add(me, P0, P2)
    first, second = Leader({me.producer_id: me.producer_epoch}), Leader()

    def answer(marker: Marker) -> ErrorCode:
        if marker.partition == P0:
            first.open_epochs.clear()
        is_refused = is_stuck and marker.partition == P2
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_refused else ErrorCode.NONE

    world.markers.answer = answer
    batches = [a_batch(me, P0, first), a_batch(me, P1, second)]
    request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=500, topic_data=())
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, me, 0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(admit, asking(world, TV2_PRODUCE), request, batches)
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    codes = [batch.error.code if batch.error else ErrorCode.NONE for batch in batches]
    if is_stuck:
        assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    else:
        assert codes == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]
