"""Admission of batches to a transaction that another request ends at the same time."""

from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from odradek.broker.topic_partition import TopicPartition
from odradek.broker.txn.admission import Admission, Verdict
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import ID, P0, P1, P2, Marker, World


@dataclass
class Leader:
    """A partition as admission sees it."""

    open_epochs: dict[int, int] = field(default_factory=dict)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.open_epochs.get(producer_id) == producer_epoch

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        return False

    def last_marker_offset(self, producer_id: int) -> int:
        return -1

    def coordinator_epoch(self, producer_id: int) -> int:
        return -1


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
    verdicts: dict[TopicPartition, Verdict] = {}

    async def ask() -> None:
        admission = Admission(world.coordinator, verifies=True)
        verdicts.update(
            await admission.admit(
                transactional_id=ID,
                producer=me,
                leaders={P0: first, P1: second},
                adds=True,
                patience_ms=500,
            )
        )

    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, me, 0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    codes = [verdicts[partition].code for partition in (P0, P1)]
    if is_stuck:
        assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    else:
        assert codes == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]
