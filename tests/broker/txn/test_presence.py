"""`transaction.abort.on.disconnect`: when a producer counts as disconnected, and its abort."""

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.presence import Presence, Seat
from odradek.broker.txn.transaction import BumpCause, ProducerIdAndEpoch, State
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import CLIENT, ID, OTHER, P0, P1, World, producer, refused

CONFIG = TransactionConfig(
    transaction_state_log_num_partitions=1,
    transaction_two_phase_commit_enable=True,
    transaction_abort_on_disconnect=True,
)


@pytest.fixture
async def watched(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = World(nursery, CONFIG)
    await world.start()
    yield world
    world.stop()


class Doors:
    """A presence whose departures are written down."""

    def __init__(self) -> None:
        self.gone: list[tuple[str, ProducerIdAndEpoch]] = []
        self.presence = Presence(lambda name, who, client: self.gone.append((name, who)))

    def open(self, count: int) -> list[Seat]:
        return [self.presence.seat() for _ in range(count)]


ME = producer(7, 5)
NEXT = producer(7, 6)


def test_a_producer_is_gone_with_its_last_connection() -> None:
    doors = Doors()
    first, second = doors.open(2)
    first.note_served("a", ME, CLIENT, begins=True)
    second.note_served("a", ME, CLIENT)
    first.leave(is_gone=True)
    assert doors.gone == []
    second.leave(is_gone=True)
    assert doors.gone == [("a", ME)]
    assert len(doors.presence) == 0


async def test_a_member_of_a_transaction_group_may_disconnect(watched: World) -> None:
    for name, state in (("{g}.a", State.ONGOING), ("{}.a", State.COMPLETE_ABORT)):
        presence = watched.coordinator.presence
        me = await watched.init(transactional_id=name)
        await watched.add(me, P0, transactional_id=name)
        seat = presence.seat()
        seat.note_served(name, me, CLIENT)
        seat.leave(is_gone=True)
        await trio.testing.wait_all_tasks_blocked()
        assert watched.coordinator.describe(name).state is state, name


def test_a_connection_that_was_never_used_for_it_says_nothing() -> None:
    doors = Doors()
    first, second = doors.open(2)
    first.note_served("a", ME, CLIENT, begins=True)
    second.leave(is_gone=True)
    assert doors.gone == []


def test_the_epoch_that_it_has_now_is_the_one_that_is_gone() -> None:
    doors = Doors()
    first, second = doors.open(2)
    first.note_served("a", ME, CLIENT, begins=True)
    second.note_served("a", NEXT, CLIENT)
    first.note_served("a", ME, CLIENT)  # an answer that took longer
    second.leave(is_gone=True)
    first.leave(is_gone=True)
    assert doors.gone == [("a", NEXT)]


def test_the_connections_of_an_instance_before_do_not_matter_any_more() -> None:
    doors = Doors()
    old, new = doors.open(2)
    old.note_served("a", ME, CLIENT, begins=True)
    new.note_served("a", NEXT, OTHER, begins=True)
    old.leave(is_gone=True)
    assert doors.gone == []
    new.leave(is_gone=True)
    assert doors.gone == [("a", NEXT)]


def test_an_instance_that_is_gone_is_not_held_by_the_connection_of_the_one_before() -> None:
    doors = Doors()
    old, new = doors.open(2)
    old.note_served("a", ME, CLIENT, begins=True)
    new.note_served("a", NEXT, OTHER, begins=True)
    new.leave(is_gone=True)
    assert doors.gone == [("a", NEXT)]
    assert len(doors.presence) == 0


def test_a_start_that_is_answered_late_does_not_take_the_place_of_a_newer_one() -> None:
    doors = Doors()
    old, new = doors.open(2)
    new.note_served("a", NEXT, OTHER, begins=True)
    old.note_served("a", ME, CLIENT, begins=True)
    old.leave(is_gone=True)
    assert doors.gone == []
    new.leave(is_gone=True)
    assert doors.gone == [("a", NEXT)]


def test_a_connection_that_the_broker_closes_says_nothing_about_its_producer() -> None:
    doors = Doors()
    (seat,) = doors.open(1)
    seat.note_served("a", ME, CLIENT, begins=True)
    seat.leave(is_gone=False)
    assert doors.gone == []
    assert len(doors.presence) == 0


def test_what_is_served_after_its_connection_has_ended_is_not_seen() -> None:
    doors = Doors()
    (seat,) = doors.open(1)
    seat.leave(is_gone=True)
    seat.note_served("a", ME, CLIENT, begins=True)
    assert len(doors.presence) == 0


def test_one_connection_of_many_producers_takes_them_all_with_it() -> None:
    doors = Doors()
    (seat,) = doors.open(1)
    for name in "abc":
        seat.note_served(name, ME, CLIENT, begins=True)
    seat.leave(is_gone=True)
    assert doors.gone == [("a", ME), ("b", ME), ("c", ME)]


# What the coordinator does about it


def a_seat(world: World) -> Seat:
    return world.coordinator.presence.seat()


async def test_nobody_is_watched_without_the_setting(world: World) -> None:
    a_seat(world).note_served(ID, ME, CLIENT, begins=True)
    assert len(world.coordinator.presence) == 0


async def test_the_setting_counts_for_producers_that_were_there_when_it_was_turned_on(
    world: World,
) -> None:
    seat = a_seat(world)
    me = await world.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    world.coordinator.presence.turn(True)
    await world.add(me, P0)
    seat.note_served(ID, me, CLIENT)
    seat.leave(is_gone=True)
    assert await world.settled() is State.COMPLETE_ABORT


async def test_no_producer_is_watched_after_the_setting_was_turned_off(watched: World) -> None:
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    watched.coordinator.presence.turn(False)
    watched.coordinator.presence.turn(True)
    seat.leave(is_gone=True)
    assert await watched.settled() is State.ONGOING


async def test_an_open_transaction_ends_with_its_producers_last_connection(
    watched: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    await trio.sleep(2)
    seat.leave(is_gone=True)
    assert await watched.settled() is State.COMPLETE_ABORT
    assert [(m.partition, m.committed) for m in watched.markers.written] == [(P0, False)]
    bump = watched.transaction.bump
    assert bump is not None
    assert bump.cause is BumpCause.DISCONNECTED
    assert caplog.messages == [
        "'refunds-2' was fenced: 127.0.0.1 as 'worker-7' closed its last connection; aborted: "
        "producer id 1000, epoch 0, 1 partition, open for 2.0 s"
    ]
    with refused(ErrorCode.PRODUCER_FENCED):
        await watched.add(me, P1)
    assert (await watched.init()).producer_epoch == 2


async def test_what_is_not_open_is_not_touched(watched: World) -> None:
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    seat.leave(is_gone=True)
    assert await watched.settled() is State.EMPTY
    seat = a_seat(watched)
    await watched.add(me, P0)
    told = await watched.commit(me)
    seat.note_served(ID, told, CLIENT)
    seat.leave(is_gone=True)
    assert await watched.settled() is State.COMPLETE_COMMIT
    await watched.add(told, P0)


async def test_a_producer_that_is_back_with_a_new_epoch_is_not_aborted(watched: World) -> None:
    old, new = a_seat(watched), a_seat(watched)
    me = await watched.init()
    old.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    watched.log.hold()
    watched.nursery.start_soon(watched.init)  # it fences itself, and that is being written ...
    await trio.testing.wait_all_tasks_blocked()
    old.leave(is_gone=True)  # ... when its old connection is seen to be closed
    await trio.testing.wait_all_tasks_blocked()
    watched.log.release()
    assert await watched.settled() is State.EMPTY
    following = watched.transaction.current
    new.note_served(ID, following, CLIENT, begins=True)
    await watched.add(following, P1)
    assert await watched.settled() is State.ONGOING
    bump = watched.transaction.bump
    assert bump is not None
    assert bump.cause is BumpCause.NEW_INSTANCE


async def test_a_producer_that_comes_back_while_it_is_aborted_waits_for_the_abort(
    watched: World,
) -> None:
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    watched.markers.hold()
    seat.leave(is_gone=True)
    await trio.testing.wait_all_tasks_blocked()
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        await watched.init()
    watched.markers.release()
    following = await watched.init()
    assert following.producer_epoch == me.producer_epoch + 2


async def test_what_is_being_written_when_it_goes_is_waited_for(watched: World) -> None:
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    watched.log.hold()
    watched.nursery.start_soon(watched.add, me, P0)
    await trio.testing.wait_all_tasks_blocked()
    seat.leave(is_gone=True)
    await trio.testing.wait_all_tasks_blocked()
    watched.log.release()
    assert await watched.settled() is State.COMPLETE_ABORT


async def test_an_abort_that_the_log_refuses_is_tried_again(watched: World) -> None:
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    watched.log.append_errors.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
    seat.leave(is_gone=True)
    await trio.sleep(5)
    assert await watched.settled() is State.COMPLETE_ABORT
    assert watched.transaction.producer_epoch == me.producer_epoch + 1


async def test_a_prepared_producer_may_be_away(watched: World) -> None:
    seat = a_seat(watched)
    me = (await watched.prepare_anew()).producer
    seat.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    seat.leave(is_gone=True)
    await trio.sleep(24 * 3600)
    assert watched.state is State.ONGOING


async def test_a_producer_of_a_partition_that_went_elsewhere_is_not_ours_to_abort(
    watched: World,
) -> None:
    seat = a_seat(watched)
    me = await watched.init()
    seat.note_served(ID, me, CLIENT, begins=True)
    await watched.add(me, P0)
    watched.coordinator.unload(0)
    seat.leave(is_gone=True)
    await trio.testing.wait_all_tasks_blocked()
    assert watched.markers.asked == []


@pytest.mark.parametrize("epoch", [32_765, 32_766])
async def test_a_producer_that_goes_at_the_last_epoch(nursery: trio.Nursery, epoch: int) -> None:
    world = World(nursery, CONFIG)
    await world.start()
    seat = a_seat(world)
    me = await world.init()
    transaction = world.transaction
    await world.plant(
        type(transaction)(
            producer_id=me.producer_id, producer_epoch=epoch, previous_producer_id=1, timeout_ms=9
        )
    )
    seat, me = a_seat(world), producer(me.producer_id, epoch)
    await world.add(me, P0)
    seat.note_served(ID, me, CLIENT)
    seat.leave(is_gone=True)
    assert await world.settled() is State.COMPLETE_ABORT
    following = await world.init()
    assert following.producer_epoch <= 1
    assert following.producer_id > me.producer_id
    world.stop()
