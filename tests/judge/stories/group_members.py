"""Classic groups: members join, get their part, are told of others, and leave."""

from typing import Any, Final

from tests.judge.broker import Broker
from tests.judge.group_records import write_down_records
from tests.judge.grouping import (
    begin_join,
    begin_sync,
    commit,
    describe,
    enter,
    heartbeat,
    join,
    leave,
    listed,
    sync,
    until_members,
    until_rebalancing,
)
from tests.judge.story import GROUPS, in_setup, variants

T0: Final = ("t", 0)
MEMBER_ID_REQUIRED_FROM: Final = 4
in_groups = in_setup(GROUPS)


def settled(broker: Broker, group: str = "g", **more: Any) -> tuple[str, int]:
    """Make a group with one member that has its part. Return the member and the generation."""
    joined = enter(broker, group, **more)
    sync(broker, group, joined.member_id, joined.generation_id, {joined.member_id: b"all"})
    return joined.member_id, joined.generation_id


def stranger(kind: str, member: str, generation: int) -> tuple[str, int]:
    """Return the member and generation of a request that is wrong in one way."""
    match kind:
        case "older":
            return member, generation - 1
        case "newer":
            return member, generation + 1
        case "none":
            return member, -1
        case "unknown":
            return "somebody", generation
        case _:
            return "", generation


STRANGERS: Final = ("older", "newer", "none", "unknown", "empty")


@in_groups
@variants(version=range(10))
def story_life(broker: Broker, version: int) -> None:
    broker.topic("t")
    describe(broker, "g")
    member = join(broker, "g", version=version, reason="new").member_id
    if version >= MEMBER_ID_REQUIRED_FROM:
        member = join(broker, "g", member, version=version).member_id
    describe(broker, "g")
    heartbeat(broker, "g", member, 1, version=min(version, 4))
    commit(broker, "g", {T0: 1}, member=member, generation=1)
    sync(broker, "g", member, 1, {member: b"all"}, version=min(version, 5))
    describe(broker, "g", version=min(version, 6))
    heartbeat(broker, "g", member, 1, version=min(version, 4))
    commit(broker, "g", {T0: 2}, member=member, generation=1, version=max(version, 2))
    leave(broker, "g", member, version=min(version, 5))
    describe(broker, "g")
    heartbeat(broker, "g", member, 1)
    write_down_records(broker)


@in_groups
@variants(kind=STRANGERS, state=("empty", "joined", "stable", "gone"))
def story_strangers(broker: Broker, kind: str, state: str) -> None:
    broker.topic("t")
    member, generation = "m", 1
    if state != "gone":
        joined = enter(broker, "g")
        member, generation = joined.member_id, joined.generation_id
    if state == "stable":
        sync(broker, "g", member, generation, {member: b"all"})
    if state == "empty":
        leave(broker, "g", member)
    wrong, at = stranger(kind, member, generation)
    for version in (0, 4):
        heartbeat(broker, "g", wrong, at, version=version)
    for version in (0, 4, 5):
        sync(broker, "g", wrong, at, {wrong: b"x"}, version=version)
    for version in (2, 8, 9, 10):
        commit(broker, "g", {T0: 5}, member=wrong, generation=at, version=version)
    if kind not in ("older", "newer", "none"):
        for version in (0, 2, 3, 5):
            leave(broker, "g", wrong, version=version)
        join(broker, "g", wrong)
    if (kind, state) == ("empty", "gone"):  # only this one makes a group
        until_members(broker, "g", 0)
    describe(broker, "g")


@in_groups
@variants(kind=("unknown", "empty"))
def story_groups_without_a_name(broker: Broker, kind: str) -> None:
    broker.topic("t")
    member = {"unknown": "somebody", "empty": ""}[kind]
    for version in (0, 5, 9):
        join(broker, "", member, version=version)
    heartbeat(broker, "", member, 1)
    sync(broker, "", member, 1)
    leave(broker, "", member)
    leave(broker, "", member, version=1)
    for version in (2, 9, 10):
        commit(broker, "", {T0: 5}, version=version)
    describe(broker, "")


