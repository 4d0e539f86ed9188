"""Time-outs of open transactions, and expiry of unused transactional ids."""

import logging
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.transaction import BumpCause, State, TransactionMetadata
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import (
    CLIENT,
    ID,
    OTHER,
    P0,
    START_MS,
    ModelLeaders,
    World,
    producer,
    refused,
)

WEEK_S = 7 * 24 * 3600
FIVE_SECONDS = TransactionConfig(
    transaction_state_log_num_partitions=1, transactional_id_expiration_ms=5_000
)
ONGOING = TransactionMetadata(
    producer_id=7,
    producer_epoch=5,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset({P0}),
    started_ms=START_MS,
    updated_ms=START_MS,
    client=CLIENT,
)


async def test_a_transaction_is_aborted_when_its_time_is_over_not_sooner(world: World) -> None:
    me = await world.init(timeout_ms=10_000)
    await trio.sleep(5)
    await world.add(me, P0)  # the clock starts with the first partition
    await trio.sleep(9.9)
    assert world.state is State.ONGOING
    await trio.sleep(0.1)
    assert await world.settled() is State.COMPLETE_ABORT
    assert [(m.committed, m.producer_epoch) for m in world.markers.written] == [(False, 1)]


@pytest.mark.parametrize("version", [0, 2])
async def test_a_transaction_in_which_nothing_is_written_ends_in_time_too(
    world: World, version: int
) -> None:
    """Redpanda #18324: begun, without a record, it stayed open for good. Its leaders know nothing
    of the producer."""
    leaders = ModelLeaders()
    world.markers.answer = leaders.answer
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0, version=version)
    await trio.sleep(10.1)
    assert await world.settled() is State.COMPLETE_ABORT
    assert leaders.ended == []
    me = await world.init()
    await world.add(me, P0, version=version)
    leaders.write(P0, me)
    await world.commit(me, version)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_adding_more_does_not_give_more_time(world: World) -> None:
    me = await world.init(timeout_ms=10_000)
    for partition in range(9):
        await world.add(me, P0._replace(partition=partition))
        await trio.sleep(1)
    await trio.sleep(1)
    assert await world.settled() is State.COMPLETE_ABORT


