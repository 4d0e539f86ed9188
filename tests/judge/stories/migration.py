"""Groups that change their protocol while they have members, and members of both in one group."""

from typing import Any, Final

from odradek.protocol.state_topics import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
)
from tests.judge.broker import Broker
from tests.judge.group_records import write_down_records
from tests.judge.grouping import (
    beat,
    begin_join,
    begin_sync,
    commit,
    describe,
    describe_consumers,
    enter,
    heartbeat,
    join,
    join_consumer,
    leave,
    listed,
    sync,
    topic,
    until_rebalancing,
)
from tests.judge.migrating import assignment, enter_alone, ranged, subscription
from tests.judge.story import GROUPS, POLICIES, in_setup, variants, with_policy

T0: Final = ("t", 0)
T1: Final = ("t", 1)
OF_MEMBERS: Final = (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
)
"""Records of several members in one batch, in the order of a hash table of Java."""
in_groups = in_setup(GROUPS)
in_setup_of_policy = in_setup(with_policy)


def described(broker: Broker, group: str = "g") -> None:
    """Record a group as administrators of either protocol see it."""
    describe_consumers(broker, group)
    describe(broker, group)
    listed(broker)


def written(broker: Broker) -> None:
    write_down_records(broker, unordered=OF_MEMBERS)


def rejoin(broker: Broker, group: str, member: str, **more: Any) -> None:
    """Let a classic member join again and send SyncGroup as a follower."""
    again = join(broker, group, member, protocols=ranged(broker, "t", **more))
    sync(broker, group, member, max(again.generation_id, 1))


@in_setup_of_policy
@variants(policy=POLICIES)
def story_to_the_new_protocol_and_back(broker: Broker, policy: str) -> None:
    topic(broker, "t", 2)
    old = enter_alone(broker, "g", {"t": [0, 1]})
    commit(broker, "g", {T0: 5}, member=old, generation=1)
    new = join_consumer(broker, "g", "new", ["t"])
    described(broker)
    heartbeat(broker, "g", old, 1)
    sync(broker, "g", old, 1)
    commit(broker, "g", {T1: 5}, member=old, generation=1)
    rejoin(broker, "g", old, owned={"t": [0, 1]}, generation=1)
    heartbeat(broker, "g", old, 2)
    described(broker)
    rejoin(broker, "g", old, owned={"t": [0]}, generation=2)
    heartbeat(broker, "g", old, 2)
    beat(broker, "g", "new", new.member_epoch)
    beat(broker, "g", "new", new.member_epoch, owned={"t": [1]})
    described(broker)
    beat(broker, "g", "new", -1)
    described(broker)
    heartbeat(broker, "g", old, 2)
    joined = join(broker, "g", old, protocols=ranged(broker, "t"))
    given = {old: assignment(broker, {"t": [0, 1]})}
    sync(broker, "g", old, joined.generation_id, given)
    described(broker)
    broker.committed("g", [T0, T1])
    leave(broker, "g", old)
    described(broker)
    written(broker)


@in_setup_of_policy
@variants(policy=POLICIES)
def story_to_the_classic_protocol(broker: Broker, policy: str) -> None:
    topic(broker, "t", 2)
    join_consumer(broker, "g", "new", ["t"])
    beat(broker, "g", "new", 1, owned={"t": [0, 1]})
    old = enter(broker, "g", protocols=ranged(broker, "t")).member_id
    described(broker)
    sync(broker, "g", old, 2)
    heartbeat(broker, "g", old, 2)
    beat(broker, "g", "new", 1, owned={"t": [0, 1]})
    beat(broker, "g", "new", 1, owned={"t": [0]})
    heartbeat(broker, "g", old, 2)
    rejoin(broker, "g", old, generation=2)
    described(broker)
    beat(broker, "g", "new", -1)
    described(broker)
    heartbeat(broker, "g", old, 2)
    rejoin(broker, "g", old)
    described(broker)
    written(broker)


@in_setup_of_policy
@variants(policy=POLICIES)
def story_a_static_member_changes_its_protocol(broker: Broker, policy: str) -> None:
    """It begins the journey of the group and ends it."""
    topic(broker, "t", 2)
    old = enter_static(broker)
    join_consumer(broker, "g", "new", ["t"], instance="i")
    described(broker)
    heartbeat(broker, "g", old, 1, instance="i")
    beat(broker, "g", "new", 1, instance="i", owned={"t": [0, 1]})
    beat(broker, "g", "new", -2, instance="i")
    join_consumer(broker, "g", "newer", ["t"], instance="i")
    described(broker)
    joined = join(broker, "g", instance="i", protocols=ranged(broker, "t"))
    described(broker)
    beat(broker, "g", "newer", 1, instance="i")
    given = {joined.member_id: assignment(broker, {"t": [0, 1]})}
    sync(broker, "g", joined.member_id, joined.generation_id, given, instance="i")
    described(broker)
    written(broker)


