"""Each rebalance of a classic group is counted once, by its cause."""

import pytest
import trio.testing

from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.group_log import RebalanceCause
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import Member, World, round_of


async def two_members(world: World) -> tuple[Member, Member]:
    """Return two members that share a group, with nothing counted so far."""
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    assert world.groups.rebalances == {RebalanceCause.JOIN: 2}
    world.groups.rebalances.clear()
    return first, second


async def test_a_member_that_joins_again_unchanged_is_no_rebalance(world: World) -> None:
    _, second = await two_members(world)
    await second.join()
    assert not world.groups.rebalances


async def test_a_member_that_reads_other_topics_is_a_subscription(world: World) -> None:
    first, second = await two_members(world)
    second.protocols = (MemberProtocol("range", b"more topics"),)
    await round_of(second, first)
    assert world.groups.rebalances == {RebalanceCause.SUBSCRIPTION: 1}


async def test_a_member_that_leaves_is_one(world: World) -> None:
    first, second = await two_members(world)
    await first.leave()
    await second.join_and_sync()
    assert world.groups.rebalances == {RebalanceCause.LEAVE: 1}


async def test_a_member_without_a_heartbeat_is_a_time_out(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    _, second = await two_members(world)
    for _ in range(2):  # less than a session each, and together more
        await second.beat(7)
    assert world.groups.rebalances == {RebalanceCause.TIMEOUT: 1}


async def test_an_assignment_that_is_not_stored_is_no_member_that_has_left(world: World) -> None:
    member = world.member()
    await member.join()
    world.log.append_errors.append(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError):
        await member.sync({member.member_id: b"all"})
    assert world.groups.rebalances == {RebalanceCause.JOIN: 1, RebalanceCause.NOT_STORED: 1}
