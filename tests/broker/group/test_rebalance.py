"""Members come, go, die and come back: the stories of a classic group."""

import pytest
import trio
import trio.testing

from odradek.broker.group.limits import GroupConfig
from odradek.broker.group.members import MemberProtocol
from odradek.broker.group.requests import Claim, MemberIdRequiredError, Syncing
from odradek.broker.group.state import GroupState
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, P0, Member, World, join_together, round_of


def state_of(world: World) -> GroupState:
    return world.groups.describe_group(GROUP).state


async def test_the_first_member_gets_a_generation_at_once(world: World) -> None:
    member = world.member()
    before = trio.current_time()
    joined = await member.join()
    assert trio.current_time() == before
    assert (joined.generation_id, joined.leader_id) == (1, member.member_id)
    assert [each.member_id for each in joined.members] == [member.member_id]
    assert state_of(world) is GroupState.COMPLETING_REBALANCE
    synced = await member.sync({member.member_id: b"everything"})
    assert synced.assignment == b"everything"
    assert state_of(world) is GroupState.STABLE


async def test_a_new_member_is_told_its_id_first(world: World) -> None:
    member = world.member("laptop")
    with pytest.raises(MemberIdRequiredError) as required:
        await world.groups.join_group(member._joining())
    assert required.value.member_id.startswith("laptop-")
    assert required.value.code is ErrorCode.MEMBER_ID_REQUIRED


async def test_an_older_client_is_told_its_id_with_the_generation(world: World) -> None:
    member = world.member(is_old=True)
    joined = await world.groups.join_group(member._joining())
    assert joined.member_id.startswith("client-")


async def test_a_second_member_makes_the_first_join_again(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join_and_sync)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(KafkaError) as refused:
            first.heartbeat()
        assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
        nursery.start_soon(first.join_and_sync)
    assert first.generation == second.generation == 2
    assert first.is_leader
    assert not second.is_leader
    assert second.joined is not None
    assert second.joined.members == ()
    assert second.synced is not None
    assert second.synced.assignment == second.member_id.encode()


async def test_offsets_may_not_be_stored_between_generations(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join)
        await trio.testing.wait_all_tasks_blocked()
        # the join phase: what was consumed under the old generation may still be stored
        assert await world.commit({P0: 5}, claim=first.claim) == {P0: ErrorCode.NONE}
        old = first.claim
        await first.join()
    with pytest.raises(KafkaError) as refused:
        await world.commit({P0: 6}, claim=first.claim)
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    with pytest.raises(KafkaError) as refused:
        await world.commit({P0: 6}, claim=old)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