@pytest.mark.parametrize("version", [0, 2])
async def test_a_zombie_cannot_commit_after_its_transaction_timed_out(
    world: World, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-6119, KAFKA-5231: the abort must change the epoch, or the late commit counts."""
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0, version=version)
    with caplog.at_level(logging.INFO, logger="odradek.txn"):
        await trio.sleep(11)
    assert [record.message for record in caplog.records] == [
        "'refunds-2' was fenced: its transaction was open for longer than its time-out, 10000 ms, "
        "and ended; aborted: producer id 1000, epoch 0, 1 partition, open for 10.0 s"
    ]
    expected = ErrorCode.PRODUCER_FENCED if version == 0 else ErrorCode.INVALID_TXN_STATE
    with refused(expected):
        await world.commit(me, version)
    with refused(ErrorCode.PRODUCER_FENCED):
        await world.add(me, P0, version=version)
    assert world.transaction.bump is not None
    assert world.transaction.bump.cause is BumpCause.TIMEOUT
    assert [marker.committed for marker in world.markers.written] == [False]


async def test_a_client_whose_transaction_timed_out_can_go_on(world: World) -> None:
    """As measured on Apache Kafka 4.3.1: the abort is taken for a retry, and so is the init."""
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0)
    await trio.sleep(11)
    assert await world.abort(me) == producer(1000, 1)
    assert await world.init(me) == producer(1000, 1)
    await world.add(producer(1000, 1), P0)
    assert await world.commit(producer(1000, 1)) == producer(1000, 2)


async def test_a_commit_in_the_last_moment_wins(world: World) -> None:
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0)
    await trio.sleep(9.99)
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, me)
        await trio.sleep(5)
        assert await world.settled() is State.ONGOING
        world.log.release()
    await trio.sleep(60)
    assert await world.settled() is State.COMPLETE_COMMIT
    assert [marker.committed for marker in world.markers.written] == [True]


async def test_an_append_under_way_when_time_is_over_is_waited_for(world: World) -> None:
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0)
    await trio.sleep(9.99)
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.add, me, P0._replace(partition=9))
        await trio.sleep(5)
        world.log.release()
    assert await world.settled() is State.COMPLETE_ABORT
    assert {marker.partition.partition for marker in world.markers.written} == {0, 9}


async def test_the_next_transaction_has_its_own_time(world: World) -> None:
    me = await world.init(timeout_ms=10_000)
    for _ in range(5):
        await world.add(me, P0)
        await trio.sleep(8)
        me = await world.commit(me)
    assert await world.settled() is State.COMPLETE_COMMIT
    await world.add(me, P0)
    await trio.sleep(9.9)
    assert world.state is State.ONGOING
    await trio.sleep(0.2)
    assert await world.settled() is State.COMPLETE_ABORT


async def test_a_transaction_whose_abort_cannot_be_written_is_aborted_once_it_can(
    world: World,
) -> None:
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0)
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 10
    await trio.sleep(11)
    assert world.state is State.ONGOING
    await trio.sleep(60)
    assert await world.settled() is State.COMPLETE_ABORT
    assert world.transaction.producer_epoch == 1


async def test_many_time_out_together_without_waiting_for_each_other(world: World) -> None:
    world.markers.delay_s = lambda broker_id: 1.0
    for number in range(200):
        who = await world.init(transactional_id=f"id-{number}", timeout_ms=10_000)
        await world.add(who, P0, transactional_id=f"id-{number}")
    await trio.sleep(15)
    states = {view.transaction.state for view in world.coordinator.transactions()}
    assert states == {State.COMPLETE_ABORT}


@pytest.mark.parametrize(
    ("started_ago_ms", "expected_s"),
    [
        (0, 60),
        (50_000, 10),
        (500_000, 0),  # the broker was down for longer: at once
        (-3_600_000, 60),  # the wall clock was set back: never more than the whole time-out
    ],
)
async def test_a_transaction_found_in_the_log_has_what_is_left_of_its_time(
    fresh: World, started_ago_ms: int, expected_s: float
) -> None:
    """Redpanda #14624: the coordinator moved and nobody aborted it any more."""
    await fresh.plant(replace(ONGOING, started_ms=START_MS - started_ago_ms))
    if expected_s:
        await trio.sleep(expected_s - 0.1)
        assert await fresh.settled() is State.ONGOING
    await trio.sleep(0.1)
    assert await fresh.settled() is State.COMPLETE_ABORT
    fresh.stop()


async def test_a_step_of_the_wall_clock_times_nothing_out(world: World) -> None:
    me = await world.init(timeout_ms=10_000)
    await world.add(me, P0)
    world.clock.skew_ms = 3_600_000
    await trio.sleep(9)
    assert world.state is State.ONGOING


async def test_a_time_out_of_never_is_kept(fresh: World) -> None:
    """Two-phase transactions (KIP-939) are stored with 2^31 - 1 ms."""
    await fresh.plant(replace(ONGOING, timeout_ms=2**31 - 1, started_ms=0))
    await trio.sleep(30 * 24 * 3600)
    assert fresh.state is State.ONGOING
    fresh.stop()


# Ids


async def test_an_idle_id_is_forgotten_after_a_week(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    me = await world.init()
    await trio.sleep(WEEK_S - 1)
    assert world.state is State.EMPTY
    with caplog.at_level(logging.INFO, logger="odradek.txn"):
        await trio.sleep(2)
    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        world.coordinator.describe(ID)
    assert world.history()[-1] is None
    assert "without use: 'refunds-2'" in caplog.text
    assert world.coordinator.owner_of(me.producer_id) is None
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        await world.add(me, P0)
    assert await world.init(me) == producer(1001, 0)


async def test_use_keeps_an_id(world: World) -> None:
    me = await world.init()
    for _ in range(3):
        await trio.sleep(WEEK_S - 100)
        await world.add(me, P0)
        me = await world.commit(me)
    await trio.sleep(WEEK_S - 100)
    assert world.state is State.COMPLETE_COMMIT
    await trio.sleep(200)
    assert list(world.coordinator.transactions()) == []


async def test_an_id_whose_markers_are_stuck_is_not_forgotten(nursery: trio.Nursery) -> None:
    world = World(nursery, FIVE_SECONDS)
    await world.start()
    me = await world.init()
    await world.add(me, P0)
    world.markers.leaders = {P0: -1}
    await world.commit(me)
    await trio.sleep(30)
    assert world.state is State.PREPARE_COMMIT
    world.stop()


async def test_an_id_in_use_at_that_moment_is_not_forgotten(world: World) -> None:
    me = await world.init()
    await trio.sleep(WEEK_S - 0.01)
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.add, me, P0)
        await trio.sleep(1)
        world.log.release()
    assert await world.settled() is State.ONGOING
    await world.commit(me)
    await trio.sleep(WEEK_S - 100)
    assert await world.settled() is State.COMPLETE_COMMIT


async def test_a_use_that_failed_at_that_moment_does_not_keep_an_id_for_good(
    world: World,
) -> None:
    me = await world.init()
    await trio.sleep(WEEK_S - 0.01)
    world.log.hold()
    world.log.flush_errors = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fails, world, me)
        await trio.sleep(1)
        world.log.release()
    await trio.sleep(10)
    assert list(world.coordinator.transactions()) == []