@in_groups
def story_a_pending_member(broker: Broker) -> None:
    """It has only an id, and is not a member yet (KIP-394)."""
    broker.topic("t")
    member = join(broker, "g").member_id
    until_members(broker, "g", 0)
    describe(broker, "g")
    heartbeat(broker, "g", member, -1)
    heartbeat(broker, "g", member, 0)
    sync(broker, "g", member, 0)
    commit(broker, "g", {T0: 5}, member=member, generation=0)
    other = join(broker, "g").member_id
    leave(broker, "g", other)
    leave(broker, "g", other)
    join(broker, "g", other)
    join(broker, "g", member)
    describe(broker, "g")


@in_groups
@variants(version=(3, 9))
def story_joins_that_make_no_sense(broker: Broker, version: int) -> None:
    nonsense: list[dict[str, Any]] = [
        {"session_ms": 5_999},
        {"session_ms": 1_800_001},
        {"session_ms": -1},
        {"kind": ""},
        {"protocols": ()},
        {"kind": "", "protocols": ()},
    ]
    for words in nonsense:
        join(broker, "g", version=version, **words)
        join(broker, "g", "somebody", version=version, **words)
    describe(broker, "g")
    member, _ = settled(broker)
    for words in nonsense:
        join(broker, "g", version=version, **words)
        join(broker, "g", member, version=version, **words)
    describe(broker, "g")


@in_groups
@variants(version=(3, 9))
def story_another_kind_of_protocol(broker: Broker, version: int) -> None:
    broker.topic("t")
    member, generation = settled(broker)
    join(broker, "g", version=version, kind="connect")
    join(broker, "g", version=version, protocols=(("roundrobin", b"x"),))
    join(broker, "g", member, version=version, kind="connect")
    join(broker, "g", "somebody", version=version, kind="connect")
    sync(broker, "g", member, generation, kind="connect")
    sync(broker, "g", member, generation, protocol="roundrobin")
    sync(broker, "g", member, generation, kind=None)
    sync(broker, "g", member, generation, protocol=None)
    sync(broker, "g", member, generation)
    describe(broker, "g")


@in_groups
def story_the_protocol_that_all_have(broker: Broker) -> None:
    """The members vote among those that each of them has."""
    first = enter(broker, "g", protocols=(("a", b"1a"), ("b", b"1b"), ("c", b"1c")))
    sync(broker, "g", first.member_id, 1, {first.member_id: b"all"}, protocol="a")
    second = join(broker, "g", protocols=(("c", b"2c"), ("b", b"2b"))).member_id
    waiting = begin_join(broker, "g", second, protocols=(("c", b"2c"), ("b", b"2b")))
    until_rebalancing(broker, "g", first.member_id, 1)
    join(broker, "g", first.member_id, protocols=(("b", b"1b"), ("c", b"1c"), ("a", b"1a")))
    waiting.answer()
    join(broker, "g", protocols=(("d", b"3d"),))
    describe(broker, "g")


@in_groups
def story_protocols_that_are_named_twice(broker: Broker) -> None:
    joined = enter(broker, "g", protocols=(("a", b"1"), ("b", b"2"), ("a", b"3")))
    sync(broker, "g", joined.member_id, 1, {joined.member_id: b"all"}, protocol="a")
    describe(broker, "g")


