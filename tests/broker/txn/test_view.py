"""The coordinator's description of a transactional id."""

import trio
import trio.testing

from odradek.broker.txn.transaction import BumpCause, State
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import CLIENT, ID, OTHER, P0, P1, START_MS, World


async def test_an_open_transaction_has_an_age_and_a_deadline(world: World) -> None:
    me = await world.init()
    view = world.coordinator.describe(ID)
    assert (view.state, view.is_open, view.open_for_ms) == (State.EMPTY, False, -1)
    assert (view.started_ms, view.times_out_in_ms, view.explanation) == (-1, None, None)
    await world.add(me, P0, P1)
    await trio.sleep(20)
    view = world.coordinator.describe(ID)
    assert (view.state, view.is_open, view.open_for_ms) == (State.ONGOING, True, 20_000)
    assert (view.started_ms, view.timeout_ms) == (START_MS, 60_000)
    assert view.times_out_in_ms == 40_000
    assert set(view.partitions) == {P0, P1}
    assert view.client == CLIENT


async def test_a_decided_transaction_shows_only_who_waits_for_a_marker(world: World) -> None:
    me = await world.init()
    await world.add(me, P0, P1)
    world.markers.answer = lambda marker: (
        ErrorCode.NONE if marker.partition == P0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    await world.commit(me)
    assert set(world.coordinator.describe(ID).partitions) == {P0, P1}
    await trio.testing.wait_all_tasks_blocked()
    view = world.coordinator.describe(ID)
    assert (view.state, set(view.partitions)) == (State.PREPARE_COMMIT, {P1})
    assert view.transaction.partitions == {P0, P1}
    world.markers.answer = lambda marker: ErrorCode.NONE
    await trio.sleep(1)
    view = world.coordinator.describe(ID)
    assert (view.state, set(view.partitions)) == (State.COMPLETE_COMMIT, set())


async def test_what_is_being_written_is_told_beside_what_is_seen(world: World) -> None:
    me = await world.init()
    world.log.hold()
    world.nursery.start_soon(world.add, me, P0)
    await trio.testing.wait_all_tasks_blocked()
    view = world.coordinator.describe(ID)
    assert (view.state, view.pending_state, view.is_pending) == (State.EMPTY, State.ONGOING, True)
    world.log.release()
    await trio.testing.wait_all_tasks_blocked()
    view = world.coordinator.describe(ID)
    assert (view.state, view.pending_state, view.is_pending) == (State.ONGOING, None, False)


async def test_why_an_epoch_changed_is_told_in_a_sentence(world: World) -> None:
    me = await world.init()
    await world.add(me, P0)
    await world.init(client=OTHER)
    await trio.sleep(1.2)
    view = world.coordinator.describe(ID)
    assert view.bump is not None
    assert view.bump.cause is BumpCause.NEW_INSTANCE
    assert view.explanation == (
        "'refunds-2' was fenced: a new instance from 10.0.0.8 as 'worker-8' started 1.2 s ago"
    )
