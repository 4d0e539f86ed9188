"""Groups of the new protocol (KIP-848): joining, sharing, leaving, and time."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio

from odradek.broker.group.consumer.consumer_group import MemberProgress
from odradek.broker.group.consumer.state import ConsumerState
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, id_of, newest, refusal_of, settle, topics
from tests.broker.group.world import GROUP, ONE_PARTITION, World

AT_ONCE = replace(ONE_PARTITION, group_consumer_assignment_interval_ms=0)


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    world = World(nursery, AT_ONCE)
    world.shapes = topics(t=4)
    await world.start()
    yield world
    world.stop()


def member(world: World, name: str, **options: object) -> Consumer:
    return Consumer(world=world, member_id=name, **options)  # type: ignore[arg-type]


async def state(world: World) -> ConsumerState:
    _, found, _ = await world.groups.consumers.describe_group(GROUP)
    return found


async def test_the_first_member_gets_everything_at_once(world: World) -> None:
    first = member(world, "a")
    beaten = await first.beat()
    assert (first.epoch, first.has()) == (2, [0, 1, 2, 3])
    assert beaten.shows_assignment
    assert await state(world) is ConsumerState.STABLE


async def test_a_partition_moves_after_its_owner_has_revoked_it(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await first.beat()
    await second.beat()
    assert (second.epoch, second.has()) == (3, [])
    assert await state(world) is ConsumerState.RECONCILING
    first.keeps = True
    await first.beat()
    assert (first.epoch, first.has()) == (2, [0, 1, 2, 3])
    await second.beat()
    assert second.has() == []
    first.keeps = False
    await first.beat()
    assert first.has() == [0, 1]
    await first.beat()
    assert first.epoch == 3
    await second.beat()
    assert second.has() == [2, 3]
    assert await state(world) is ConsumerState.STABLE


async def test_an_idle_heartbeat_writes_nothing_and_has_no_assignment(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    appended = world.log.append_count
    unchanged = {"topics": None, "owned": None, "rebalance_timeout_ms": -1}
    beaten = await first.beat(**unchanged)
    assert not beaten.shows_assignment
    assert world.log.append_count == appended


async def test_the_partitions_of_a_member_that_leaves_move(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await settle(first, second)
    await second.leave()
    await first.beat()
    assert first.has() == [0, 1, 2, 3]
    assert list(newest(world).members) == ["a"]


async def test_the_last_member_leaves_an_empty_group(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    await first.leave()
    assert await state(world) is ConsumerState.EMPTY
    assert (newest(world).epoch, newest(world).targets) == (3, {})


async def test_a_silent_member_is_removed_after_its_session(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await settle(first, second)
    await trio.sleep(44)
    await first.beat()
    assert "b" in newest(world).members
    await trio.sleep(2)
    assert list(newest(world).members) == ["a"]
    await first.beat()
    assert first.has() == [0, 1, 2, 3]
    assert await refusal_of(second) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_does_not_revoke_in_time_is_removed(world: World) -> None:
    first, second = member(world, "a", rebalance_ms=10_000), member(world, "b")
    await first.beat()
    first.keeps = True
    await second.beat()
    await first.beat()
    assert newest(world).members["a"].progress is MemberProgress.UNREVOKED_PARTITIONS
    await trio.sleep(9)
    await first.beat()
    await trio.sleep(2)
    assert list(newest(world).members) == ["b"]
    await second.beat()
    assert second.has() == [0, 1, 2, 3]


async def test_a_member_whose_fence_is_not_written_is_fenced_later(world: World) -> None:
    await member(world, "a").beat()
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    await trio.sleep(45.1)
    assert "a" in newest(world).members
    await trio.sleep(0.5)
    assert newest(world).members == {}


async def test_a_refused_record_changes_nothing(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await first.beat()
    before = newest(world)
    world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await refusal_of(second) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert newest(world) is before
    await settle(first, second)
    assert (first.has(), second.has()) == ([0, 1], [2, 3])


async def test_a_topic_that_grows_is_noticed_at_the_next_heartbeat(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    world.shapes = topics(t=6)
    await first.beat()
    assert (first.epoch, first.has()) == (3, [0, 1, 2, 3, 4, 5])
    world.shapes = topics(t=6, other=1)
    await first.beat()
    assert first.epoch == 3


async def test_a_topic_may_come_and_go(world: World) -> None:
    first = member(world, "a", names=("t", "u"))
    await first.beat()
    world.shapes = topics(t=1, u=2)
    await settle(first)
    assert (first.has("t"), first.has("u")) == ([0], [0, 1])
    world.shapes = topics(u=2)
    await settle(first)
    assert (first.has("t"), first.has("u")) == ([], [0, 1])


async def test_a_changed_subscription_takes_the_old_topic_away_first(world: World) -> None:
    world.shapes = topics(t=2, u=2)
    first = member(world, "a")
    await first.beat()
    first.names = ("u",)
    await first.beat()
    assert (first.has("t"), first.has("u")) == ([], [])
    await settle(first)
    assert (first.has("t"), first.has("u")) == ([], [0, 1])


async def test_targets_are_computed_once_an_interval(nursery: trio.Nursery) -> None:
    world = World(nursery)
    world.shapes = topics(t=4)
    await world.start()
    first, second = member(world, "a"), member(world, "b")
    await first.beat()
    await second.beat()
    group = newest(world)
    assert (group.epoch, group.assignment_epoch, second.epoch) == (3, 2, 2)
    assert await state(world) is ConsumerState.ASSIGNING
    await trio.sleep(1)
    await settle(first, second)
    assert (first.has(), second.has(), second.epoch) == ([0, 1], [2, 3], 3)
    world.stop()


async def test_a_clock_that_is_set_back_does_not_delay_the_next_targets(
    nursery: trio.Nursery,
) -> None:
    world = World(nursery, ONE_PARTITION)
    world.shapes = topics(t=4)
    await world.start()
    first, second = member(world, "a"), member(world, "b")
    world.clock.skew_ms = 3_600_000
    await first.beat()
    world.clock.skew_ms = 0
    await second.beat()
    await settle(first, second)
    assert (first.has(), second.has()) == ([0, 1], [2, 3])
    world.stop()


async def test_range_gives_the_same_partitions_of_two_topics_to_one_member(world: World) -> None:
    world.shapes = topics(t=3, u=3)
    members = [member(world, name, names=("t", "u"), assignor="range") for name in "abc"]
    await settle(*members)
    assert [(each.has("t"), each.has("u")) for each in members] == [
        ([0], [0]),
        ([1], [1]),
        ([2], [2]),
    ]
    _, _, assignor = await world.groups.consumers.describe_group(GROUP)
    assert assignor == "range"


# epochs


async def test_a_member_with_another_epoch_is_fenced(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    assert await refusal_of(first, member_epoch=3) is ErrorCode.FENCED_MEMBER_EPOCH
    await member(world, "b").beat()
    await settle(first)
    assert first.epoch == 3
    assert await refusal_of(first, member_epoch=2, owned=None) is ErrorCode.FENCED_MEMBER_EPOCH


async def test_the_epoch_before_is_accepted_if_the_answer_was_lost(world: World) -> None:
    first, second = member(world, "a"), member(world, "b")
    await first.beat()
    await second.beat()
    await first.beat()
    lost = dict(first.owned)
    await first.beat()
    assert first.epoch == 3
    first.epoch = 2
    beaten = await first.beat(owned=lost)
    assert (beaten.member.epoch, first.has()) == (3, [0, 1])
    too_much = {id_of("t"): frozenset({0, 3})}
    code = await refusal_of(first, member_epoch=2, owned=too_much)
    assert code is ErrorCode.FENCED_MEMBER_EPOCH


async def test_a_fenced_member_joins_again_with_its_id(world: World) -> None:
    first = member(world, "a")
    await first.beat()
    first.owned = {}
    await first.beat(member_epoch=0)
    assert (first.epoch, first.has()) == (2, [0, 1, 2, 3])
    assert len(newest(world).members) == 1


async def test_unknown_groups_and_members_are_refused(world: World) -> None:
    stranger = member(world, "x")
    for epoch in (1, -1):
        code = await refusal_of(stranger, member_epoch=epoch)
        assert code is ErrorCode.GROUP_ID_NOT_FOUND
    await member(world, "a").beat()
    for epoch in (1, -1):
        assert await refusal_of(stranger, member_epoch=epoch) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"instance_id": " "},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {id_of("t"): frozenset({1})}},
        {"topics": None, "regex": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"member_epoch": -1, "member_id": ""},
        {"member_id": "x" * 300},
        {"regex": "x" * 5_000},
    ],
)
async def test_a_heartbeat_that_makes_no_sense_is_refused(
    world: World, changes: dict[str, object]
) -> None:
    assert await refusal_of(member(world, "a"), **changes) is ErrorCode.INVALID_REQUEST


async def test_an_unknown_assignor_is_refused_with_the_known_ones(world: World) -> None:
    with pytest.raises(KafkaError, match="Supported assignors: uniform, range") as refused:
        await member(world, "a", assignor="sticky").beat()
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


async def test_a_full_group_takes_no_more_members(nursery: trio.Nursery) -> None:
    world = World(nursery, replace(AT_ONCE, group_consumer_max_size=1))
    await world.start()
    first = member(world, "a")
    await first.beat()
    assert await refusal_of(member(world, "b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    await first.beat()
    world.stop()


# static members


async def test_the_partitions_of_a_static_member_wait_for_it(world: World) -> None:
    first, away = member(world, "a"), member(world, "b", instance="i")
    await settle(first, away)
    had = away.has()
    await away.leave(-2)
    await settle(first)
    assert (first.has(), newest(world).epoch) == ([0, 1], 3)
    back = member(world, "c", instance="i")
    await back.beat()
    assert (back.has(), back.epoch) == (had, 3)
    assert list(newest(world).members) == ["a", "c"]
    assert await state(world) is ConsumerState.STABLE


async def test_a_static_member_that_does_not_come_back_loses_its_partitions(world: World) -> None:
    first, away = member(world, "a"), member(world, "b", instance="i")
    await settle(first, away)
    await away.leave(-2)
    await trio.sleep(44)
    await first.beat()
    await trio.sleep(2)
    await first.beat()
    assert first.has() == [0, 1, 2, 3]


async def test_an_instance_id_has_one_holder(world: World) -> None:
    holder = member(world, "a", instance="i")
    await holder.beat()
    other = member(world, "b", instance="i")
    assert await refusal_of(other) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert await refusal_of(other, member_epoch=2) is ErrorCode.FENCED_INSTANCE_ID
    assert await refusal_of(other, member_epoch=-1) is ErrorCode.FENCED_INSTANCE_ID
    unknown = member(world, "c", instance="j")
    assert await refusal_of(unknown, member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await refusal_of(unknown, member_epoch=-2) is ErrorCode.UNKNOWN_MEMBER_ID


# patterns


async def test_a_pattern_matches_whole_names_at_once(world: World) -> None:
    world.shapes = topics(t=2, t1=1, xt=1)
    reader = member(world, "a", names=None, regex="t.?")
    await reader.beat()
    assert (reader.has("t"), reader.has("t1"), reader.has("xt")) == ([0, 1], [0], [])
    (pattern,) = newest(world).patterns.values()
    assert pattern.topics == {"t", "t1"}


async def test_a_new_topic_that_matches_is_given_to_a_member(world: World) -> None:
    reader = member(world, "a", names=None, regex="t.*")
    await reader.beat()
    world.shapes = topics(t=4, t2=1)
    await reader.beat()
    assert (reader.has("t2"), reader.epoch) == ([0], 3)


async def test_names_and_a_pattern_are_read_together(world: World) -> None:
    world.shapes = topics(t=1, u=1)
    reader = member(world, "a", names=("t",), regex="u")
    await reader.beat()
    assert (reader.has("t"), reader.has("u")) == ([0], [0])


async def test_a_pattern_goes_with_its_last_member(world: World) -> None:
    first, second = (member(world, name, names=None, regex="t") for name in "ab")
    await settle(first, second)
    await first.leave()
    assert list(newest(world).patterns) == ["t"]
    second.regex = ""
    await settle(second)
    assert (newest(world).patterns, second.has()) == ({}, [])


@pytest.mark.parametrize("regex", ["(", "(?=t)", "t{3000}"])
async def test_a_pattern_that_re2_cannot_read_is_refused(world: World, regex: str) -> None:
    reader = member(world, "a", names=None, regex=regex)
    for _ in range(2):
        assert await refusal_of(reader) is ErrorCode.INVALID_REGULAR_EXPRESSION
    await member(world, "b").beat()
    for _ in range(2):
        assert await refusal_of(reader) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(newest(world).members) == ["b"]


@pytest.mark.slow
async def test_a_member_may_read_ten_thousand_topics(world: World) -> None:
    names = tuple(f"topic-{number:05}" for number in range(10_000))
    world.shapes = topics(**dict.fromkeys(names, 1))
    reader = member(world, "a", names=(*names, *names[:10], "unknown"))
    await reader.beat()
    assert sum(map(len, reader.owned.values())) == 10_000
    await world.crash()
    await reader.beat()
    assert sum(map(len, reader.owned.values())) == 10_000
