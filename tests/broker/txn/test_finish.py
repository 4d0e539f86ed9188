"""Markers that a partition refuses for good, although there is no newer coordinator."""

import logging

import pytest
import trio
import trio.testing

from odradek.broker.txn.markers import NO_LEADER
from odradek.broker.txn.transaction import State
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.world import ID, OTHER, P0, P1, P2, Marker, World

NONE = ErrorCode.NONE


async def test_a_marker_is_written_with_the_epoch_that_an_administrator_used(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator's marker had coordinator epoch 7: every later one of ours was refused, the
    id stayed PrepareCommit and the partition's last stable offset stood still."""
    world.markers.known_coordinator_epoch = lambda partition, producer_id: 7
    world.markers.answer = lambda marker: (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if marker.partition == P0 and marker.coordinator_epoch < 7
        else ErrorCode.NONE
    )
    me = await world.init()
    await world.add(me, P0, P1)
    me = await world.commit(me)
    assert await world.settled() is State.COMPLETE_COMMIT
    epochs = {marker.partition: marker.coordinator_epoch for marker in world.markers.written}
    assert epochs == {P0: 7, P1: 0}
    assert "refunds-0 refused the marker of 'refunds-2': it knows coordinator epoch 7" in (
        caplog.text
    )
    await world.add(me, P0)


async def test_what_is_owed_meanwhile_is_what_has_no_marker_yet(world: World) -> None:
    """One partition takes the administrator's epoch, the other not yet."""
    world.markers.known_coordinator_epoch = lambda partition, producer_id: 7
    stuck = [P1]

    def answer(marker: Marker) -> ErrorCode:
        is_refused = marker.coordinator_epoch < 7 or marker.partition in stuck
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if is_refused else ErrorCode.NONE

    world.markers.answer = answer
    me = await world.init()
    await world.add(me, P0, P1)
    await world.commit(me)
    await world.settled()
    assert world.coordinator.describe(ID).partitions == {P1}
    stuck.clear()
    await trio.sleep(2)
    assert world.coordinator.describe(ID).partitions == set()
    assert world.state is State.COMPLETE_COMMIT


async def test_nothing_is_kept_of_what_was_owed_once_it_is_paid(
    world: World, nursery: trio.Nursery
) -> None:
    """Else the next transaction, just decided, would seem to owe nothing."""
    me = await world.init()
    await world.add(me, P0)
    me = await world.commit(me)
    await world.settled()
    entry = world.coordinator._ledger.find(ID)
    assert entry is not None
    assert entry.debt is None
    assert entry.pending is None


async def test_whoever_does_not_coordinate_any_more_sends_nothing_more(world: World) -> None:
    """The completion under the old epoch would have gone on for good, beside the new one."""
    world.markers.answer = lambda marker: ErrorCode.NOT_LEADER_OR_FOLLOWER
    me = await world.init()
    await world.add(me, P0)
    await world.commit(me)
    await trio.sleep(3)
    world.partitions.current[0] = world.log.hand_over()
    await world.coordinator.load(0)
    await trio.testing.wait_all_tasks_blocked()
    world.markers.asked.clear()
    await trio.sleep(30)
    assert {marker.coordinator_epoch for marker in world.markers.asked} == {1}
    world.coordinator.unload(0)
    world.markers.asked.clear()
    await trio.sleep(30)
    assert world.markers.asked == []


async def test_a_deposed_coordinator_does_not_outbid_its_successor(world: World) -> None:
    """It finds out that it is one because it cannot write the decision again."""
    world.markers.known_coordinator_epoch = lambda partition, producer_id: 7
    world.markers.answer = lambda marker: (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED if marker.coordinator_epoch < 7 else ErrorCode.NONE
    )
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    await world.commit(me)
    await trio.testing.wait_all_tasks_blocked()
    world.log.append_errors.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3)
    world.markers.release()
    await trio.testing.wait_all_tasks_blocked()
    assert world.markers.written == []
    world.coordinator.unload(0)
    await trio.sleep(600)
    assert world.markers.written == []


