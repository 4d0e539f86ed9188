"""A group of both protocols: static members, the way back to the classic one, restarts."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.group.member_requests import Claim
from odradek.broker.group.state import GroupState
from odradek.broker.group.store import GroupEntry, read_entry
from odradek.protocol.consumer_protocol import decode_assignment
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, id_of, newest, refusal_of, topics
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
)
from tests.broker.group.world import GROUP, World


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = await started(nursery)
    yield world
    world.stop()


# static members


async def test_a_static_member_is_replaced_across_protocols(world: World) -> None:
    anchor = modern(world, "anchor")
    old = classic(world, instance="i")
    await settle(anchor, old)
    own = old.has()
    new = modern(world, "new", instance="i")
    await new.beat()
    assert new.has() == own
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert await refusal_of(modern(world, "x", instance="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    again = classic(world, "again", instance="i")
    await again.join_and_sync()
    assert again.has() == own
    assert await refusal_of(new) is ErrorCode.FENCED_INSTANCE_ID
    third = classic(world, "third", instance="i")
    await third.join_and_sync()
    assert third.has() == own
    assert again.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert len(newest(world).members) == 2


async def test_a_static_member_that_comes_back_as_the_last_classic_one_takes_the_group_back(
    world: World,
) -> None:
    first, last = classic(world, "a"), modern(world, instance="i")
    await settle(first, last)
    await settle(last, first)
    own = last.has()
    back = classic(world, "b", instance="i")
    await back.join_and_sync()
    assert back.has() == own
    group = classic_group(world)
    assert (group.state, group.generation_id) == (GroupState.STABLE, last.epoch)
    assert first.heartbeat() is ErrorCode.NONE
    await world.crash()
    assert back.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await settle(first, back)
    share(first, back)


async def test_a_static_member_that_takes_an_unsettled_group_back_begins_a_rebalance(
    world: World,
) -> None:
    world.shapes = topics(t=4, u=2)
    first, last = classic(world, "a"), modern(world, instance="i")
    await settle(first, last)
    back = classic(world, "b", instance="i", names=("t", "u"), counts={"t": 4, "u": 2})
    first.counts = back.counts
    await back.join()
    assert classic_group(world).state is GroupState.PREPARING_REBALANCE
    async with trio.open_nursery() as nursery:
        nursery.start_soon(back.join_and_sync)
        nursery.start_soon(first.beat)
    await settle(first, back)
    share(first, back)
    assert back.has("u") == [0, 1]


# back to the classic protocol


@pytest.mark.parametrize("way", ["leaves", "is removed", "is silent"])
async def test_the_group_is_classic_again_when_the_last_member_of_the_new_protocol_goes(
    world: World, way: str
) -> None:
    first, second = classic(world, "a", session_ms=60_000), classic(world, "b", session_ms=60_000)
    new = modern(world)
    await settle(first, second)
    await settle(first, second, new)
    await commit(world, first.claim, *first.has())
    epoch = newest(world).epoch
    if way == "leaves":
        await new.leave()
    elif way == "is removed":
        assert await world.groups.leave_group(GROUP, [Claim(member_id="m")]) == [ErrorCode.NONE]
    else:
        await trio.sleep(46)
    assert world.groups.consumers.list_groups() == []
    group = classic_group(world)
    assert (group.state, group.generation_id) == (GroupState.PREPARING_REBALANCE, epoch)
    assert group.protocol_name == "range"
    stored = world.stored()
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await settle(first, second)
    assert sorted(map(len, share(first, second))) == [2, 2]
    assert first.generation == epoch + 1
    assert world.stored() == stored


async def test_the_records_of_the_way_back_are_kafkas_in_one_batch(world: World) -> None:
    old, new = classic(world, version=1), modern(world, regex="u.*", names=("t",))
    await settle(old, new)
    target = newest(world).targets[old.member_id]
    before = len(records(world))
    await new.leave()
    written = records(world)[before:]
    assert written == [
        *(("CurrentMemberAssignment", False),) * 2,
        *(("TargetAssignmentMember", False),) * 2,
        ("TargetAssignmentMetadata", False),
        *(("MemberMetadata", False),) * 2,
        ("RegularExpression", False),
        ("PartitionMetadata", False),
        ("Metadata", False),
        ("classic", True),
    ]
    entry = read_entry(world.log.records[before + len(written) - 1])
    assert isinstance(entry, GroupEntry)
    assert entry.group is not None
    (member,) = entry.group.members.values()
    (assigned,) = decode_assignment(member.assignment).assigned_partitions
    assert member.assignment[:2] == b"\0\1"
    assert (assigned.topic, frozenset(assigned.partitions)) == ("t", target[id_of("t")])
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 30_000)


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
async def test_a_policy_can_forbid_the_way_back(nursery: trio.Nursery, policy: str) -> None:
    world = World(nursery, SETTINGS)
    world.shapes = topics(t=4)
    await world.start()
    new, old = modern(world), classic(world, session_ms=60_000)
    await settle(new, old)
    world.config = replace(SETTINGS, group_consumer_migration_policy=policy)
    await world.crash()
    await new.leave()
    assert world.groups.list_groups() == []
    assert list(newest(world).members) == [old.member_id]
    world.stop()


async def test_a_group_that_is_too_large_for_a_classic_one_stays(nursery: trio.Nursery) -> None:
    world = World(nursery, replace(SETTINGS, group_max_size=1))
    world.shapes = topics(t=4)
    await world.start()
    new, first, second = modern(world), classic(world, "a"), classic(world, "b")
    await settle(new)
    await settle(new, first, second)
    await new.leave()
    assert world.groups.list_groups() == []
    assert len(newest(world).members) == 2
    world.stop()


async def test_a_way_back_that_cannot_be_written_has_not_happened(world: World) -> None:
    old, new = classic(world), modern(world)
    await settle(old, new)
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    with pytest.raises(KafkaError):
        await new.leave()
    world.log.append_errors = []
    assert len(newest(world).members) == 2
    await settle(old, new)
    share(old, new)


async def test_the_memory_of_a_group_is_counted_once_whatever_its_protocol(world: World) -> None:
    old, new = classic(world), modern(world)
    tenure = world.groups._tenure_of(GROUP)
    await old.join_and_sync()
    assert tenure.membership_bytes == classic_group(world).size_bytes
    await new.beat()
    assert tenure.membership_bytes == newest(world).size_bytes
    await new.leave()
    assert tenure.membership_bytes == classic_group(world).size_bytes
    await settle(old)
    await old.leave()
    assert tenure.membership_bytes == 0


# restarts


async def test_a_mixed_group_goes_on_after_a_restart(world: World) -> None:
    old, new = classic(world, protocols=("range", "sticky")), modern(world)
    await settle(old, new)
    before = newest(world)
    own = share(old, new)
    await world.crash()
    assert newest(world) == before
    assert old.heartbeat() is ErrorCode.NONE
    await settle(old, new)
    assert share(old, new) == own
    await trio.sleep(11)
    assert old.member_id not in newest(world).members


@pytest.mark.parametrize("keep", [0, 1])
async def test_a_conversion_that_was_not_answered_has_happened_or_not(
    world: World, keep: int
) -> None:
    old, new = classic(world), modern(world)
    await old.join_and_sync()
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refusal_of, new)
        await trio.testing.wait_all_tasks_blocked()
        await world.crash(keep=keep)
    assert len(world.groups.list_groups()) == 1 - keep
    await settle(old, new)
    share(old, new)


@pytest.mark.parametrize("keep", [0, 1])
async def test_the_rebalance_of_the_way_back_is_not_lost_with_the_coordinator(
    world: World, keep: int
) -> None:
    first, second, new = classic(world, "a"), classic(world, "b"), modern(world)
    await settle(first, second, new)
    epochs = [first.generation, second.generation]
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_quietly, new)
        await trio.testing.wait_all_tasks_blocked()
        await world.crash(keep=keep)
    if not keep:
        await new.leave()
    assert [first.generation, second.generation] == epochs
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await settle(first, second)
    share(first, second)
    generation = first.generation
    await world.crash()
    await settle(first, second)
    assert first.generation == generation


async def leave_quietly(member: Consumer) -> None:
    try:
        await member.leave()
    except KafkaError:
        member.owned, member.epoch = {}, 0


async def test_a_group_goes_to_and_fro_with_rising_epochs(world: World) -> None:
    old = classic(world)
    await old.join_and_sync()
    generations = [old.generation]
    for _ in range(3):
        new = modern(world)
        await settle(old, new)
        generations.append(old.generation)
        share(old, new)
        await new.leave()
        await settle(old)
        assert old.has() == [0, 1, 2, 3]
        generations.append(old.generation)
        await world.crash()
        await settle(old)
    assert generations == sorted(set(generations))
