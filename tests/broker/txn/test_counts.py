"""The counts of transactions: how they ended, how long they took, and what has fenced producers."""

import pytest
import trio
import trio.testing

from odradek.broker.txn.counts import TransactionCounts
from odradek.broker.txn.transaction import BumpCause
from tests.broker.txn.world import OTHER, P0, P1, World


@pytest.fixture
def counts(world: World) -> TransactionCounts:
    return world.coordinator.counts


async def test_a_transaction_has_the_time_until_its_markers_and_the_part_from_the_decision_on(
    world: World, counts: TransactionCounts, autojump_clock: trio.testing.MockClock
) -> None:
    who = await world.init()
    await world.add(who, P0)
    await trio.sleep(3)
    world.markers.hold()
    await world.commit(who)
    await trio.sleep(2)
    assert not counts.ended, "its markers are not written"
    world.markers.release()
    await trio.testing.wait_all_tasks_blocked()
    assert counts.ended == {"commit": 1}
    assert (counts.seconds.count, counts.seconds.sum_seconds) == (1, 5.0)
    assert (counts.marker_seconds.count, counts.marker_seconds.sum_seconds) == (1, 2.0)


async def test_an_abort_of_nothing_is_no_transaction(
    world: World, counts: TransactionCounts
) -> None:
    """Every producer that ends an empty transaction counted as an abort that took no time."""
    who = await world.abort(await world.init())
    await world.add(who, P0)
    await world.abort(who)
    await trio.testing.wait_all_tasks_blocked()
    assert counts.ended == {"abort": 1}
    assert counts.seconds.count == counts.marker_seconds.count == 1


async def test_what_the_broker_has_ended_counts_by_its_cause(
    world: World, counts: TransactionCounts, autojump_clock: trio.testing.MockClock
) -> None:
    """A new instance counted as two fences, as its epoch is raised again after the abort."""
    await world.add(await world.init(timeout_ms=5_000), P0)
    await trio.sleep(20)
    assert counts.ended == counts.fences == {BumpCause.TIMEOUT: 1}
    await world.add(await world.init(), P0, P1)
    await world.init(client=OTHER)
    await trio.testing.wait_all_tasks_blocked()
    assert counts.ended == {"timeout": 1, "new instance": 1}
    assert counts.fences == {BumpCause.TIMEOUT: 1, BumpCause.NEW_INSTANCE: 1}


async def test_a_client_that_starts_anew_with_nothing_open_fences_none(
    world: World, counts: TransactionCounts
) -> None:
    """A Spark query makes a producer anew for each of its micro-batches."""
    for _ in range(3):
        await world.init()
    assert not counts.fences
    await world.init(client=OTHER)
    assert counts.fences == {BumpCause.NEW_INSTANCE: 1}


async def test_what_is_read_from_the_log_is_not_counted_and_its_end_is(world: World) -> None:
    who = await world.init()
    await world.add(who, P0)
    await world.commit(who)
    await trio.testing.wait_all_tasks_blocked()
    who = await world.init()
    await world.add(who, P0)
    world.markers.hold()
    await world.commit(who)
    counts = (await world.crash()).counts
    assert not counts.ended
    world.markers.release()
    await trio.testing.wait_all_tasks_blocked()
    assert counts.ended == {"commit": 1}
    assert not counts.fences
