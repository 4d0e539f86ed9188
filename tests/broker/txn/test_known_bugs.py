"""Known bugs of other coordinators, one test for each, named after what went wrong.

The numbers are those of the bug reports. Those about single records, markers and deadlines are with
the tests of `store`, `markers` and `expiry`.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.txn.transaction import ProducerIdAndEpoch, State
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.world import (
    AT_THE_END,
    ID,
    OTHER,
    P0,
    P1,
    ModelLeaders,
    World,
    commit_into_nothing,
    producer,
    refused,
)

# Requests that come late or twice


async def test_a_delayed_commit_does_not_commit_the_next_transaction(world: World) -> None:
    """KAFKA-17754, KIP-890: found by Jepsen."""
    me = await world.init()
    await world.add(me, P0)
    following = await world.commit(me)
    await world.add(following, P1)
    for delayed in (world.commit(me), world.abort(me)):
        with refused(ErrorCode.PRODUCER_FENCED):
            await delayed
    assert world.state is State.ONGOING
    assert world.transaction.partitions == {P1}


async def test_a_delayed_produce_opens_no_transaction_that_nobody_owns(world: World) -> None:
    """KAFKA-14402, KAFKA-12671: the last stable offset stood still for good."""
    me = await world.init()
    await world.add(me, P0)
    await world.abort(me)
    await world.settled()
    with refused(ErrorCode.PRODUCER_FENCED):  # Produce 12 adds the partition with its epoch
        await world.add(me, P0)
    assert world.state is State.COMPLETE_ABORT


async def test_a_delayed_produce_of_an_old_client_is_not_verified(world: World) -> None:
    """KAFKA-14402 for clients whose epoch stays."""
    me = await world.init()
    await world.add(me, P0, version=0)
    await world.abort(me, 0)
    await world.settled()
    verified = world.coordinator.verify(transactional_id=ID, producer=me, partitions=[P0])
    assert verified == {P0: ErrorCode.TRANSACTION_ABORTABLE}


async def test_the_first_write_after_a_commit_is_not_bounced(
    world: World, nursery: trio.Nursery
) -> None:
    """KAFKA-14904, KAFKA-18654: CONCURRENT_TRANSACTIONS for the first batch, and the second batch
    was out of order ever after."""
    me = await world.init()
    await world.add(me, P0)
    world.markers.delay_s = lambda broker_id: 0.5
    me = await world.commit(me)
    await world.add(me, P0)
    assert world.state is State.ONGOING


async def test_a_commit_with_an_epoch_from_the_future_is_refused(world: World) -> None:
    """KAFKA-9600: higher was taken for new enough."""
    me = await world.init()
    await world.add(me, P0)
    for version in (0, 1, 2):
        with refused(ErrorCode.PRODUCER_FENCED):
            await world.commit(producer(me.producer_id, me.producer_epoch + 1), version)
    assert world.state is State.ONGOING


async def test_an_end_while_the_last_one_is_torn_down_is_not_an_empty_success(
    world: World, nursery: trio.Nursery
) -> None:
    """YDB #52731: the second transaction's end was answered with the first one's success."""
    me = await world.init()
    await world.add(me, P0, version=0)
    world.markers.hold()
    await world.commit(me, 0)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.add(me, P1, version=0)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.commit(me, 0)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.abort(me, 0)
    world.markers.release()
    await world.settled()
    await world.add(me, P1, version=0)
    await world.commit(me, 0)
    await world.settled()
    assert [marker.partition for marker in world.markers.written] == [P0, P1]


async def test_a_commit_of_an_aborted_transaction_is_not_taken_for_a_retry(world: World) -> None:
    """Found by the random walk: the client went on with an older generation, and its own delayed
    commit, one epoch behind, met the commit of its next transaction."""
    me = await world.init()
    await world.add(me, P0)
    following = await world.init(me)  # the transaction is aborted
    await world.add(following, P1, version=0)
    await world.commit(following, 0)
    await world.settled()
    with refused(ErrorCode.PRODUCER_FENCED):
        await world.commit(me)


async def test_a_deposed_coordinator_does_not_say_that_a_commit_is_done(world: World) -> None:
    """Found by a simulation: the producer had begun its next transaction at another coordinator,
    under the same epoch, and asked the old one to commit it. The write was lost."""
    me = await world.init()
    await world.add(me, P0, version=0)
    await world.commit(me, 0)
    await world.settled()
    await world.commit(me, 0)  # the answer was lost
    world.log.is_led = False  # and the broker does not know it yet
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.commit(me, 0)


# Appends that fail

