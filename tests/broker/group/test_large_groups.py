"""Large consumer groups: what is decided of them does not hold the loop, and nobody starves."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing

from odradek.broker.environment.turns import Turns
from odradek.broker.environment.work import whole
from odradek.broker.group.consumer.assignors import ASSIGNORS, Subscriber
from odradek.broker.group.consumer.consumer_group import (
    MATCH_BYTES,
    OWNED_TOPIC_BYTES,
    PARTITION_BYTES,
)
from odradek.broker.group.consumer.consumer_group_records import difference
from odradek.broker.group.live_consumer_group import LiveConsumerGroup
from odradek.broker.group.pattern_matches import PatternMatches
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.consuming import Consumer, id_of, newest, refusal_of, settle, topics
from tests.broker.group.world import World
from tests.fakes.turns import longest_turn

TOPICS = {f"t{number:03d}": 1 for number in range(400)}
SETS = [tuple(name for name in TOPICS if int(name[1:]) % 5 != left) for left in range(5)]
"""Members that read different topics are the hard case of an assignment."""


def readers(world: World, count: int) -> list[Consumer]:
    return [
        Consumer(world=world, member_id=f"m{number}", names=SETS[number % len(SETS)])
        for number in range(count)
    ]


async def reach_targets(world: World, members: list[Consumer]) -> None:
    """Let the members send heartbeats until all own the newest target."""
    for _ in range(4):
        await trio.sleep(2)
        await settle(*members, rounds=1)
    assert {each.epoch for each in members} == {newest(world).epoch}


async def test_the_assignment_of_a_large_group_holds_nobody_up(world: World) -> None:
    world.shapes = topics(**TOPICS)
    members = readers(world, 80)
    await settle(*members, rounds=1)
    await trio.sleep(2)
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(members[0].beat)
    assert newest(world).assignment_epoch == newest(world).epoch
    # 80 members read 320 topics each. Without turns this was one turn of 173,000 calls.
    assert longest.calls < 25_000, longest


def test_the_work_of_an_assignment_does_not_grow_with_members_times_topics() -> None:
    def steps(member_count: int) -> int:
        sets = [frozenset(map(id_of, names)) for names in SETS]
        some = [
            Subscriber(
                member_id=f"m{number}",
                instance_id=None,
                topic_ids=sets[number % len(sets)],
                target={},
            )
            for number in range(member_count)
        ]
        counts = {id_of(name): count for name, count in TOPICS.items()}
        return sum(ASSIGNORS["uniform"].in_steps(some, counts))

    assert steps(2_000) - steps(1_000) < 10_000


async def test_a_heartbeat_that_changes_nothing_does_not_wait_for_an_assignment(
    world: World,
) -> None:
    world.shapes = topics(**TOPICS)
    members = readers(world, 10)
    await settle(*members, rounds=1)
    await reach_targets(world, members)
    answered: list[str] = []

    async def beat(member: Consumer, **changes: object) -> None:
        await member.beat(**changes)
        answered.append(member.member_id)

    bare = {"topics": None, "rebalance_timeout_ms": -1, "owned": None}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat, Consumer(world=world, member_id="new", names=SETS[0]))
        while not newest_is_busy(world):
            await trio.lowlevel.checkpoint()
        for member in members:
            nursery.start_soon(partial(beat, member, **bare))
    assert answered[-1] == "new"
    assert len(answered) == 11


def newest_is_busy(world: World) -> bool:
    tenure = next(iter(world.groups._tenures))
    return any(
        live._lock.locked()
        for live in tenure.groups.values()
        if isinstance(live, LiveConsumerGroup)
    )


async def test_all_that_join_at_once_are_members_of_one_group(world: World) -> None:
    """A busy group starves nobody: each request gets its turn, and none is decided twice."""
    world.shapes = topics(**TOPICS)
    members = readers(world, 20)
    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(member.beat)
    assert set(newest(world).members) == {each.member_id for each in members}
    await reach_targets(world, members)
    owned = [place for each in members for place in each.owned]
    assert sorted(owned) == sorted(map(id_of, TOPICS))


async def test_a_member_whose_session_ends_during_an_assignment_is_removed_after_it(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.shapes = topics(**TOPICS)
    members = readers(world, 10)
    await settle(*members, rounds=1)
    await reach_targets(world, members)
    silent = members.pop()
    tenure = next(iter(world.groups._tenures))
    live = tenure.consumer(silent.group_id)
    assert live is not None
    async with live.alone():
        await trio.sleep(44)
        for member in members:
            live._deadlines.expect_heartbeat(member.member_id, 45_000)
        await trio.sleep(2)
        assert silent.member_id in live.group.members
    assert set(live.group.members) == {each.member_id for each in members}
    await reach_targets(world, members)


async def test_a_request_that_is_cancelled_in_the_middle_leaves_the_group_as_it_was(
    world: World,
) -> None:
    world.shapes = topics(**TOPICS)
    members = readers(world, 10)
    await settle(*members, rounds=1)
    await trio.sleep(2)
    before = newest(world)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(members[0].beat)
            while not newest_is_busy(world):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert newest(world) is before
    await reach_targets(world, members)


async def test_a_group_of_which_the_first_member_goes_away_begins_with_the_next(
    world: World,
) -> None:
    world.shapes = topics(**{f"t{number}": 1 for number in range(2_000)})
    names = tuple(world.shapes.topics)
    first, second = (Consumer(world=world, member_id=each, names=names) for each in "ab")
    tenure = next(iter(world.groups._tenures))
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(second_after, second, tenure.beginning)
            async with trio.open_nursery() as inner:
                inner.start_soon(first.beat)
                while not tenure.beginning:
                    await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
                scope.cancel()
    assert set(newest(world).members) == {"b"}
    assert tenure.beginning == {}


async def second_after(member: Consumer, beginning: Mapping[str, object]) -> None:
    while not beginning:
        await trio.lowlevel.checkpoint()
    await member.beat()


# patterns


@pytest.mark.slow
async def test_patterns_that_match_the_same_names_share_one_set() -> None:
    names = dict.fromkeys(f"topic-{number:05d}" for number in range(2_000))
    matches, turns = PatternMatches(), Turns()
    matches.missing([], names)
    await matches.match("t.*|first", names, turns)
    tracemalloc.start()
    try:
        for number in range(50):
            await matches.match(f"t.*|q{number}", names, turns)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len({id(each) for each in matches.found.values()}) == 1
    assert used_bytes < 50 * 2_000


async def test_a_known_pattern_is_matched_with_new_names_only() -> None:
    matches, turns = PatternMatches(), Turns()
    before, after = {"t1": None, "t2": None, "u": None}, {"t2": None, "u": None, "t3": None}
    assert matches.missing(["t."], before) == ["t."]
    await matches.match("t.", before, turns)
    assert matches.found["t."] == {"t1", "t2"}
    assert matches.missing(["t."], after) == ["t."]
    await matches.match("t.", after, turns)
    assert matches.found["t."] == {"t2", "t3"}
    matches.keep({"t.": None})
    assert matches.missing(["t."], {**after, "v": None}) == ["t."]


async def test_what_patterns_match_counts_in_the_size_of_a_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each distinct pattern kept its own set of names, which nothing counted."""
    world.shapes = topics(**TOPICS)
    limit = len(TOPICS) * (OWNED_TOPIC_BYTES + PARTITION_BYTES + 10 * MATCH_BYTES)
    monkeypatch.setattr("odradek.broker.group.live_consumer_group.CONSUMER_GROUP_MAX_BYTES", limit)
    refused = 0
    for number in range(12):
        reader = Consumer(world=world, member_id=f"m{number}", names=None, regex=f"t.*|q{number}")
        refused += await refusal_of(reader) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert 2 <= refused <= 4
    assert len(newest(world).patterns) == 12 - refused
    with pytest.raises(KafkaError):
        await Consumer(world=world, member_id="more", names=None, regex="t.*|q").beat()
    await Consumer(world=world, member_id="same", names=None, regex="t.*|q0").beat()


async def test_the_records_of_a_member_that_owns_thousands_of_topics_hold_nobody_up(
    world: World,
) -> None:
    """They were encoded in one piece: 20 ms for 10,000 topics."""
    names = [f"t{number}" for number in range(3_000)]
    await Consumer(world=world, member_id="m").beat()
    group = newest(world)
    member = replace(group.members["m"], assigned={id_of(name): {0: 1} for name in names})
    after = replace(
        group.with_member(member), targets={"m": {id_of(name): frozenset({0}) for name in names}}
    )
    entries = whole(difference(group, after))
    tenure = next(iter(world.groups._tenures))
    with longest_turn() as longest:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Turns().do, tenure.records(entries))
    assert len(entries) == 2
    assert longest.calls < 20_000, longest
