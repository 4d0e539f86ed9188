"""The coordinator's answers: which requests succeed, wait, or are refused, and the messages."""

import logging

import pytest
import trio
import trio.testing

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.transaction import BumpCause, State
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_topics import state_partition
from tests.broker.txn.world import ID, OTHER, P0, P1, P2, World, producer, refused


async def test_a_transaction_from_begin_to_end(world: World) -> None:
    me = await world.init()
    assert me == producer(1000, 0)
    await world.add(me, P0, P1)
    assert world.state is State.ONGOING
    assert await world.commit(me) == producer(1000, 1)
    assert await world.settled() is State.COMPLETE_COMMIT
    assert [marker.partition for marker in world.markers.written] == [P0, P1]
    assert {marker.producer_epoch for marker in world.markers.written} == {1}
    assert world.states() == [
        State.EMPTY,
        State.ONGOING,
        State.PREPARE_COMMIT,
        State.COMPLETE_COMMIT,
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_an_old_client_keeps_its_epoch_through_many_transactions(
    world: World, version: int
) -> None:
    me = await world.init()
    for number in range(3):
        await world.add(me, P0, version=version)
        if number == 1:
            await world.abort(me, version)
        else:
            await world.commit(me, version)
    await world.settled()
    assert [marker.committed for marker in world.markers.written] == [True, False, True]
    assert {marker.producer_epoch for marker in world.markers.written} == {0}
    assert {marker.transaction_version for marker in world.markers.written} == {version}


async def test_each_change_is_one_record_and_one_flush_but_the_end_needs_no_flush(
    world: World,
) -> None:
    me = await world.init()
    await world.add(me, P0)
    await world.add(me, P0)  # known: nothing is written
    await world.commit(me)
    await world.settled()
    assert (world.log.append_count, world.log.flush_count) == (4, 3)
    assert world.state is State.COMPLETE_COMMIT


async def test_adding_what_is_in_already_does_not_even_yield(world: World) -> None:
    me = await world.init()
    await world.add(me, P0, P1)
    with trio.testing.assert_no_checkpoints():
        await world.add(me, P1)


async def test_without_a_transactional_id_there_is_just_a_producer_id(world: World) -> None:
    assert await world.init(transactional_id=None, timeout_ms=-5) == producer(1000, 0)
    same = await world.init(producer(3, 4), transactional_id=None)
    assert same == producer(1001, 0)
    assert world.log.append_count == 0


async def test_an_empty_transactional_id_is_an_invalid_request(world: World) -> None:
    """KAFKA-5171."""
    with refused(ErrorCode.INVALID_REQUEST):
        await world.init(transactional_id="")
    with refused(ErrorCode.INVALID_REQUEST):
        await world.add(producer(1, 0), P0, transactional_id="")
    with refused(ErrorCode.INVALID_REQUEST):
        await world.commit(producer(1, 0), transactional_id="")
    verified = world.coordinator.verify(
        transactional_id="", producer=producer(1, 0), partitions=[P0]
    )
    assert verified == {P0: ErrorCode.INVALID_REQUEST}


async def test_an_id_longer_than_a_record_can_hold_is_an_invalid_request(world: World) -> None:
    with refused(ErrorCode.INVALID_REQUEST):
        await world.init(transactional_id="é" * 20_000)
    longest = "x" * 32_767
    await world.init(transactional_id=longest)
    assert world.history(longest)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
async def test_a_time_out_beyond_the_limit_is_refused_with_the_settings_name(
    world: World, timeout_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        caplog.at_level(logging.WARNING, logger="odradek.txn"),
    ):
        await world.init(timeout_ms=timeout_ms)
    assert f"{timeout_ms} ms" in caplog.text
    assert "transaction.max.timeout.ms, which is 900000 ms" in caplog.text


async def test_nobody_else_may_use_an_id(world: World) -> None:
    me = await world.init()
    for attempt in (world.add(producer(999, 0), P0), world.commit(producer(999, 0))):
        with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            await attempt
    await world.add(me, P0)
    for epoch in (-1, 1, 32_767):
        with refused(ErrorCode.PRODUCER_FENCED):
            await world.commit(producer(me.producer_id, epoch))
        with refused(ErrorCode.PRODUCER_FENCED):
            await world.add(producer(me.producer_id, epoch), P0)
    assert world.state is State.ONGOING


async def test_an_id_that_nobody_has_is_not_made_by_asking(world: World) -> None:
    for attempt in (world.add(producer(1, 0), P0), world.commit(producer(1, 0))):
        with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            await attempt
    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        world.coordinator.describe(ID)
    assert list(world.coordinator.transactions()) == []
    assert world.log.append_count == 0


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_transaction_without_writes_commits_cleanly(world: World, version: int) -> None:
    """YDB #51053: partitions were added and nothing was produced."""
    me = await world.init()
    await world.add(me, P0, version=version)
    me = await world.commit(me, version)
    await world.add(me, P0, version=version)
    await world.commit(me, version)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_a_commit_that_comes_twice_is_one_commit(world: World) -> None:
    me = await world.init()
    await world.add(me, P0)
    following = await world.commit(me)
    assert await world.commit(me) == following
    with refused(ErrorCode.INVALID_TXN_STATE):
        await world.abort(me)
    await world.settled()
    assert len(world.markers.written) == 1


async def test_an_abort_before_anything_else_gives_the_next_epoch(world: World) -> None:
    me = await world.init()
    assert await world.abort(me) == producer(1000, 1)
    assert await world.settled() is State.COMPLETE_ABORT
    assert world.markers.requests == []
    assert await world.abort(me) == producer(1000, 1)  # the retry
    assert await world.abort(producer(1000, 1)) == producer(1000, 2)
    await world.settled()
    with refused(ErrorCode.INVALID_TXN_STATE):
        await world.commit(producer(1000, 2))


# Waiting instead of CONCURRENT_TRANSACTIONS


async def test_small_transactions_in_a_row_never_pay_a_back_off(world: World) -> None:
    world.markers.delay_s = lambda broker_id: 0.003
    me = await world.init()
    begun = trio.current_time()
    for _ in range(100):
        await world.add(me, P0, P1)
        me = await world.commit(me)
    assert trio.current_time() - begun == pytest.approx(99 * 0.003, abs=0.01)
    assert me.producer_epoch == 100


@pytest.mark.parametrize("version", [0, 2])
async def test_the_next_transaction_waits_for_the_markers_of_the_last(
    world: World, version: int, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0, version=version)
    world.markers.hold()
    me = await world.commit(me, version)
    nursery.start_soon(world.add, me, P1)
    await trio.testing.wait_all_tasks_blocked()
    assert world.state is State.PREPARE_COMMIT
    world.markers.release()
    assert await world.settled() is State.ONGOING
    assert world.transaction.partitions == {P1}


@pytest.mark.parametrize(("limit_ms", "expected_s"), [(None, 1.0), (200, 0.2), (60_000, 1.0)])
async def test_the_wait_ends_after_a_second_or_the_requests_own_time(
    world: World, limit_ms: int | None, expected_s: float
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    me = await world.commit(me)
    begun = trio.current_time()
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.add(me, P0, max_wait_ms=limit_ms)
    assert trio.current_time() - begun == pytest.approx(expected_s)
    world.markers.release()


async def test_waiting_for_one_thing_after_another_takes_no_longer_than_for_one(
    world: World, nursery: trio.Nursery
) -> None:
    """InitProducerId fences, and then waits for the markers: a second for both."""
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    world.log.hold()
    begun = trio.current_time()
    nursery.start_soon(_release_after, world, 0.7)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.init()
    assert trio.current_time() - begun == pytest.approx(1.0)
    assert world.state is State.PREPARE_ABORT
    world.markers.release()


async def _release_after(world: World, seconds: float) -> None:
    await trio.sleep(seconds)
    world.log.release()


async def test_whoever_waits_hears_at_once_that_the_coordinator_moved(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    me = await world.commit(me)
    begun = trio.current_time()
    nursery.start_soon(_unload_soon, world)
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.add(me, P0)
    assert trio.current_time() - begun == pytest.approx(0.1)


async def test_whoever_waits_hears_at_once_that_the_broker_stops(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    me = await world.commit(me)
    begun = trio.current_time()
    nursery.start_soon(_stop_soon, world)
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.add(me, P0)
    assert trio.current_time() - begun == pytest.approx(0.1)


async def test_a_stalled_disk_holds_up_only_the_wait(world: World, nursery: trio.Nursery) -> None:
    me = await world.init()
    world.log.hold()
    nursery.start_soon(world.add, me, P0)
    await trio.testing.wait_all_tasks_blocked()
    assert world.state is State.EMPTY
    assert world.coordinator.describe(ID).is_pending
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.commit(me)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.commit(producer(me.producer_id, 7))
    with refused(ErrorCode.PRODUCER_FENCED):  # up to EndTxn 4 this much is clear already
        await world.commit(producer(me.producer_id, 7), version=0)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.init()
    world.log.release()
    assert await world.settled() is State.ONGOING


async def test_two_that_add_at_once_both_get_in(world: World, nursery: trio.Nursery) -> None:
    me = await world.init()
    for partition in (P0, P1, P2):
        nursery.start_soon(world.add, me, partition)
    await world.settled()
    assert world.transaction.partitions == {P0, P1, P2}


async def test_two_first_instances_at_once_get_two_epochs(
    world: World, nursery: trio.Nursery
) -> None:
    found = []

    async def init() -> None:
        found.append(await world.init())

    nursery.start_soon(init)
    nursery.start_soon(init)
    await world.settled()
    assert found == [producer(1000, 0), producer(1000, 1)]


async def test_a_client_that_hangs_up_does_not_undo_what_is_being_written(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.log.hold()
    with trio.CancelScope() as scope:
        nursery.start_soon(_cancel_soon, scope)
        nursery.start_soon(_release_soon, world)
        await world.commit(me)
    assert scope.cancel_called
    assert await world.settled() is State.COMPLETE_COMMIT
    assert len(world.markers.written) == 1


async def _cancel_soon(scope: trio.CancelScope) -> None:
    await trio.sleep(0.05)
    scope.cancel()


async def _release_soon(world: World) -> None:
    await trio.sleep(0.1)
    world.log.release()


async def _unload_soon(world: World) -> None:
    await trio.sleep(0.1)
    world.coordinator.unload(0)


async def _stop_soon(world: World) -> None:
    await trio.sleep(0.1)
    world.stop()


# InitProducerId


async def test_a_new_instance_on_an_open_transaction_aborts_it_and_goes_on(world: World) -> None:
    """Kafka answers CONCURRENT_TRANSACTIONS here; this is what the client's last retry gets."""
    me = await world.init()
    await world.add(me, P0)
    assert await world.init(client=OTHER) == producer(1000, 2)
    assert [(m.committed, m.producer_epoch) for m in world.markers.written] == [(False, 1)]
    assert world.states()[2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT, State.EMPTY]
    with refused(ErrorCode.PRODUCER_FENCED):
        await world.commit(me)


async def test_the_same_instance_on_its_open_transaction_gets_the_epoch_after(
    world: World,
) -> None:
    me = await world.init()
    await world.add(me, P0)
    assert await world.init(me) == producer(1000, 1)
    assert await world.init(me) == producer(1000, 1)  # the answer was lost
    assert await world.init(producer(1000, 1)) == producer(1000, 2)
    with refused(ErrorCode.PRODUCER_FENCED):
        await world.init(me)


async def test_markers_that_take_long_are_waited_for_only_so_long(world: World) -> None:
    me = await world.init()
    await world.add(me, P0)
    world.markers.hold()
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.init()
    assert world.state is State.PREPARE_ABORT
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await world.init()
    world.markers.release()
    assert await world.settled() is State.COMPLETE_ABORT
    assert await world.init() == producer(1000, 2)  # fenced once, however often it was asked


async def test_an_expected_epoch_of_another_id_is_fenced(world: World) -> None:
    me = await world.init()
    for stranger in (producer(999, 0), producer(me.producer_id, 5)):
        with refused(ErrorCode.PRODUCER_FENCED):
            await world.init(stranger)
    assert world.transaction.producer_epoch == 0


async def test_an_id_that_expired_takes_its_producer_back(world: World) -> None:
    """The client names what it had; there is nothing to compare it with (KIP-360)."""
    assert await world.init(producer(4, 17)) == producer(1000, 0)


async def test_the_time_out_of_the_last_init_counts(world: World) -> None:
    await world.init(timeout_ms=10_000)
    await world.init(timeout_ms=20_000)
    assert world.transaction.timeout_ms == 20_000


async def test_a_used_up_block_of_producer_ids_is_fetched_in_passing(world: World) -> None:
    found = {(await world.init(transactional_id=f"id-{n}")).producer_id for n in range(1_100)}
    assert found == set(range(1000, 2100))


# Verification


async def test_verification_tells_what_is_in_the_transaction(world: World) -> None:
    me = await world.init()

    def verify(epoch: int = 0, producer_id: int = 1000) -> list[ErrorCode]:
        found = world.coordinator.verify(
            transactional_id=ID, producer=producer(producer_id, epoch), partitions=[P0, P1]
        )
        return [found[P0], found[P1]]

    abortable, none = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE
    assert verify() == [abortable, abortable]
    await world.add(me, P0, version=0)
    assert verify() == [none, abortable]
    assert verify(epoch=1) == [ErrorCode.PRODUCER_FENCED] * 2
    assert verify(producer_id=1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    world.markers.hold()
    await world.commit(me, 0)
    assert verify() == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    world.markers.release()
    await world.settled()
    assert verify() == [abortable, abortable]
    world.coordinator.unload(0)
    assert verify() == [ErrorCode.NOT_COORDINATOR] * 2


async def test_a_partition_is_verified_only_when_it_is_durable(
    world: World, nursery: trio.Nursery
) -> None:
    me = await world.init()
    world.log.hold()
    nursery.start_soon(world.add, me, P0)
    await trio.testing.wait_all_tasks_blocked()
    verified = world.coordinator.verify(transactional_id=ID, producer=me, partitions=[P0])
    assert verified == {P0: ErrorCode.TRANSACTION_ABORTABLE}
    world.log.release()


# Whose partition it is


async def test_an_id_of_a_partition_that_is_elsewhere(nursery: trio.Nursery) -> None:
    world = World(nursery, TransactionConfig())
    await world.start()
    elsewhere = next(f"id-{n}" for n in range(100) if state_partition(f"id-{n}", 50) != 0)
    here = next(f"id-{n}" for n in range(1000) if state_partition(f"id-{n}", 50) == 0)
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.init(transactional_id=elsewhere)
    assert await world.init(transactional_id=here)
    world.stop()


async def test_requests_during_a_load_are_told_to_come_again(nursery: trio.Nursery) -> None:
    world = World(nursery)
    await world.start()
    me = await world.init()
    world.log.hold()
    nursery.start_soon(world.coordinator.load, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert world.coordinator.is_loading
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await world.init()
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        await world.add(me, P0)
    world.log.release()
    await trio.testing.wait_all_tasks_blocked()
    await world.add(me, P0)
    assert world.transaction.bump is None or world.transaction.bump.cause is BumpCause.NEW_INSTANCE
    world.stop()


async def test_a_partition_that_cannot_be_read_is_not_coordinated(nursery: trio.Nursery) -> None:
    world = World(nursery)
    await world.start()
    await world.init()
    await world.start_unloaded()
    world.log.lose()
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        await world.coordinator.load(0)
    assert not world.coordinator.is_loading
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.init()
    world.stop()
