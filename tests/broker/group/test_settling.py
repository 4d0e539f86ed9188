"""A group whose members die at any point of a rebalance settles within a session.

The survivors send heartbeats and join again when they are told to. Their rebalance timeout is
long, as clients have it by default (5 minutes): no death may cost that much.
"""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from odradek.broker.group.member_requests import MemberIdRequiredError
from odradek.broker.group.state import GroupState
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, Member, World, join_together, round_of

SESSION_S = 10
REBALANCE_MS = 300_000
SLACK_S = 2
"""The survivors hear of a rebalance with their next heartbeat."""

Death = Callable[[World, Member, Member, Member], Awaitable[None]]


def member_of(world: World, name: str) -> Member:
    return world.member(name, session_ms=SESSION_S * 1000, rebalance_ms=REBALANCE_MS)


async def survive(member: Member) -> None:
    """Do what a consumer does, also when its generation or its id is not known any more."""
    is_out = False
    while True:
        try:
            if is_out:
                await member.join_and_sync()
            is_out = False
            await member.beat(float("inf"), every=0.5)
        except KafkaError as error:
            is_out = True
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                member.member_id = ""
            elif error.code is not ErrorCode.ILLEGAL_GENERATION:
                raise


async def begun(request: Callable[[], Awaitable[object]]) -> None:
    """Send a request, and let its connection break while it waits."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(request)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def with_an_id_only(world: World, first: Member, second: Member, dying: Member) -> None:
    with pytest.raises(MemberIdRequiredError):
        await world.groups.join_group(dying._joining())
    third = member_of(world, "third")
    await begun(third.join)  # a rebalance has to wait for the id


async def in_its_first_join(world: World, first: Member, second: Member, dying: Member) -> None:
    await begun(dying.join)


async def in_a_later_join(world: World, first: Member, second: Member, dying: Member) -> None:
    await round_of(first, second, dying)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begun, member_of(world, "third").join)
        await trio.testing.wait_all_tasks_blocked()
    await begun(dying.join)


async def as_the_leader_before_it_assigns(
    world: World, first: Member, second: Member, dying: Member
) -> None:
    await round_of(first, second, dying)
    await first.leave()
    await second.leave()
    await dying.join_and_sync()
    assert dying.is_leader
    first.member_id = second.member_id = ""
    await join_together(dying, first, second)


async def before_it_asks_for_its_assignment(
    world: World, first: Member, second: Member, dying: Member
) -> None:
    await join_together(first, second, dying)


async def while_it_waits_for_its_assignment(
    world: World, first: Member, second: Member, dying: Member
) -> None:
    await join_together(first, second, dying)
    await begun(dying.sync)


async def with_its_partitions(world: World, first: Member, second: Member, dying: Member) -> None:
    await round_of(first, second, dying)


DEATHS: list[Death] = [
    with_an_id_only,
    in_its_first_join,
    in_a_later_join,
    as_the_leader_before_it_assigns,
    before_it_asks_for_its_assignment,
    while_it_waits_for_its_assignment,
    with_its_partitions,
]


@pytest.mark.parametrize("fails_over", [False, True], ids=["", "and the coordinator goes"])
@pytest.mark.parametrize("dies", DEATHS, ids=lambda each: each.__name__)
async def test_a_group_settles_within_two_sessions_of_a_death(
    world: World, dies: Death, fails_over: bool
) -> None:
    """One session for the dead member, and one for the ids that its generation leaves behind."""
    first, second, dying = (member_of(world, name) for name in ("first", "second", "dying"))
    await first.join_and_sync()
    await round_of(first, second)
    await dies(world, first, second, dying)
    if fails_over:
        await world.crash()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(survive, first)
        nursery.start_soon(survive, second)
        await trio.sleep(2 * SESSION_S + SLACK_S)
        found = world.groups.describe_group(GROUP)
        assert found.state is GroupState.STABLE
        assert sorted(found.members) == sorted([first.member_id, second.member_id])
        nursery.cancel_scope.cancel()