@in_groups
def story_two_members(broker: Broker) -> None:
    broker.topic("t")
    first, _ = settled(broker)
    second = join(broker, "g", protocols=(("range", b"s"),)).member_id
    describe(broker, "g")
    waiting = begin_join(broker, "g", second, protocols=(("range", b"s"),))
    until_rebalancing(broker, "g", first, 1)
    describe(broker, "g")
    listed(broker)
    commit(broker, "g", {T0: 5}, member=first, generation=1)
    sync(broker, "g", first, 1)
    join(broker, "g", first)
    waiting.answer()
    describe(broker, "g")
    heartbeat(broker, "g", second, 2)
    commit(broker, "g", {T0: 6}, member=second, generation=2)
    waiting = begin_sync(broker, "g", second, 2)
    sync(broker, "g", first, 2, {second: b"2", first: b"1"})
    waiting.answer()
    describe(broker, "g")
    sync(broker, "g", second, 2)
    heartbeat(broker, "g", first, 1)
    leave(broker, "g", first)
    heartbeat(broker, "g", second, 2)
    join(broker, "g", second, protocols=(("range", b"s"),))
    leave(broker, "g", second)
    describe(broker, "g")
    write_down_records(broker)


@in_groups
def story_a_leader_that_assigns_nothing_to_a_member(broker: Broker) -> None:
    first, _ = settled(broker)
    second = join(broker, "g", protocols=(("range", b"s"),)).member_id
    waiting = begin_join(broker, "g", second, protocols=(("range", b"s"),))
    until_rebalancing(broker, "g", first, 1)
    join(broker, "g", first)
    waiting.answer()
    waiting = begin_sync(broker, "g", second, 2)
    sync(broker, "g", first, 2, {first: b"1", "somebody": b"3"})
    waiting.answer()
    describe(broker, "g")
    write_down_records(broker)


@in_groups
def story_members_that_join_again(broker: Broker) -> None:
    """A leader's or changed member's join begins a rebalance, another gets the generation again."""
    first, _ = settled(broker)
    join(broker, "g", first)
    sync(broker, "g", first, 2, {first: b"all"})
    second = join(broker, "g", protocols=(("range", b"s"),)).member_id
    waiting = begin_join(broker, "g", second, protocols=(("range", b"s"),))
    until_rebalancing(broker, "g", first, 2)
    join(broker, "g", first)
    waiting.answer()
    join(broker, "g", second, protocols=(("range", b"s"),))
    sync(broker, "g", first, 3, {first: b"1", second: b"2"})
    join(broker, "g", second, protocols=(("range", b"s"),))
    waiting = begin_join(broker, "g", second, protocols=(("range", b"other"),))
    until_rebalancing(broker, "g", first, 3)
    join(broker, "g", first)
    waiting.answer()


@in_groups
@variants(version=(3, 9))
def story_more_members_than_are_allowed(broker: Broker, version: int) -> None:
    first, _ = settled(broker)
    calls = []
    for data in (b"s", b"t"):
        protocols = (("range", data),)
        member = join(broker, "g", protocols=protocols).member_id
        calls.append(begin_join(broker, "g", member, protocols=protocols))
        until_rebalancing(broker, "g", first, 1)
        until_members(broker, "g", 1 + len(calls))
    join(broker, "g", first)
    for call in calls:
        call.answer()
    join(broker, "g", version=version, protocols=(("range", b"u"),))
    sync(broker, "g", first, 2, {first: b"1"})
    join(broker, "g", version=version, protocols=(("range", b"u"),))
    join(broker, "g", instance="i", version=version, protocols=(("range", b"u"),))
    describe(broker, "g")


@in_groups
@variants(version=(0, 2, 3, 4, 5))
def story_leaving(broker: Broker, version: int) -> None:
    member, generation = settled(broker)
    leave(broker, "never", member, version=version)
    leave(broker, "g", "somebody", version=version)
    if version >= 3:
        leave(broker, "g", version=version)
        leave(broker, "g", "somebody", member, member, version=version)
        leave(broker, "g", (member, "i"), ("", "i"), ("", None), version=version)
    else:
        leave(broker, "g", member, version=version)
    leave(broker, "g", member, version=version)
    heartbeat(broker, "g", member, generation)
    describe(broker, "g")
    write_down_records(broker)