async def _fails(world: World, me: object) -> None:
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await world.add(producer(1000, 0), P0)


async def test_a_tombstone_that_cannot_be_written_is_written_later(world: World) -> None:
    await world.init()
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    await trio.sleep(WEEK_S + 1)
    assert world.state is State.EMPTY
    await trio.sleep(20)
    assert list(world.coordinator.transactions()) == []


async def test_an_init_while_the_tombstone_is_written_begins_anew(world: World) -> None:
    await world.init()
    await trio.sleep(WEEK_S - 0.01)
    world.log.hold()
    await trio.sleep(0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_init_as_other, world)
        await trio.sleep(0.5)
        world.log.release()
    assert [t and t.producer_id for t in world.history()] == [1000, None, 1001]
    assert world.transaction.client == OTHER


async def _init_as_other(world: World) -> None:
    assert await world.init(client=OTHER) == producer(1001, 0)


@pytest.mark.slow
async def test_ten_thousand_ids_expire_in_batches_that_fit(world: World) -> None:
    """KAFKA-13099: one batch of tombstones for all was larger than a message may be."""
    long = "x" * 2_000
    for number in range(10_000):
        suffix = long if number < 1_000 else ""
        await world.init(transactional_id=f"id-{number}{suffix}")
    appended = world.log.append_count
    await trio.sleep(WEEK_S + 60)
    assert list(world.coordinator.transactions()) == []
    assert world.log.append_count - appended < 60
    assert world.log.largest_batch_bytes < 512 * 1024


async def test_an_id_found_in_the_log_expires_by_its_last_use(fresh: World) -> None:
    idle = replace(ONGOING, state=State.COMPLETE_COMMIT, partitions=frozenset())
    await fresh.plant(replace(idle, updated_ms=START_MS - (WEEK_S - 60) * 1000))
    await trio.sleep(59)
    assert fresh.state is State.COMPLETE_COMMIT
    await trio.sleep(2)
    assert list(fresh.coordinator.transactions()) == []
    fresh.stop()


async def test_a_first_init_that_failed_leaves_nothing_that_would_have_to_expire(
    world: World,
) -> None:
    """KAFKA-14880: an entry with epoch -1 could not be expired, and blocked all the others."""
    world.log.append_errors = [ErrorCode.KAFKA_STORAGE_ERROR]
    with refused(ErrorCode.NOT_COORDINATOR):
        await world.init()
    assert list(world.coordinator.transactions()) == []
    assert world.coordinator._ledger.tenure_of(ID).entries == {}
    assert world.coordinator.owner_of(1000) is None
    await world.init(transactional_id="other")
    await trio.sleep(WEEK_S + 60)
    assert list(world.coordinator.transactions()) == []


@pytest.mark.slow
async def test_memory_does_not_grow_with_transactions(world: World) -> None:
    """Redpanda #18198: what is remembered is per id, not per transaction."""
    me = await world.init()
    for _ in range(300):
        await world.add(me, P0)
        me = await world.commit(me)
        await trio.sleep(90)
    ledger = world.coordinator._ledger
    assert len(ledger.deadlines.timeouts) + len(ledger.deadlines.expirations) <= 2
    assert len(ledger.tenure_of(ID).owners) == 1


async def test_a_shorter_expiration_can_be_set(nursery: trio.Nursery) -> None:
    world = World(nursery, FIVE_SECONDS)
    await world.start()
    await world.init()
    await trio.sleep(5.1)
    assert list(world.coordinator.transactions()) == []
    world.stop()
