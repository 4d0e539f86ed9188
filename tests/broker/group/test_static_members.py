"""Members with a group.instance.id, which may restart without a rebalance (KIP-345, KIP-814)."""

import pytest
import trio

from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.member_requests import Claim
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, P0, World, round_of


async def test_a_static_member_that_restarts_goes_on_without_a_rebalance(world: World) -> None:
    leader, follower = world.member("a", instance="i1"), world.member("b", instance="i2")
    await leader.join_and_sync()
    await round_of(leader, follower)
    restarted = world.member("b", instance="i2")
    joined = await restarted.join()
    assert joined.generation_id == 2
    assert restarted.member_id != follower.member_id
    synced = await restarted.sync()
    assert synced.assignment == follower.member_id.encode()
    leader.heartbeat()
    for refused_call in (follower.heartbeat, lambda: None):
        if refused_call is follower.heartbeat:
            with pytest.raises(KafkaError) as refused:
                refused_call()
            assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(KafkaError) as refused:
        await world.commit({P0: 1}, claim=follower.claim)
    assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID


async def test_a_static_leader_that_restarts_is_told_to_keep_the_assignment(world: World) -> None:
    leader, follower = world.member("a", instance="i1"), world.member("b", instance="i2")
    await leader.join_and_sync()
    await round_of(leader, follower)
    restarted = world.member("a", instance="i1")
    joined = await restarted.join()
    assert joined.skip_assignment
    assert joined.leader_id == restarted.member_id
    assert len(joined.members) == 2
    follower.heartbeat()


async def test_an_older_static_leader_that_restarts_does_not_learn_that_it_leads(
    world: World,
) -> None:
    leader = world.member("a", instance="i1")
    await leader.join_and_sync()
    restarted = world.member("a", instance="i1", can_skip_assignment=False)
    joined = await restarted.join()
    assert joined.leader_id == leader.member_id
    assert joined.members == ()
    assert not joined.skip_assignment


async def test_a_static_member_that_wants_another_protocol_starts_a_rebalance(
    world: World,
) -> None:
    member = world.member(
        "a", instance="i1", protocols=(MemberProtocol("x", b""), MemberProtocol("y", b""))
    )
    await member.join_and_sync()
    restarted = world.member(
        "a", instance="i1", protocols=(MemberProtocol("y", b""), MemberProtocol("x", b""))
    )
    joined = await restarted.join()
    assert (joined.generation_id, joined.protocol_name) == (2, "y")


async def test_the_new_id_of_a_static_member_survives_a_restart_of_the_broker(
    world: World,
) -> None:
    member = world.member("a", instance="i1")
    await member.join_and_sync()
    restarted = world.member("a", instance="i1")
    await restarted.join()
    await world.crash()
    restarted.heartbeat()
    with pytest.raises(KafkaError) as refused:
        member.heartbeat()
    assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID


async def test_a_static_member_whose_new_id_was_not_stored_keeps_the_old_one(
    world: World,
) -> None:
    member = world.member("a", instance="i1")
    await member.join_and_sync()
    world.log.append_errors.append(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError) as refused:
        await world.member("a", instance="i1").join()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    member.heartbeat()


async def test_whoever_waits_under_the_old_id_is_fenced(world: World) -> None:
    first, static = world.member("a"), world.member("b", instance="i2")
    await first.join_and_sync()
    codes: list[ErrorCode] = []

    async def be_fenced() -> None:
        with pytest.raises(KafkaError) as refused:
            await static.join()
        codes.append(refused.value.code)

    restarted = world.member("b", instance="i2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(be_fenced)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(restarted.join)
        await trio.testing.wait_all_tasks_blocked()
        assert codes == [ErrorCode.FENCED_INSTANCE_ID]
        await first.join()
    assert restarted.generation == 2


async def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends(
    world: World,
) -> None:
    away = world.member("a", instance="i1", session_ms=60_000, rebalance_ms=5_000)
    static = world.member("b", instance="i2", session_ms=60_000, rebalance_ms=5_000)
    await away.join_and_sync()
    await round_of(away, static)
    before = trio.current_time()
    await static.join_and_sync()  # i1 does not join again
    assert trio.current_time() - before == 0  # a follower that has not changed
    static.protocols = (MemberProtocol("range", b"new"),)
    await static.join()
    assert trio.current_time() - before == pytest.approx(5)
    assert list(world.groups.describe_group(GROUP).members) == [away.member_id, static.member_id]
    assert static.is_leader


async def test_an_administrator_removes_a_static_member_by_its_instance_id(world: World) -> None:
    member = world.member("a", instance="i1")
    await member.join_and_sync()
    codes = await world.groups.leave_group(
        GROUP,
        [Claim(group_instance_id="i1"), Claim(group_instance_id="i9"), Claim()],
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert not world.groups.describe_group(GROUP).members


async def test_leaving_under_an_id_that_was_replaced_is_refused(world: World) -> None:
    member = world.member("a", instance="i1")
    await member.join_and_sync()
    restarted = world.member("a", instance="i1")
    await restarted.join()
    assert await member.leave() is ErrorCode.FENCED_INSTANCE_ID
    restarted.heartbeat()
