"""Known bugs of other coordinators with markers and crashes, as in `test_known_bugs.py`."""

import pytest
import trio
import trio.testing

from odradek.broker.txn.transaction import State
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.world import (
    OTHER,
    P0,
    P1,
    Marker,
    ModelLeaders,
    World,
    commit_into_nothing,
    producer,
    refused,
)

# Markers


async def test_a_marker_whose_answer_was_lost_does_not_hold_up_the_id_for_ever(
    world: World,
) -> None:
    """KAFKA-19999: the repeat, with an equal epoch, was refused."""
    leaders = ModelLeaders()
    world.markers.answer = leaders.answer
    me = await world.init()
    for _ in range(3):
        await world.add(me, P0)
        leaders.write(P0, me)
        world.markers.lost_answers = 1
        me = await world.commit(me)
    await trio.sleep(1)
    assert world.state is State.COMPLETE_COMMIT
    assert len(leaders.ended) == 3


async def test_a_marker_is_repeated_after_a_crash_in_prepare(world: World) -> None:
    """KAFKA-19999, across a restart."""
    leaders = ModelLeaders()
    world.markers.answer = leaders.answer
    me = await world.init()
    await world.add(me, P0)
    leaders.write(P0, me)
    world.markers.lost_answers = 1
    me = await world.commit(me)
    await trio.testing.wait_all_tasks_blocked()
    assert leaders.ended
    await world.crash()
    assert await world.settled() is State.COMPLETE_COMMIT
    assert [marker.coordinator_epoch for marker in world.markers.written] == [0, 1]
    assert len(leaders.ended) == 1
    await world.add(me, P0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
async def test_no_answer_to_a_marker_leaves_a_transaction_in_prepare(
    world: World, code: ErrorCode
) -> None:
    """KAFKA-9749, KAFKA-5610."""
    answers = [code, code]
    world.markers.answer = lambda marker: answers.pop() if answers else ErrorCode.NONE
    me = await world.init()
    await world.add(me, P0, P1)
    await world.commit(me)
    await trio.sleep(1)
    assert world.state is State.COMPLETE_COMMIT
    assert {marker.partition for marker in world.markers.written} == {P0, P1}


async def test_a_topic_deleted_in_the_middle_of_a_commit_does_not_hold_it_up(
    world: World,
) -> None:
    """KAFKA-5202."""
    me = await world.init()
    await world.add(me, P0, P1)
    world.markers.answer = lambda marker: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if marker.partition == P1 else ErrorCode.NONE
    )
    me = await world.commit(me)
    await trio.sleep(5)
    assert await world.settled() is State.PREPARE_COMMIT
    world.markers.deleted = {P1}
    await trio.sleep(1)
    assert await world.settled() is State.COMPLETE_COMMIT
    await world.add(me, P0)


async def test_completions_of_two_tenures_do_not_take_each_others_markers(world: World) -> None:
    """KAFKA-16352, KAFKA-10080: the old completion removed what the new one was waiting for, or
    both wrote the record of completion."""
    me = await world.init()
    await world.add(me, P0, P1)
    world.markers.hold()
    me = await world.commit(me)
    await trio.testing.wait_all_tasks_blocked()
    world.partitions.current[0] = world.log.hand_over()
    await world.coordinator.load(0)  # the leadership came back with a new epoch
    await trio.testing.wait_all_tasks_blocked()
    assert len(world.markers.requests) == 2
    world.markers.answer = lambda marker: (
        ErrorCode.NONE if marker.coordinator_epoch == 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    world.markers.release()
    await trio.sleep(5)
    assert await world.settled() is State.PREPARE_COMMIT  # the old answers do not count
    world.markers.answer = lambda marker: ErrorCode.NONE
    await trio.sleep(5)
    assert await world.settled() is State.COMPLETE_COMMIT
    assert world.states().count(State.COMPLETE_COMMIT) == 1


# Crashes


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [0, 2])
async def test_a_durable_decision_is_carried_out_by_the_successor(
    world: World, version: int, committed: bool
) -> None:
    me = await world.init()
    await world.add(me, P0, P1, version=version)
    world.markers.hold()
    await (world.commit if committed else world.abort)(me, version)
    await world.crash()
    world.markers.release()
    await world.settled()
    expected = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
    assert world.state is expected
    assert {(m.partition, m.committed) for m in world.markers.written} == {
        (P0, committed),
        (P1, committed),
    }


@pytest.mark.parametrize("keep", [0, 1])
async def test_a_decision_that_was_not_durable_is_either_not_there_or_carried_out(
    world: World, keep: int, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.log.hold()
    nursery.start_soon(commit_into_nothing, world, me)
    await trio.testing.wait_all_tasks_blocked()
    assert world.markers.requests == []
    await world.crash(keep=keep)
    assert await world.settled() is (State.COMPLETE_COMMIT if keep else State.ONGOING)
    assert await world.commit(me) == producer(1000, 1)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_an_open_transaction_goes_on_after_a_crash(world: World) -> None:
    me = await world.init()
    await world.add(me, P0)
    await trio.sleep(30)
    await world.crash()
    await world.add(me, P1)
    assert world.transaction.partitions == {P0, P1}
    await trio.sleep(29)
    assert await world.settled() is State.ONGOING
    await trio.sleep(2)
    assert await world.settled() is State.COMPLETE_ABORT


async def test_a_fence_that_was_not_durable_has_fenced_nobody(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.log.hold()
    nursery.start_soon(_init_into_nothing, world)
    await trio.testing.wait_all_tasks_blocked()
    assert world.state is State.ONGOING
    await world.crash()
    assert await world.commit(me) == producer(1000, 1)


async def _init_into_nothing(world: World) -> None:
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.init(client=OTHER)


async def test_why_a_client_was_fenced_is_known_after_a_crash(world: World) -> None:
    me = await world.init()
    await world.init(client=OTHER)
    await world.crash()
    await trio.sleep(2)
    with pytest.raises(KafkaError, match=r"'worker-8' started 2\.0 s ago"):
        await world.add(me, P0)


async def test_a_lost_answer_can_be_asked_for_after_a_crash(world: World) -> None:
    """KAFKA-20357: Kafka 4.3 forgets the last epoch and fences the retry."""
    me = await world.init()
    assert await world.init(me) == producer(1000, 1)
    await world.crash()
    assert await world.init(me) == producer(1000, 1)


async def test_no_producer_id_is_given_twice_over_crashes(world: World) -> None:
    found = []
    for number in range(5):
        found.append(await world.init(transactional_id=f"id-{number}"))
        found.append(await world.init(transactional_id=None))
        await world.crash()
    assert len({who.producer_id for who in found}) == 10


async def test_markers_of_a_marker_less_log_are_let_off(world: World) -> None:
    def answer(marker: Marker) -> ErrorCode:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    world.markers.answer = answer
    me = await world.init()
    await world.add(me, P0)
    await world.commit(me)
    assert await world.settled() is State.COMPLETE_COMMIT
