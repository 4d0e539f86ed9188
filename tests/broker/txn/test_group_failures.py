"""The end of a transaction group when appends fail, a coordinator crashes, or time runs out."""

import logging
import random
from contextlib import suppress
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.txn.transaction import State
from odradek.broker.txn.transaction_group import MemberRefused
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.test_transaction_group import (
    NAMES,
    begin,
    begun,
    end,
    state_of,
    states,
)
from tests.broker.txn.world import P0, World, refused

E = ErrorCode


# Failures


async def test_a_refused_append_decides_nothing(world: World) -> None:
    members = await begun(world)
    world.log.append_errors.append(E.NOT_ENOUGH_REPLICAS)
    with refused(E.COORDINATOR_NOT_AVAILABLE):
        await end(world, members)
    assert await states(world) == {State.ONGOING}
    await end(world, members)
    assert await states(world) == {State.COMPLETE_COMMIT}


async def test_after_an_append_of_unknown_outcome_the_log_is_read_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A member's time-out must not supersede its part of a decision that may have survived."""
    members = await begun(world)
    world.log.flush_errors.append(E.REQUEST_TIMED_OUT)
    with caplog.at_level(logging.WARNING), refused(E.COORDINATOR_NOT_AVAILABLE):
        await end(world, members)
    # The record was in the log: what is read anew is decided, all of it.
    assert await states(world) == {State.COMPLETE_COMMIT}
    assert [who for who in await end(world, members) if who is None] == []


@pytest.mark.parametrize("keep", [0, 1])
async def test_a_crash_keeps_all_of_a_decision_or_nothing(world: World, keep: int) -> None:
    members = await begun(world)
    world.log.hold()
    async with trio.open_nursery() as nursery:

        async def attempt() -> None:
            with refused(E.NOT_COORDINATOR):
                await end(world, members)

        nursery.start_soon(attempt)
        await trio.testing.wait_all_tasks_blocked()
        await world.crash(keep=keep)
    expected = State.COMPLETE_COMMIT if keep else State.ONGOING
    assert await states(world) == {expected}


async def test_the_next_coordinator_sends_the_markers_of_a_group_together(world: World) -> None:
    members = await begun(world)
    world.markers.hold()
    await end(world, members)
    await trio.testing.wait_all_tasks_blocked()
    world.markers.requests.clear()
    await world.crash()
    world.markers.release()
    assert await states(world) == {State.COMPLETE_COMMIT}
    assert [len(request.markers) for _, request in world.markers.requests] == [3]


async def test_ends_of_overlapping_groups_do_not_wait_for_each_other_for_ever(
    world: World, nursery: trio.Nursery
) -> None:
    rng = random.Random(1)
    members = await begun(world, *(f"{{g}}.{number}" for number in range(40)))
    won: list[int] = []

    async def attempt(number: int) -> None:
        mine = rng.sample(members, 30)
        with suppress(MemberRefused):
            await end(world, mine, UUID(int=number))
            won.append(number)

    async with trio.open_nursery() as ends:
        for number in range(5):
            ends.start_soon(attempt, number)
    assert len(won) == 1
    await trio.testing.wait_all_tasks_blocked()
    decided = [m for m in members if state_of(world, m.transactional_id) is State.COMPLETE_COMMIT]
    assert len(decided) == 30


# The clock


async def test_members_share_a_clock(world: World) -> None:
    members = await begun(world)
    for _ in range(5):
        await trio.sleep(40)
        await world.add(members[1].producer, P0, transactional_id=NAMES[1], version=0)
    assert await states(world) == {State.ONGOING}
    await trio.sleep(59)
    assert await states(world) == {State.ONGOING}
    await trio.sleep(2)
    assert await states(world) == {State.COMPLETE_ABORT}


async def test_a_member_that_is_heard_while_another_cannot_be_aborted_delays_its_end_and_no_more(
    world: World,
) -> None:
    """It stayed open for good: its time-out was waited for no longer."""
    members = await begun(world)
    world.log.append_errors.extend([E.KAFKA_STORAGE_ERROR] * 100)
    await trio.sleep(60.5)
    still = [m for m in members if state_of(world, m.transactional_id) is State.ONGOING]
    assert still
    world.log.append_errors.clear()
    member = still[-1]
    name = member.transactional_id
    await world.add(member.producer, P0, transactional_id=name, version=0)
    await trio.sleep(30)
    assert state_of(world, name) is State.ONGOING
    await trio.sleep(31)
    assert await states(world) == {State.COMPLETE_ABORT}


async def test_another_groups_members_do_not_keep_it_open(world: World) -> None:
    await begun(world)
    other = await begin(world, "{h}.a")
    await trio.sleep(50)
    await world.add(other.producer, P0, transactional_id="{h}.a")
    await trio.sleep(11)
    assert await states(world) == {State.COMPLETE_ABORT}
    assert state_of(world, "{h}.a") is State.ONGOING


async def test_a_new_coordinator_grants_the_whole_time(world: World) -> None:
    await begun(world)
    await trio.sleep(50)
    await world.crash()
    await trio.sleep(59)
    assert await states(world) == {State.ONGOING}
    await trio.sleep(2)
    assert await states(world) == {State.COMPLETE_ABORT}


async def test_members_are_forgotten_after_an_hour_and_other_ids_are_not(world: World) -> None:
    members = await begun(world)
    await begin(world, "plain")
    await end(world, members)
    await trio.sleep(3601)
    for name in NAMES:
        with refused(E.TRANSACTIONAL_ID_NOT_FOUND):
            world.coordinator.describe(name)
    assert state_of(world, "plain") is State.COMPLETE_ABORT
