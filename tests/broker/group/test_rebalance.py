"""Members join, leave and join again: the generations of a classic group."""

import pytest
import trio
import trio.testing

from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.limits import GroupConfig
from odradek.broker.group.member_requests import Claim, MemberIdRequiredError, Syncing
from odradek.broker.group.state import GroupState
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, P0, World, join_together, round_of


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


async def test_members_that_ask_in_one_turn_are_in_one_generation(world: World) -> None:
    """Before, the generation began as soon as all that were known had joined."""
    for number in range(30):  # trio draws which task of a turn runs first
        group_id = f"group-{number}"
        first, second, third, fourth = members = [
            world.member(name, group_id=group_id) for name in "abcd"
        ]
        await first.join_and_sync()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(second.join)
                await trio.testing.wait_all_tasks_blocked()
                for member in (third, first, fourth):
                    nursery.start_soon(member.join)
        assert [member.generation for member in members] == [2, 2, 2, 2]


async def test_a_member_that_got_its_id_in_the_turn_of_the_last_join_is_waited_for(
    world: World,
) -> None:
    first, second, third = members = [world.member(name) for name in "abc"]
    await first.join_and_sync()

    async def ask_for_an_id() -> None:
        with pytest.raises(MemberIdRequiredError) as required:
            await world.groups.join_group(third._joining())
        third.member_id = required.value.member_id

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.join)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(first.join)
            nursery.start_soon(ask_for_an_id)
            await trio.testing.wait_all_tasks_blocked()
            assert state_of(world) is GroupState.PREPARING_REBALANCE
            nursery.start_soon(third.join)
    assert [member.generation for member in members] == [2, 2, 2]


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


async def test_an_assignment_that_was_refused_has_no_effect_if_it_is_committed_later(
    world: World,
) -> None:
    member = world.member(session_ms=60_000)
    await member.join()
    world.log.hold()
    with pytest.raises(KafkaError) as refused:
        await member.sync({member.member_id: b"old"})
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.release()
    await member.join()
    await world.commit({P0: 1}, group_id="other")
    assert state_of(world) is GroupState.COMPLETING_REBALANCE
    assert (await member.sync({member.member_id: b"new"})).assignment == b"new"
    assert (await member.sync()).assignment == b"new"


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
