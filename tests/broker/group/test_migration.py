"""A group with members goes from the classic protocol to the new one (KIP-848), and has both."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.consumer.migration import beat_of
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.member_requests import Claim, MemberIdRequiredError, UnnamedRefusalError
from odradek.broker.group.state import GroupState
from odradek.protocol.connection import REQUEST_ITEMS_MAX
from odradek.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    encode_versioned,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import id_of, newest, places, refusal_of, topics
from tests.broker.group.migrating import (
    SETTINGS,
    classic,
    classic_group,
    commit,
    modern,
    records,
    settle,
    share,
    started,
    state_of,
)
from tests.broker.group.world import GROUP, World


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = await started(nursery)
    yield world
    world.stop()


@pytest.fixture
async def world_without_migration(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = await started(nursery, group_consumer_migration_policy="disabled")
    yield world
    world.stop()


# to the new protocol


async def test_the_first_member_of_the_new_protocol_converts_a_group_and_shares_it(
    world: World,
) -> None:
    old = classic(world)
    await old.join_and_sync()
    assert (old.has(), old.generation) == ([0, 1, 2, 3], 1)
    new = modern(world)
    await new.beat()
    assert world.groups.list_groups() == []
    kept = newest(world).members[old.member_id]
    assert (kept.epoch, kept.assigned) == (1, {id_of("t"): dict.fromkeys(range(4), 1)})
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await settle(old, new)
    assert [len(owned) for owned in share(old, new)] == [2, 2]
    assert (old.generation, new.epoch) == (2, 2)
    assert await state_of(world) is ConsumerState.STABLE


async def test_the_records_of_a_conversion_are_kafkas_in_one_batch(world: World) -> None:
    old = classic(world)
    await old.join_and_sync()
    before = len(records(world))
    count = world.log.append_count
    await modern(world).beat()
    assert world.log.append_count == count + 1
    assert records(world)[before:] == [
        ("classic", False),
        ("MemberMetadata", True),
        ("Metadata", True),
        ("TargetAssignmentMember", True),
        ("TargetAssignmentMetadata", True),
        ("CurrentMemberAssignment", True),
        ("MemberMetadata", True),
        ("Metadata", True),
        ("TargetAssignmentMember", True),
        ("TargetAssignmentMember", True),
        ("TargetAssignmentMetadata", True),
        ("CurrentMemberAssignment", True),
    ]


async def test_a_cooperative_member_gives_up_only_what_it_has_to(world: World) -> None:
    old = classic(world, is_eager=False)
    await old.join_and_sync()
    new = modern(world)
    await new.beat()
    joined = await old.join()
    assert joined.generation_id == 1
    await old.sync(joined)
    assert len(old.has()) == 2
    await new.beat()
    assert new.has() == []
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await settle(old, new)
    assert [len(owned) for owned in share(old, new)] == [2, 2]


async def test_a_member_that_reads_a_topic_no_more_joins_again_to_say_that_it_has_revoked_it(
    nursery: trio.Nursery,
) -> None:
    """Also while the next assignment is not due, so that its epoch is still that of the group."""
    world = await started(nursery, group_consumer_assignment_interval_ms=60_000)
    world.shapes = topics(t=4, u=2)
    old = classic(world, names=("t", "u"), counts={"t": 4, "u": 2}, is_eager=False)
    new = modern(world)
    await old.join_and_sync()
    await settle(old, new)
    assert len(old.has("u")) == 2
    old.names = ("t",)
    joined = await old.join()
    await old.sync(joined)
    assert old.has("u") == []
    assert joined.generation_id == newest(world).assignment_epoch
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await old.join_and_sync()
    assert old.heartbeat() is ErrorCode.NONE
    world.stop()


async def test_members_that_wait_for_a_rebalance_join_again(world: World) -> None:
    first, second = classic(world, "a"), classic(world, "b")
    await first.join_and_sync()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join_and_sync)
        await trio.testing.wait_all_tasks_blocked()
        assert classic_group(world).state is GroupState.PREPARING_REBALANCE
        new = modern(world)
        await new.beat()
    await settle(first, second, new)
    assert sorted(len(owned) for owned in share(first, second, new)) == [1, 1, 2]


async def test_a_member_without_the_protocol_of_the_generation_before_does_not_stop_a_conversion(
    world: World,
) -> None:
    """Members that are upgraded one by one may leave out an assignor, and then their protocol."""
    old = classic(world, "old", protocols=("roundrobin", "range"))
    await old.join_and_sync()
    upgraded, new = classic(world, "upgraded"), modern(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upgraded.join_and_sync)
        await trio.testing.wait_all_tasks_blocked()
        await new.beat()
    await settle(old, upgraded, new)
    assert sorted(len(owned) for owned in share(old, upgraded, new)) == [1, 1, 2]


async def test_a_group_is_converted_while_its_assignment_is_on_the_way_to_disk(
    world: World,
) -> None:
    old, new = classic(world), modern(world)
    joined = await old.join()
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.join_and_sync)
        nursery.start_soon(new.beat)
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    assert joined.generation_id == 1
    await settle(old, new)
    assert [len(owned) for owned in share(old, new)] == [2, 2]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_a_policy_can_forbid_the_way_to_the_new_protocol(
    nursery: trio.Nursery, policy: str
) -> None:
    world = World(nursery, replace(SETTINGS, group_consumer_migration_policy=policy))
    await world.start()
    old = classic(world)
    await old.join_and_sync()
    with pytest.raises(KafkaError, match="because online upgrade is disabled") as refused:
        await modern(world).beat()
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert old.heartbeat() is ErrorCode.NONE
    world.stop()


async def test_a_group_that_cannot_be_converted_stays_as_it_is(world: World) -> None:
    old = world.member("worker", protocols=(MemberProtocol("range", b"\0"),))
    await old.join_and_sync()
    assert await refusal_of(modern(world)) is ErrorCode.GROUP_ID_NOT_FOUND
    old.heartbeat()
    assert classic_group(world).state is GroupState.STABLE
    tenure = world.groups._tenure_of(GROUP)
    assert tenure.membership_bytes == classic_group(world).size_bytes


async def test_an_assignment_with_two_owners_cannot_be_converted(world: World) -> None:
    first, second = classic(world, "a"), classic(world, "b")
    await settle(first, second)
    tenure = world.groups._tenure_of(GROUP)
    group = classic_group(world)
    (one, two) = group.members.values()
    stolen = replace(two, assignment=one.assignment)
    live = tenure.classic(GROUP)
    assert live is not None
    live._rebalance.group = replace(group, members={**group.members, two.member_id: stolen})
    assert await refusal_of(modern(world)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert classic_group(world).members[two.member_id] is stolen


async def test_a_conversion_that_cannot_be_written_has_not_happened(world: World) -> None:
    old, new = classic(world), modern(world)
    await old.join_and_sync()
    tenure = world.groups._tenure_of(GROUP)
    size_bytes = tenure.membership_bytes
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await refusal_of(new) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.append_errors = []
    assert tenure.membership_bytes == size_bytes
    assert old.heartbeat() is ErrorCode.NONE
    await new.beat()
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


# classic members in a group of the new protocol


async def test_a_classic_member_joins_a_consumer_group(world: World) -> None:
    new, old = modern(world), classic(world)
    await new.beat()
    with pytest.raises(MemberIdRequiredError) as required:
        await world.groups.join_group(old.joining())
    assert len(required.value.member_id) == 22
    await settle(new, old)
    assert [len(owned) for owned in share(new, old)] == [2, 2]
    joined = await old.join()
    assert (joined.leader_id, joined.members, joined.protocol_name) == ("", (), "range")


async def test_a_classic_member_may_list_a_topic_again_for_each_of_its_partitions(
    world: World,
) -> None:
    listed = ConsumerProtocolSubscription(
        topics=("t",),
        owned_partitions=tuple(
            ConsumerTopicPartitions(topic="t", partitions=(index,)) for index in (2, 0, 1, 0)
        ),
    )
    joining = replace(
        classic(world).joining(), protocols=(MemberProtocol("range", encode_versioned(listed, 1)),)
    )
    assert beat_of(joining, "m", world.shapes).owned == {id_of("t"): {0, 1, 2}}


async def test_a_policy_can_forbid_classic_members(world_without_migration: World) -> None:
    await modern(world_without_migration).beat()
    with pytest.raises(KafkaError, match="migration is disabled") as refused:
        await classic(world_without_migration).join()
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("policy", ["upgrade", "downgrade"])
async def test_each_other_policy_lets_classic_members_join(
    nursery: trio.Nursery, policy: str
) -> None:
    world = World(nursery, replace(SETTINGS, group_consumer_migration_policy=policy))
    world.shapes = topics(t=4)
    await world.start()
    new, old = modern(world), classic(world)
    await new.beat()
    await settle(new, old)
    share(new, old)
    world.stop()


async def test_classic_members_need_a_protocol_in_common(world: World) -> None:
    first, second = modern(world), classic(world, protocols=("range", "sticky"))
    await settle(first, second)
    stranger = classic(world, "s", protocols=("roundrobin",))
    with pytest.raises(UnnamedRefusalError) as refused:
        await stranger.join()
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    worker = world.member("worker")
    with pytest.raises(KafkaError) as malformed:
        await worker.join()
    assert malformed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_classic_member_of_more_topics_than_a_request_may_have_is_refused(
    world: World,
) -> None:
    wanted = ConsumerProtocolSubscription(topics=("",) * (REQUEST_ITEMS_MAX + 1))
    joining = replace(
        classic(world).joining(), protocols=(MemberProtocol("range", encode_versioned(wanted)),)
    )
    with pytest.raises(KafkaError) as refused:
        beat_of(joining, "m", world.shapes)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_the_id_that_a_classic_member_chooses_is_bounded(world: World) -> None:
    new, old = modern(world), classic(world, member_id="x" * 250)
    await new.beat()
    with pytest.raises(KafkaError) as refused:
        await old.join()
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    old.member_id = "mine"
    await settle(new, old)
    share(new, old)


async def test_a_classic_member_is_checked_as_by_a_classic_group(world: World) -> None:
    new, old = modern(world), classic(world, instance="i")
    await settle(new, old)
    for claim, code in (
        (Claim(member_id="x", generation_id=2), ErrorCode.UNKNOWN_MEMBER_ID),
        (Claim(member_id="m", generation_id=2), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(old.claim, member_id="x"), ErrorCode.FENCED_INSTANCE_ID),
        (replace(old.claim, group_instance_id="j"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(old.claim, generation_id=1), ErrorCode.ILLEGAL_GENERATION),
        (old.claim, ErrorCode.NONE),
    ):
        if code is ErrorCode.NONE:
            world.groups.heartbeat(GROUP, claim)
            continue
        with pytest.raises(KafkaError) as refused:
            world.groups.heartbeat(GROUP, claim)
        assert refused.value.code is code


async def test_the_generation_of_a_classic_member_fences_its_offsets(world: World) -> None:
    new, old = modern(world), classic(world)
    await settle(new, old)
    assert await commit(world, old.claim, *old.has()) is ErrorCode.NONE
    assert world.stored() == places("t", *old.has())
    newer = replace(old.claim, generation_id=old.generation + 1)
    assert await commit(world, newer, 0) is ErrorCode.ILLEGAL_GENERATION
    older = replace(old.claim, generation_id=old.generation - 1)
    assert await commit(world, older, *old.has()) is ErrorCode.ILLEGAL_GENERATION
    assert await commit(world, new.claim, 0) is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError) as refused:
        world.groups.check_fetch(GROUP, old.member_id, 1)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError) as in_transaction:
        await world.commit_in_transaction(places("t", 0), claim=newer)
    assert in_transaction.value.code is ErrorCode.ILLEGAL_GENERATION


async def test_a_classic_member_that_is_silent_for_its_own_session_is_removed(
    world: World,
) -> None:
    new, old = modern(world), classic(world, session_ms=20_000)
    other = modern(world, "n")
    await settle(new, old, other)
    for _ in range(19):
        await trio.sleep(1)
        await settle(new, other, rounds=1)
    assert old.member_id in newest(world).members
    await trio.sleep(2)
    assert old.member_id not in newest(world).members
    await settle(new, other)
    assert sorted(new.has() + other.has()) == [0, 1, 2, 3]


async def test_a_classic_member_that_does_not_join_again_in_time_is_removed(world: World) -> None:
    old, new = classic(world, rebalance_ms=15_000, session_ms=60_000), modern(world)
    await old.join_and_sync()
    await new.beat()
    for _ in range(16):
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await trio.sleep(0.9)
    await trio.sleep(1)
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_classic_member_that_does_not_sync_in_time_is_removed(world: World) -> None:
    new, old = modern(world), classic(world, rebalance_ms=15_000, session_ms=60_000)
    await new.beat()
    await old.join()
    await trio.sleep(14)
    assert old.member_id in newest(world).members
    await trio.sleep(2)
    assert old.member_id not in newest(world).members


async def test_a_classic_member_goes_on_with_the_new_protocol(world: World) -> None:
    new, old = modern(world), classic(world, rebalance_ms=15_000)
    await settle(new, old)
    own = old.has()
    same = modern(world, old.member_id)
    same.epoch, same.owned = old.generation, old.owned
    await same.beat()
    assert same.has() == own
    assert newest(world).members[old.member_id].classic is None
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    await trio.sleep(30)
    assert old.member_id in newest(world).members


async def test_a_bare_heartbeat_makes_a_classic_member_one_of_the_new_protocol(
    world: World,
) -> None:
    new, old = modern(world), classic(world)
    await settle(new, old)
    same = modern(world, old.member_id)
    same.epoch, same.owned = old.generation, old.owned
    await same.beat(topics=None, rebalance_timeout_ms=-1, owned=None, client_id="c")
    assert newest(world).members[old.member_id].classic is None


async def test_a_classic_member_whose_topics_change_gets_others(world: World) -> None:
    world.shapes = topics(t=4, u=2)
    new, old = modern(world), classic(world)
    await settle(new, old)
    old.names = ("u",)
    await old.join_and_sync()
    await settle(new, old)
    assert (new.has(), old.has("u")) == ([0, 1, 2, 3], [0, 1])


async def test_without_a_member_of_the_new_protocol_classic_members_move_the_group_on(
    nursery: trio.Nursery,
) -> None:
    """With the policy `upgrade` the group stays. Kafka would never assign the free partitions."""
    world = World(nursery, replace(SETTINGS, group_consumer_migration_policy="upgrade"))
    world.shapes = topics(t=4)
    await world.start()
    new, old = modern(world), classic(world)
    await settle(new, old)
    await new.leave()
    await settle(old)
    assert old.has() == [0, 1, 2, 3]
    assert world.groups.list_groups() == []
    world.stop()