async def test_a_partition_that_fences_for_a_reason_that_passes_is_asked_again(
    world: World,
) -> None:
    answers = [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 3
    world.markers.answer = lambda marker: answers.pop() if answers else ErrorCode.NONE
    me = await world.init()
    await world.add(me, P0)
    await world.commit(me)
    await trio.sleep(5)
    assert await world.settled() is State.COMPLETE_COMMIT
    assert [marker.coordinator_epoch for marker in world.markers.asked] == [0, 0, 0, 0]


@pytest.mark.parametrize("committed", [True, False])
async def test_an_id_is_free_again_where_somebody_has_used_a_higher_epoch(
    world: World, caplog: pytest.LogCaptureFixture, committed: bool
) -> None:
    """Kafka leaves it in Prepare* for good. The decision stands as it was made."""

    def answer(marker: Marker) -> ErrorCode:
        is_overtaken = marker.partition == P0 and marker.producer_epoch < 100
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_overtaken else ErrorCode.NONE

    world.markers.answer = answer
    me = await world.init()
    await world.add(me, P0, P1)
    await (world.commit(me) if committed else world.abort(me))
    expected = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
    assert await world.settled() is expected
    assert [(m.partition, m.committed) for m in world.markers.written] == [(P1, committed)]
    assert "the markers of 'refunds-2' for refunds-0 were refused" in caplog.text
    assert ("otherwise than by the commit" in caplog.text) is committed


async def test_a_transaction_that_may_not_be_whole_is_an_error_that_names_every_partition(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The first partition was named; the second stood for the others, as a piece of news, after ten
    seconds, and the third was never named."""
    world.markers.known_coordinator_epoch = lambda partition, producer_id: 7
    world.markers.answer = lambda marker: (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if marker.coordinator_epoch < 7
        else ErrorCode.INVALID_PRODUCER_EPOCH
    )
    me = await world.init()
    await world.add(me, P0, P1, P2)
    await world.commit(me)
    assert await world.settled() is State.COMPLETE_COMMIT
    await trio.sleep(60)
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "for refunds-0, refunds-1, refunds-2 were refused" in error.message


@pytest.mark.parametrize("kind", ["refused", "leaderless", "unanswered"])
async def test_a_marker_that_is_not_taken_for_long_is_told_and_why(
    world: World, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The id stays Prepare*, readers of the partition stand still, and the log was silent."""
    stuck_until_s = trio.current_time() + 30

    def answer(marker: Marker) -> ErrorCode:
        is_stuck = kind == "refused" and trio.current_time() < stuck_until_s
        return ErrorCode.KAFKA_STORAGE_ERROR if is_stuck and marker.partition == P0 else NONE

    world.markers.answer = answer
    if kind == "leaderless":
        world.markers.leaders[P0] = NO_LEADER
    if kind == "unanswered":
        world.markers.lost_requests = 30
    me = await world.init()
    await world.add(me, P0, P1)
    await world.commit(me)
    await trio.sleep(1)
    assert caplog.messages == []
    await trio.sleep(25)
    lines = [message for message in caplog.messages if message.startswith("refunds-0 ")]
    assert 1 <= len(lines) <= 5
    assert "refunds-0 does not take the marker of 'refunds-2', a commit" in lines[0]
    reason = {
        "refused": "KAFKA_STORAGE_ERROR",
        "leaderless": "it has no leader",
        "unanswered": "the request was lost",
    }
    assert reason[kind] in lines[0]
    world.markers.leaders.clear()
    await trio.sleep(60)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_a_decision_that_cannot_be_confirmed_is_confirmed_later(world: World) -> None:
    world.markers.known_coordinator_epoch = lambda partition, producer_id: 7
    world.markers.answer = lambda marker: (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED if marker.coordinator_epoch < 7 else ErrorCode.NONE
    )
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    await world.commit(me)
    world.log.append_errors.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.markers.release()
    await trio.sleep(1)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_a_broker_that_dies_while_it_confirms_finishes_after_its_restart(
    world: World,
) -> None:
    world.markers.known_coordinator_epoch = lambda partition, producer_id: 7
    world.markers.answer = lambda marker: (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED if marker.coordinator_epoch < 7 else ErrorCode.NONE
    )
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    await world.commit(me)
    world.log.hold()
    world.markers.release()
    await trio.testing.wait_all_tasks_blocked()
    await world.crash(keep=1)
    assert await world.settled() is State.COMPLETE_COMMIT
    with pytest.raises(KafkaError):
        await world.commit(me, version=0)


async def test_an_id_is_freed_by_an_administrator_from_a_partition_that_takes_no_marker(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """There was no way out of PrepareCommit while a partition was lost."""
    world.markers.answer = lambda marker: (
        ErrorCode.KAFKA_STORAGE_ERROR if marker.partition == P1 else NONE
    )
    me = await world.init()
    await world.add(me, P0, P1)
    await world.commit(me)
    await trio.sleep(30)
    assert world.state is State.PREPARE_COMMIT
    freed = await world.coordinator.init_producer_id(
        transactional_id=ID,
        timeout_ms=60_000,
        expected=None,
        client=OTHER,
        by_administrator=True,
        without_markers=True,
    )
    assert freed.producer.producer_epoch > me.producer_epoch
    assert "an administrator at 10.0.0.8 gave up the markers of 'refunds-2', a commit, for " in (
        caplog.text
    )
    assert {marker.partition for marker in world.markers.written} == {P0}
    await world.add(freed.producer, P0)
    await world.commit(freed.producer)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_without_markers_an_open_transaction_is_aborted_with_all_its_markers(
    world: World,
) -> None:
    me = await world.init()
    await world.add(me, P0, P1)
    await world.coordinator.init_producer_id(
        transactional_id=ID,
        timeout_ms=60_000,
        expected=None,
        client=OTHER,
        by_administrator=True,
        without_markers=True,
    )
    assert {marker.partition for marker in world.markers.written} == {P0, P1}
    assert not any(marker.committed for marker in world.markers.written)