Step = Callable[[World, ProducerIdAndEpoch], Awaitable[object]]
STEPS: dict[str, Step] = {
    "init": lambda world, me: world.init(),
    "init again": lambda world, me: world.init(me),
    "add": lambda world, me: world.add(me, P0),
    "commit": lambda world, me: world.commit(me),
    "abort": lambda world, me: world.abort(me),
    "old commit": lambda world, me: world.commit(me, 0),
}
FAILURES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@pytest.mark.parametrize("where", ["append", "flush"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", STEPS)
async def test_a_failed_append_leaves_nothing_pending(
    world: World, name: str, failure: ErrorCode, where: str
) -> None:
    """KAFKA-5351, KAFKA-7519: CONCURRENT_TRANSACTIONS for ever after."""
    me = await world.init()
    if "commit" in name or name == "abort":
        await world.add(me, P0)
    before = world.transaction
    errors = world.log.append_errors if where == "append" else world.log.flush_errors
    errors.append(failure)
    with refused(FAILURES[failure]):
        await STEPS[name](world, me)
    assert world.transaction == before
    assert not world.coordinator.describe(ID).is_pending
    await STEPS[name](world, me)
    await world.settled()
    assert world.transaction != before


async def test_a_failed_fence_spends_no_epoch_however_often_it_is_tried(world: World) -> None:
    """KAFKA-9666: epochs ran out while the log was down. The first test of this took 32,766 of
    them; each of these is the same."""
    me = await world.init()
    await world.add(me, P0)
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 100
    world.log.flush_errors = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] * 100
    for _ in range(200):
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await world.init(client=OTHER)
    assert world.state is State.ONGOING
    assert await world.init(client=OTHER) == producer(1000, 2)


async def test_a_failed_init_spends_no_epoch(world: World) -> None:
    """KAFKA-9666, without a transaction."""
    await world.init()
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 100
    for _ in range(100):
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await world.init()
    assert await world.init() == producer(1000, 1)


async def test_the_record_of_completion_is_written_until_it_is_there(world: World) -> None:
    """The markers are written, and no request would retry the record."""
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    me = await world.commit(me)
    world.log.append_errors.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
    world.markers.release()
    assert await world.settled() is State.PREPARE_COMMIT
    await world.add(me, P1)
    assert world.state is State.ONGOING
    assert len(world.markers.written) == 1


async def test_whoever_waits_for_a_failed_append_is_not_forgotten(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    world.log.hold()
    world.log.flush_errors = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    nursery.start_soon(_fail_to_add, world, me)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(world.add, me, P1)
    await trio.testing.wait_all_tasks_blocked()
    world.log.release()
    assert await world.settled() is State.ONGOING
    assert world.transaction.partitions == {P1}


async def _fail_to_add(world: World, me: ProducerIdAndEpoch) -> None:
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await world.add(me, P0)


# Epochs near the end


async def test_epochs_run_out_in_the_middle_of_transactions(fresh: World) -> None:
    """KAFKA-5283, KAFKA-18660, KAFKA-20090: the wrong id or epoch was answered, or the answer's
    id refused."""
    leaders = ModelLeaders()
    fresh.markers.answer = leaders.answer
    await fresh.plant(AT_THE_END)
    me = producer(7, 32_765)
    told = []
    for _ in range(4):
        await fresh.add(me, P0)
        leaders.write(P0, me)
        me = await fresh.commit(me)
        told.append((me.producer_id, me.producer_epoch))
    assert told == [(7, 32_766), (1000, 0), (1000, 1), (1000, 2)]
    await fresh.settled()
    assert all(committed for *_, committed in leaders.ended)
    assert len(leaders.ended) == 4
    assert not leaders.open
    assert [marker.producer_epoch for marker in fresh.markers.written] == [32_766, 32_767, 1, 2]
    fresh.stop()


async def test_the_new_producer_id_may_write_while_the_old_ones_markers_travel(
    fresh: World, nursery: trio.Nursery
) -> None:
    """KAFKA-18660: INVALID_PRODUCER_ID_MAPPING, fatal for the client, instead of waiting."""
    await fresh.plant(replace(AT_THE_END, producer_epoch=32_766))
    me = producer(7, 32_766)
    await fresh.add(me, P0)
    fresh.markers.hold()
    following = await fresh.commit(me)
    assert following == producer(1000, 0)
    nursery.start_soon(fresh.add, following, P1)
    await trio.testing.wait_all_tasks_blocked()
    fresh.markers.release()
    assert await fresh.settled() is State.ONGOING
    assert fresh.transaction.producer_id == 1000
    fresh.stop()


async def test_a_retried_commit_at_the_end_of_the_epochs_gets_the_same_answer(
    fresh: World, nursery: trio.Nursery
) -> None:
    await fresh.plant(replace(AT_THE_END, producer_epoch=32_766))
    me = producer(7, 32_766)
    await fresh.add(me, P0)
    fresh.markers.hold()
    assert await fresh.commit(me) == producer(1000, 0)
    answers = []

    async def retry() -> None:
        answers.append(await fresh.commit(me))

    nursery.start_soon(retry)
    await trio.testing.wait_all_tasks_blocked()
    fresh.markers.release()
    await fresh.settled()
    assert answers == [producer(1000, 0)]
    assert await fresh.commit(me) == producer(1000, 0)
    with refused(ErrorCode.INVALID_TXN_STATE):
        await fresh.abort(me)
    fresh.stop()


@pytest.mark.parametrize("expects", [True, False])
async def test_fencing_the_last_epoch_does_not_make_it_negative(
    fresh: World, expects: bool
) -> None:
    """KAFKA-19367, KAFKA-20090."""
    await fresh.plant(replace(AT_THE_END, producer_epoch=32_766))
    me = producer(7, 32_766)
    await fresh.add(me, P0)
    answer = await fresh.init(me if expects else None, client=OTHER)
    assert answer == (producer(1000, 0) if expects else producer(1000, 1))
    assert [marker.producer_epoch for marker in fresh.markers.written] == [32_767]
    fresh.stop()


async def test_a_time_out_of_the_last_epoch_does_not_make_it_negative(fresh: World) -> None:
    await fresh.plant(replace(AT_THE_END, producer_epoch=32_766))
    await fresh.add(producer(7, 32_766), P0)
    await trio.sleep(61)
    assert fresh.state is State.COMPLETE_ABORT
    assert fresh.transaction.assigned_producer == producer(1000, 0)
    assert await fresh.abort(producer(7, 32_766)) == producer(1000, 0)
    fresh.stop()


async def test_the_change_of_producer_id_survives_a_crash_in_the_middle(fresh: World) -> None:
    await fresh.plant(replace(AT_THE_END, producer_epoch=32_766))
    await fresh.add(producer(7, 32_766), P0)
    fresh.markers.hold()
    await fresh.commit(producer(7, 32_766))
    await fresh.crash()
    fresh.markers.release()
    await fresh.settled()
    assert fresh.transaction.assigned_producer == producer(1000, 0)
    assert {marker.producer_id for marker in fresh.markers.written} == {7}
    assert await fresh.commit(producer(7, 32_766)) == producer(1000, 0)
    fresh.stop()


# Leadership that goes and comes


async def test_an_operation_begun_before_the_partition_left_changes_nothing_after(
    world: World, nursery: trio.Nursery
) -> None:
    """KAFKA-9235, KAFKA-9307, KAFKA-5280: away and back during a flush."""
    me = await world.init()
    await world.add(me, P0)
    world.log.hold()
    nursery.start_soon(commit_into_nothing, world, me)
    await trio.testing.wait_all_tasks_blocked()
    world.coordinator.unload(0)
    await trio.testing.wait_all_tasks_blocked()
    world.partitions.current[0] = world.log.crash()  # the record did not survive
    await world.coordinator.load(0)
    assert await world.settled() is State.ONGOING
    assert world.markers.requests == []
    await world.commit(me)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_an_operation_whose_record_survived_is_finished_by_the_successor(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.log.hold()
    nursery.start_soon(commit_into_nothing, world, me)
    await trio.testing.wait_all_tasks_blocked()
    world.partitions.current[0] = world.log.hand_over()
    await world.coordinator.load(0)
    assert await world.settled() is State.COMPLETE_COMMIT
    assert await world.commit(me) == producer(1000, 1)  # the client's retry


async def test_a_load_that_was_overtaken_by_a_newer_one_does_not_count(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    world.log.hold()
    nursery.start_soon(_load_unless_it_moves, world)
    await trio.testing.wait_all_tasks_blocked()
    world.partitions.current[0] = world.log.hand_over()  # the first load wakes up into nothing
    world.log.hold()
    nursery.start_soon(world.coordinator.load, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert world.coordinator.is_loading
    world.log.release()
    await world.settled()
    await world.add(me, P0)
    assert world.coordinator.describe(ID).coordinator_epoch == 1


async def _load_unless_it_moves(world: World) -> None:
    """Whether it hears of the move from the partition or from the next load is a race."""
    with suppress(KafkaError):
        await world.coordinator.load(0)


async def test_loads_one_after_the_other_end_with_the_newest(world: World) -> None:
    """KAFKA-15468: loading for an older epoch, which came late, took the place of a newer one."""
    me = await world.init()
    first = world.log
    for _ in range(5):
        world.partitions.current[0] = world.log.hand_over()
        await world.coordinator.load(0)
    world.partitions.current[0], newest = first, world.log
    await world.coordinator.load(0)  # news of an older epoch comes late
    world.partitions.current[0] = newest
    await world.add(me, P0)
    assert world.coordinator.describe(ID).coordinator_epoch == 5


async def test_a_partition_unloaded_while_it_is_read_stays_unloaded(
    world: World, nursery: trio.Nursery
) -> None:
    await world.init()
    world.partitions.current[0] = world.log.hand_over()
    world.log.hold()
    nursery.start_soon(world.coordinator.load, 0)
    await trio.testing.wait_all_tasks_blocked()
    world.coordinator.unload(0)
    world.log.release()
    await trio.testing.wait_all_tasks_blocked()
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.init()