def enter_static(broker: Broker) -> str:
    """Make a classic group of one static member that has both partitions."""
    member: str = join(broker, "g", instance="i", protocols=ranged(broker, "t")).member_id
    given = {member: assignment(broker, {"t": [0, 1]})}
    sync(broker, "g", member, 1, given, instance="i")
    return member


@in_setup_of_policy
@variants(policy=POLICIES)
def story_a_member_changes_its_protocol_itself(broker: Broker, policy: str) -> None:
    """It keeps its member id: to the new protocol, and back."""
    topic(broker, "t", 2)
    member = enter_alone(broker, "g", {"t": [0, 1]})
    join_consumer(broker, "g", member, ["t"])
    described(broker)
    heartbeat(broker, "g", member, 1)
    beat(broker, "g", member, 1, owned={"t": [0, 1]})
    joined = join(broker, "g", member, protocols=ranged(broker, "t"))
    described(broker)
    sync(broker, "g", member, joined.generation_id, {member: assignment(broker, {"t": [0, 1]})})
    described(broker)
    written(broker)


@in_groups
def story_members_of_both_protocols(broker: Broker) -> None:
    """Two are classic, one is of the new protocol. A fourth is one too many."""
    topic(broker, "t", 3)
    first, second = enter_two(broker)
    join_consumer(broker, "g", "new", ["t"])
    described(broker)
    for member in (first, second):
        heartbeat(broker, "g", member, 2)
    join_consumer(broker, "g", "newer", ["t"])
    rejoin(broker, "g", first, owned={"t": [0, 1]}, generation=2)
    rejoin(broker, "g", second, owned={"t": [2]}, generation=2)
    described(broker)
    rejoin(broker, "g", first, owned={"t": [0]}, generation=3)
    beat(broker, "g", "new", 3)
    beat(broker, "g", "new", 3, owned={"t": [1]})
    described(broker)
    leave(broker, "g", first)
    leave(broker, "g", second)
    for member in (first, second):
        heartbeat(broker, "g", member, 3)
    beat(broker, "g", "new", 3, owned={"t": [1]})
    described(broker)
    leave(broker, "g", ("new", None), (second, None), ("somebody", None))
    described(broker)
    written(broker)


def enter_two(broker: Broker) -> tuple[str, str]:
    """Make a classic group of two members, which have all three partitions."""
    first = enter(broker, "g", protocols=ranged(broker, "t")).member_id
    sync(broker, "g", first, 1, {first: assignment(broker, {"t": [0, 1, 2]})})
    protocols = ranged(broker, "t", rack="r")
    second = join(broker, "g", protocols=protocols).member_id
    waiting = begin_join(broker, "g", second, protocols=protocols)
    until_rebalancing(broker, "g", first, 1)
    join(broker, "g", first, protocols=ranged(broker, "t"))
    waiting.answer()
    syncing = begin_sync(broker, "g", second, 2)
    parts = {first: {"t": [0, 1]}, second: {"t": [2]}}
    sync(broker, "g", first, 2, {who: assignment(broker, each) for who, each in parts.items()})
    syncing.answer()
    return first, second


@in_groups
def story_the_last_of_the_new_protocol_is_removed(broker: Broker) -> None:
    """By an administrator, who names its instance."""
    topic(broker, "t", 2)
    old = enter_alone(broker, "g", {"t": [0, 1]})
    join_consumer(broker, "g", "new", ["t"], instance="i")
    rejoin(broker, "g", old, owned={"t": [0, 1]}, generation=1)
    leave(broker, "g", ("", "i"))
    described(broker)
    heartbeat(broker, "g", old, 2)
    beat(broker, "g", "new", 2, instance="i")


@in_groups
def story_the_last_of_the_classic_protocol_leaves(broker: Broker) -> None:
    topic(broker, "t", 2)
    old = enter_alone(broker, "g", {"t": [0, 1]})
    join_consumer(broker, "g", "new", ["t"])
    leave(broker, "g", old)
    described(broker)
    beat(broker, "g", "new", 2)
    beat(broker, "g", "new", -1)
    described(broker)
    written(broker)


WRONG: Final[dict[str, dict[str, Any]]] = {
    "a worker": {"kind": "connect"},
    "an old subscription": {"version": 0},
    "a version of the future": {"raw": b"\x00\x63"},
    "no subscription": {"raw": b""},
    "a torn subscription": {"cut": 1},
    "data of an assignor": {"user_data": b"of its own"},
    "data of an assignor in the subscription": {"data": b"of its own"},
    "a topic that is not there": {"parts": {"never": [0], "t": [0, 1]}},
    "no partition": {"parts": {"t": [0, 1], "u": []}},
}


