"""Admission of batches to a transaction that another request ends at the same time."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from odradek.broker.txn.admission import Admission, CoordinatorAnswer, Verdict
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import ID, P0, P1, P2, Marker, World

ME = ProducerIdAndEpoch(producer_id=9, producer_epoch=3)


@dataclass
class Leader:
    """A partition as admission sees it."""

    open_epochs: dict[int, int] = field(default_factory=dict)
    marker_offset: int = -1
    marker_epoch: int = -1

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.open_epochs.get(producer_id) == producer_epoch

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        return False

    def last_marker_offset(self, producer_id: int) -> int:
        return self.marker_offset

    def coordinator_epoch(self, producer_id: int) -> int:
        return self.marker_epoch


class Elsewhere:
    """A coordinator on another broker. `before` is called before each of its answers."""

    def __init__(
        self, epoch: int, before: Callable[[], None] = lambda: None, *, is_shown: bool = True
    ) -> None:
        self.epoch = epoch
        self.is_shown = is_shown  # by this broker's image
        self.before = before
        self.requests: list[bool] = []

    def coordinates_elsewhere(self, transactional_id: str) -> bool:
        return self.is_shown

    async def add_partitions(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
        is_check: bool,
    ) -> CoordinatorAnswer:
        await trio.lowlevel.checkpoint()
        self.requests.append(is_check)
        self.before()
        return CoordinatorAnswer(dict.fromkeys(partitions, ErrorCode.NONE), self.epoch)


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
    verdicts: dict[TopicIdPartition, Verdict] = {}

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


async def ask_elsewhere(world: World, others: Elsewhere, leader: Leader, *, adds: bool) -> Verdict:
    admission = Admission(world.coordinator, verifies=True, others=others)
    verdicts = await admission.admit(
        transactional_id=ID, producer=ME, leaders={P0: leader}, adds=adds, patience_ms=500
    )
    return verdicts[P0]


@pytest.mark.parametrize("adds", [True, False])
async def test_a_coordinator_elsewhere_is_asked_by_one_request(world: World, adds: bool) -> None:
    others = Elsewhere(epoch=4)
    assert (await ask_elsewhere(world, others, Leader(), adds=adds)).code is ErrorCode.NONE
    assert others.requests == [not adds]
    open_here = Leader({ME.producer_id: ME.producer_epoch})
    assert (await ask_elsewhere(world, others, open_here, adds=adds)).code is ErrorCode.NONE
    assert len(others.requests) == 1


async def test_what_a_deposed_coordinator_confirms_is_worthless(world: World) -> None:
    """The partition has a marker of a later coordinator: the transaction may be over."""
    leader = Leader(marker_epoch=5)
    verdict = await ask_elsewhere(world, Elsewhere(epoch=4), leader, adds=False)
    assert verdict.code is ErrorCode.NOT_COORDINATOR
    verdict = await ask_elsewhere(world, Elsewhere(epoch=5), leader, adds=False)
    assert verdict.code is ErrorCode.NONE


@pytest.mark.parametrize("adds", [True, False])
async def test_a_leader_that_was_the_coordinator_confirms_nothing_either(
    world: World, adds: bool
) -> None:
    """Its image may be late, and show it as the coordinator that it is no more.

    Without other brokers the later epoch is that of an administrator's marker.
    """
    me = await world.init()
    await world.add(me, P0)
    epoch = world.coordinator.coordinator_epoch(ID)
    others = Elsewhere(epoch=0, is_shown=False)

    async def ask(marker_epoch: int, others: Elsewhere | None) -> ErrorCode:
        verdicts = await Admission(world.coordinator, verifies=True, others=others).admit(
            transactional_id=ID,
            producer=me,
            leaders={P0: Leader(marker_epoch=marker_epoch)},
            adds=adds,
            patience_ms=500,
        )
        return verdicts[P0].code

    assert await ask(epoch, others) is ErrorCode.NONE
    assert await ask(epoch + 1, others) is ErrorCode.NOT_COORDINATOR
    assert await ask(epoch + 1, None) is ErrorCode.NONE


async def test_a_marker_that_comes_meanwhile_has_the_coordinator_asked_again(world: World) -> None:
    """It was that of the transaction before, and the batch was refused for it (KAFKA-14884)."""
    leader = Leader()

    def mark() -> None:
        leader.marker_offset = 7

    others = Elsewhere(epoch=4, before=mark)
    began = trio.current_time()
    verdict = await ask_elsewhere(world, others, leader, adds=True)
    assert verdict == (ErrorCode.NONE, 7)
    assert len(others.requests) == 2
    assert trio.current_time() == began  # a pause would be one in every transaction


async def test_a_verdict_that_markers_overtake_until_time_is_over_can_be_asked_for_again(
    world: World,
) -> None:
    """The append refused the batch with INVALID_TXN_STATE, which no client tries again."""
    leader = Leader()

    def mark() -> None:
        leader.marker_offset += 1

    others = Elsewhere(epoch=4, before=mark)
    verdict = await ask_elsewhere(world, others, leader, adds=True)
    assert verdict.code is ErrorCode.CONCURRENT_TRANSACTIONS
