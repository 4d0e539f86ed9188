"""Members that are late, or whose clients have gone: sessions, deadlines, and what they end."""

import pytest
import trio
import trio.testing

from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.member_requests import MemberIdRequiredError
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, P0, Member, World, join_together, round_of


async def test_a_leader_that_dies_is_missed_after_its_session(world: World) -> None:
    leader, follower = world.member("a"), world.member("b")
    await leader.join_and_sync()
    await round_of(leader, follower)
    await follower.beat(9)
    assert follower.generation == 2
    await follower.beat(5)
    assert follower.generation == 3
    assert follower.is_leader
    assert list(world.groups.describe_group(GROUP).members) == [follower.member_id]
    with pytest.raises(KafkaError) as refused:
        leader.heartbeat()
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_does_not_join_again_is_given_up_after_the_rebalance_timeout(
    world: World,
) -> None:
    first = world.member("a", session_ms=60_000)
    second = world.member("b", session_ms=60_000)
    await first.join_and_sync()
    before = trio.current_time()
    await second.join()  # `first` sleeps
    assert trio.current_time() - before == pytest.approx(30)
    assert second.is_leader
    assert second.generation == 2


async def test_a_heartbeat_keeps_a_session_alive(world: World) -> None:
    member = world.member()
    await member.join_and_sync()
    await member.beat(100)
    assert member.generation == 1


async def test_storing_offsets_keeps_a_session_alive(world: World) -> None:
    member = world.member()
    await member.join_and_sync()
    for _ in range(10):
        await trio.sleep(8)
        await world.commit({P0: 1}, claim=member.claim)
    member.heartbeat()


async def test_a_member_that_does_not_sync_in_time_is_given_up(world: World) -> None:
    first = world.member("a", session_ms=100_000)
    second = world.member("b", session_ms=100_000)
    await first.join_and_sync()
    await join_together(first, second)
    before = trio.current_time()
    with pytest.raises(KafkaError) as refused:
        await second.sync()  # the leader never brings the assignment
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert trio.current_time() - before == pytest.approx(30)
    await second.join_and_sync()
    assert second.is_leader


async def test_a_promised_id_that_nobody_uses_does_not_hold_a_rebalance_up_for_ever(
    world: World,
) -> None:
    first, second = world.member("a", session_ms=60_000), world.member("b")
    await first.join_and_sync()
    with pytest.raises(MemberIdRequiredError):
        await world.groups.join_group(world.member("ghost")._joining())
    before = trio.current_time()
    await round_of(first, second)
    assert trio.current_time() - before == pytest.approx(10)  # the ghost's session
    assert first.generation == 2


async def test_a_newcomer_whose_client_is_gone_times_out_while_it_waits(world: World) -> None:
    first = world.member("a", rebalance_ms=1_000_000)
    await first.join_and_sync()
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_beat_without_joining, first)
        newcomer = world.member("b")
        with pytest.raises(KafkaError) as refused:
            await newcomer.join()
        nursery.cancel_scope.cancel()
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert trio.current_time() - before == pytest.approx(5 * 60)


async def _beat_without_joining(member: Member) -> None:
    while True:
        with pytest.raises(KafkaError):
            member.heartbeat()
        await trio.sleep(5)


async def test_a_leader_that_dies_before_it_assigns_does_not_hold_the_group(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await join_together(first, second)
    before = trio.current_time()
    with pytest.raises(KafkaError) as refused:
        await second.sync()
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert trio.current_time() - before == pytest.approx(10)
    await second.join_and_sync()
    assert second.is_leader


async def test_a_leader_whose_connection_breaks_while_the_disk_is_slow_has_assigned(
    world: World,
) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await join_together(first, second)
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.sync)
        connection = trio.CancelScope()

        async def sync_of_the_leader() -> None:
            with connection:
                await first.sync({second.member_id: b"all"})

        nursery.start_soon(sync_of_the_leader)
        await trio.testing.wait_all_tasks_blocked()
        connection.cancel()
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    assert second.synced is not None
    assert second.synced.assignment == b"all"


async def test_who_waits_for_the_others_need_not_send_heartbeats(world: World) -> None:
    sleeper = world.member("a", session_ms=60_000)
    waiting = world.member("b", session_ms=10_000)
    await sleeper.join_and_sync()
    await round_of(sleeper, waiting)
    waiting.protocols = (MemberProtocol("range", b"more"),)
    before = trio.current_time()
    await waiting.join()
    assert trio.current_time() - before == pytest.approx(30)
    assert list(world.groups.describe_group(GROUP).members) == [waiting.member_id]


async def test_who_waits_and_has_gone_is_missed_after_its_session(world: World) -> None:
    """Seen: a member stayed for as long as its rebalance timeout said, up to 24 days."""
    sleeper = world.member("a", session_ms=600_000, rebalance_ms=2**31 - 1)
    gone = world.member("b", session_ms=10_000, rebalance_ms=2**31 - 1)
    await sleeper.join_and_sync()
    await round_of(sleeper, gone)
    gone.protocols = (MemberProtocol("range", b"more"),)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gone.join)
        await trio.sleep(60)
        assert gone.member_id in world.groups.describe_group(GROUP).members
        nursery.cancel_scope.cancel()  # as the connection does whose client has gone
    await trio.sleep(9)
    assert gone.member_id in world.groups.describe_group(GROUP).members
    await trio.sleep(2)
    assert list(world.groups.describe_group(GROUP).members) == [sleeper.member_id]


async def test_who_waits_for_its_assignment_and_has_gone_is_missed_after_its_session(
    world: World,
) -> None:
    leader, gone = world.member("a", session_ms=600_000), world.member("b", session_ms=10_000)
    leader.rebalance_ms = gone.rebalance_ms = 2**31 - 1
    await leader.join_and_sync()
    await join_together(leader, gone)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gone.sync)
        await trio.sleep(60)
        assert gone.member_id in world.groups.describe_group(GROUP).members
        nursery.cancel_scope.cancel()
    await trio.sleep(11)
    assert list(world.groups.describe_group(GROUP).members) == [leader.member_id]


async def test_an_offset_whose_committer_has_gone_is_stored_all_the_same(world: World) -> None:
    """It is in the log, and nobody else would make it visible before the next one is stored."""
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.commit, {P0: 7})
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        world.log.release()
    assert world.stored() == {P0: 7}


async def test_the_deadline_of_a_sync_phase_ends_with_it(world: World) -> None:
    first = world.member("a", session_ms=100_000)
    slow = world.member("b", session_ms=100_000)
    await first.join_and_sync()
    await join_together(first, slow)
    await trio.sleep(20)
    third = world.member("c", session_ms=100_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(third.join)
        await trio.testing.wait_all_tasks_blocked()  # before it, `first` would get generation 2
        nursery.start_soon(first.join)
        await trio.sleep(20)  # past the 30 s that `slow` had to ask for its assignment
        nursery.start_soon(slow.join)
    assert first.generation == slow.generation == third.generation == 3