async def test_a_member_that_leaves_makes_the_others_share_its_work(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    assert await first.leave() is ErrorCode.NONE
    await second.join_and_sync()
    assert second.is_leader
    assert second.generation == 3


async def test_the_last_one_leaves_an_empty_group_and_a_record_of_it(world: World) -> None:
    member = world.member()
    await member.join_and_sync()
    assert await member.leave() is ErrorCode.NONE
    assert state_of(world) is GroupState.EMPTY
    assert world.log.durable_offset == world.log.end_offset
    await world.crash()
    assert state_of(world) is GroupState.EMPTY
    assert world.groups.describe_group(GROUP).generation_id == 2


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


async def test_a_follower_that_joins_again_unchanged_disturbs_nobody(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    joined = await second.join()
    assert joined.generation_id == 2
    synced = await second.sync()
    assert synced.assignment == second.member_id.encode()
    first.heartbeat()


async def test_a_member_that_subscribes_anew_starts_a_rebalance(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    second.protocols = (MemberProtocol("range", b"more topics"),)
    await round_of(second, first)
    assert first.generation == 3
    assert first.joined is not None
    assert [each.metadata for each in first.joined.members] == [b"topics", b"more topics"]


async def test_the_leader_may_ask_for_a_rebalance(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    await round_of(second, first)
    assert first.generation == second.generation == 3


async def test_a_join_that_lost_its_answer_is_answered_again(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await join_together(first, second)
    again = await first.join()
    assert again.generation_id == 2
    assert len(again.members) == 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.sync)
        await first.sync({second.member_id: b"all"})
    assert second.synced is not None
    assert second.synced.assignment == b"all"


async def test_of_two_joins_under_one_id_the_newer_is_answered(world: World) -> None:
    first, second = world.member("a"), world.member("b", is_old=True)
    await first.join_and_sync()
    ghost = world.member("b", session_ms=60_000)
    codes: list[ErrorCode] = []

    async def join_and_fail() -> None:
        with pytest.raises(KafkaError) as refused:
            await ghost.join()
        codes.append(refused.value.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join_and_fail)
        await trio.testing.wait_all_tasks_blocked()
        assert ghost.member_id
        again = world.member("b", session_ms=60_000)
        again.member_id = ghost.member_id
        nursery.start_soon(again.join)
        await trio.testing.wait_all_tasks_blocked()
        assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]
        await first.join()
    assert again.generation == 2
    assert second.joined is None


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


async def test_syncing_under_another_generation_or_protocol_is_refused(world: World) -> None:
    member = world.member()
    await member.join()

    async def sync(**changes: object) -> ErrorCode:
        syncing = {
            "group_id": GROUP,
            "claim": member.claim,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": {},
        } | changes
        with pytest.raises(KafkaError) as refused:
            await world.groups.sync_group(Syncing(**syncing))  # type: ignore[arg-type]
        return refused.value.code

    old = Claim(member_id=member.member_id, generation_id=0)
    stranger = Claim(member_id="who", generation_id=1)
    assert await sync(claim=old) is ErrorCode.ILLEGAL_GENERATION
    assert await sync(claim=stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await sync(protocol_name="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await sync(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await sync(group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await sync(group_id="") is ErrorCode.INVALID_GROUP_ID


async def test_an_assignment_that_cannot_be_stored_sends_everybody_back(world: World) -> None:
    member = world.member()
    await member.join()
    world.log.append_errors.append(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(KafkaError) as refused:
        await member.sync({member.member_id: b"all"})
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert state_of(world) is GroupState.PREPARING_REBALANCE
    await member.join_and_sync()
    assert member.generation == 2


async def test_an_assignment_is_seen_by_nobody_before_it_is_on_disk(world: World) -> None:
    member = world.member()
    await member.join()
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.sync, {member.member_id: b"all"})
        await trio.testing.wait_all_tasks_blocked()
        assert state_of(world) is GroupState.COMPLETING_REBALANCE
        assert world.groups.describe_group(GROUP).members[member.member_id].assignment == b""
        world.log.release()
    assert state_of(world) is GroupState.STABLE


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


async def test_the_assignment_that_was_brought_first_counts_here_and_on_the_disk(
    world: World,
) -> None:
    leader = world.member()
    await leader.join()
    world.log.hold()
    async with trio.open_nursery() as nursery:

        async def sync_and_lose_the_connection() -> None:
            with pytest.raises(KafkaError) as refused:
                await leader.sync({leader.member_id: b"first"})
            assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS

        nursery.start_soon(sync_and_lose_the_connection)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(leader.sync, {leader.member_id: b"second"})
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    assert leader.synced is not None
    assert leader.synced.assignment == b"first"
    await world.crash()
    assert (await leader.sync()).assignment == b"first"


async def test_an_assignment_is_not_that_of_the_next_generation(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join()
    world.log.hold()
    async with trio.open_nursery() as nursery:

        async def sync_too_late() -> None:
            with pytest.raises(KafkaError):
                await first.sync({first.member_id: b"old"})

        nursery.start_soon(sync_too_late)
        await trio.testing.wait_all_tasks_blocked()
        await join_together(first, second)
        world.log.release()
        await trio.testing.wait_all_tasks_blocked()
        assert state_of(world) is GroupState.COMPLETING_REBALANCE
        assert first.generation == second.generation == 2


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


async def test_a_rebalance_that_overtakes_an_assignment_wins(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join()
    world.log.hold()
    async with trio.open_nursery() as nursery:

        async def sync_too_late() -> None:
            with pytest.raises(KafkaError) as refused:
                await first.sync({first.member_id: b"all"})
            assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS

        nursery.start_soon(sync_too_late)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(second.join)
        await trio.testing.wait_all_tasks_blocked()
        assert state_of(world) is GroupState.PREPARING_REBALANCE
        world.log.release()
        await trio.testing.wait_all_tasks_blocked()
        assert state_of(world) is GroupState.PREPARING_REBALANCE
        await first.join()
    assert first.generation == second.generation == 2


async def test_no_common_protocol_no_entry(world: World) -> None:
    first = world.member("a")
    await first.join_and_sync()
    other = world.member("b", protocols=(MemberProtocol("sticky", b""),))
    with pytest.raises(KafkaError) as refused:
        await other.join()
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    first.heartbeat()


async def test_many_leave_in_one_request_and_each_gets_its_own_answer(world: World) -> None:
    first, second = world.member("a"), world.member("b")
    await first.join_and_sync()
    await round_of(first, second)
    codes = await world.groups.leave_group(
        GROUP, [Claim(member_id=first.member_id), Claim(member_id="who")]
    )
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    codes = await world.groups.leave_group("other", [Claim(member_id=first.member_id)])
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_the_first_rebalance_can_wait_for_more_members(nursery: trio.Nursery) -> None:
    config = GroupConfig(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=3000)
    world = World(nursery, config)
    await world.start()
    members = [world.member(name) for name in "abc"]
    before = trio.current_time()
    async with trio.open_nursery() as joining:
        for member in members:
            joining.start_soon(member.join)
            await trio.sleep(2)
    world.stop()
    # 0, 2 and 4 s; each delay with a newcomer in it is followed by another: 3 -> 6 -> 9
    assert trio.current_time() - before == pytest.approx(9)
    assert [member.generation for member in members] == [1, 1, 1]


async def test_a_join_on_a_busy_broker_with_many_members_ends(world: World) -> None:
    members = [world.member(f"m{number}") for number in range(50)]
    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(member.live, 30)
            await trio.sleep(0.1)
    generations = {member.generation for member in members}
    assert len(generations) == 1
    assert len(world.groups.describe_group(GROUP).members) == 50
