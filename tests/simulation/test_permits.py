"""The judge of what users may do sees a broker that goes by old entries for too long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Final

import pytest
import trio

from odradek.broker.security.rights import READ_TOPIC
from odradek.protocol.errors import ErrorCode
from tests.simulation.permits import Deed, Permit, longest_lag
from tests.simulation.world import World

GRANTED, REFUSED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
HERE, THERE = 1, 2
EVERYTHING: Final = frozenset(Deed)


@asynccontextmanager
async def permit_in_a_world(*, stalls: bool = False) -> AsyncIterator[Permit]:
    """Return a permit whose right was granted and, a while later, revoked by broker 1."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=3, stall_probability=0.1 if stalls else 0.0)
        permit = Permit(world=world, violations=[], name="t", user="ann", right=READ_TOPIC)
        await trio.sleep(1)
        permit.change(EVERYTHING).acknowledge(HERE)
        await trio.sleep(20)
        change = permit.change(frozenset())
        await trio.sleep(0.1)
        change.acknowledge(HERE)
        yield permit
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("node", "seconds", "code", "is_wrong"),
    [
        (HERE, -0.05, GRANTED, False),
        (HERE, 0.05, GRANTED, True),
        (HERE, 0.05, REFUSED, False),
        (THERE, 0.05, GRANTED, False),
        (THERE, 0.9, GRANTED, False),
        (THERE, 1.1, GRANTED, True),
        (THERE, 1.1, REFUSED, False),
        (HERE, -10.0, REFUSED, False),
        (HERE, -10.0, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (THERE, 9.0, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    ],
)
async def test_what_was_revoked_may_be_granted_for_a_second_and_not_where_it_was_acknowledged(
    node: int, seconds: float, code: ErrorCode, is_wrong: bool
) -> None:
    """`seconds` is the time from the acknowledgement to the request, or to its newest record."""
    async with permit_in_a_world() as permit:
        acknowledged = trio.current_time()
        await trio.sleep(10)
        permit.note(node, Deed.USE, code, since=acknowledged + seconds)
        assert bool(permit.violations) is is_wrong


async def test_what_was_granted_may_not_be_refused_a_second_later() -> None:
    async with permit_in_a_world() as permit:
        permit.change(EVERYTHING).acknowledge(HERE)
        granted = trio.current_time()
        await trio.sleep(5)
        permit.note(THERE, Deed.USE, REFUSED, since=granted + 0.5)
        assert not permit.violations
        permit.note(THERE, Deed.LOOK, REFUSED, since=granted + 1.5)
        assert len(permit.violations) == 1


async def test_a_broker_that_is_held_up_may_go_by_old_entries_for_as_long_as_the_page_says() -> (
    None
):
    async with permit_in_a_world(stalls=True) as permit:
        acknowledged, longest = trio.current_time(), longest_lag(permit.world)
        await trio.sleep(2 * longest)
        permit.note(THERE, Deed.USE, GRANTED, since=acknowledged + longest - 0.1)
        assert not permit.violations
        permit.note(THERE, Deed.USE, GRANTED, since=acknowledged + longest + 0.1)
        assert len(permit.violations) == 1


async def test_after_a_change_whose_answer_was_lost_both_may_be() -> None:
    async with permit_in_a_world() as permit:
        permit.change(EVERYTHING)
        await trio.sleep(60)
        for code in (GRANTED, REFUSED):
            permit.note(HERE, Deed.USE, code, since=trio.current_time())
        assert not permit.violations
        assert not permit.is_known


async def test_a_fault_that_holds_brokers_up_counts_until_it_is_over_for_all() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, brokers=3)
        assert world.calm_since == -inf
        with world.held_up():
            with world.held_up():
                await trio.sleep(1)
            assert world.calm_since == inf
        assert world.calm_since == trio.current_time()