@in_groups
@variants(what=WRONG)
def story_classic_groups_of_all_kinds(broker: Broker, what: str) -> None:
    """Some of them cannot be converted."""
    topic(broker, "t", 2)
    topic(broker, "u")
    wrong = WRONG[what]
    sent = subscription(broker, "t", user_data=wrong.get("data"), version=wrong.get("version", 3))
    if "raw" in wrong:
        sent = wrong["raw"] + sent[2:] if wrong["raw"] else b""
    sent = sent[: len(sent) - wrong.get("cut", 0)]
    old = enter_alone(
        broker,
        "g",
        wrong.get("parts", {"t": [0, 1]}),
        user_data=wrong.get("user_data"),
        protocols=(("range", sent),),
        kind=wrong.get("kind", "consumer"),
    )
    join_consumer(broker, "g", "new", ["t"])
    described(broker)
    heartbeat(broker, "g", old, 1)
    beat(broker, "g", "new", -1)
    described(broker)
    written(broker)


@in_groups
def story_a_classic_member_that_owns_a_partition_that_is_not_there(broker: Broker) -> None:
    topic(broker, "t", 2)
    enter_alone(broker, "g", {"t": [0, 1, 7]})
    join_consumer(broker, "g", "new", ["t"])


@in_groups
@variants(version=(0, 3, 5, 9))
def story_classic_joins_that_make_no_sense(broker: Broker, version: int) -> None:
    """To a group with a member of the new protocol."""
    topic(broker, "t", 2)
    join_consumer(broker, "g", "new", ["t"], instance="i")
    good = subscription(broker, "t")
    nonsense: list[dict[str, Any]] = [
        {"kind": "connect"},
        {"kind": ""},
        {"protocols": ()},
        {"protocols": (("range", b""),)},
        {"protocols": (("range", b"\xff\xff"),)},
        {"protocols": (("range", good[:-1]),)},
        {"protocols": (("", good),)},
        {"session_ms": 5_999},
        {"session_ms": 1_800_001},
    ]
    for words in nonsense:
        more = {"protocols": (("range", good),), **words}
        join(broker, "g", "somebody", version=version, **more)
        join(broker, "g", version=version, **more)
    join(broker, "g", "new", version=version, protocols=(("range", good),))
    described(broker)


@in_groups
@variants(kind=("older", "newer", "none", "unknown", "the other's", "empty"))
def story_strangers(broker: Broker, kind: str) -> None:
    """To a group of both protocols: requests with a wrong member or a wrong generation."""
    topic(broker, "t", 2)
    old = enter_alone(broker, "g", {"t": [0, 1]})
    join_consumer(broker, "g", "new", ["t"])
    rejoin(broker, "g", old, owned={"t": [0, 1]}, generation=1)
    member, generation = {
        "older": (old, 1),
        "newer": (old, 3),
        "none": (old, -1),
        "unknown": ("somebody", 2),
        "the other's": ("new", 2),
        "empty": ("", 2),
    }[kind]
    for version in (0, 4):
        heartbeat(broker, "g", member, generation, version=version)
    heartbeat(broker, "g", member, generation, instance="i")
    for version in (0, 5):
        sync(broker, "g", member, generation, {member: b"x"}, version=version)
    sync(broker, "g", member, generation, kind="connect")
    sync(broker, "g", member, generation, protocol="roundrobin")
    for version in (2, 8, 9, 10):
        commit(broker, "g", {T0: 5}, member=member, generation=generation, version=version)
    producer = broker.init("x")
    broker.commit_offsets(
        "x", producer, "g", {T0: 6}, member=member, generation=generation, version=5
    )
    broker.end("x", producer, commit=True, version=5)
    if kind != "empty":
        beat(broker, "g", member, generation)
    if kind in ("unknown", "empty"):
        leave(broker, "g", member)
        leave(broker, "g", (member, "i"))
    described(broker)


@in_groups
@variants(version=(2, 8, 9))
def story_commits_of_classic_members(broker: Broker, version: int) -> None:
    """Of a group of both protocols, before and after they have joined again."""
    topic(broker, "t", 2)
    old = enter_alone(broker, "g", {"t": [0, 1]})
    producer = broker.init("x")
    join_consumer(broker, "g", "new", ["t"])
    for generation in (1, 2):
        for where in (T0, T1):
            commit(broker, "g", {where: 3}, member=old, generation=generation, version=version)
            broker.commit_offsets(
                "x", producer, "g", {where: 4}, member=old, generation=generation, version=5
            )
        if generation == 1:
            rejoin(broker, "g", old, owned={"t": [0, 1]}, generation=1)
    broker.end("x", producer, commit=True, version=5)
    broker.committed("g", [T0, T1])
