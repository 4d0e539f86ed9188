"""Groups of the new protocol (KIP-848): members join, reconcile, are fenced, and leave."""

from typing import Any, Final

from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from tests.judge.broker import Broker
from tests.judge.group_records import write_down_records
from tests.judge.grouping import (
    PRESENT_MS,
    beat,
    commit,
    describe_consumers,
    enter,
    heartbeat,
    join_consumer,
    leave,
    listed,
    sync,
    topic,
)
from tests.judge.story import GROUPS, in_setup, variants

T0: Final = ("t", 0)
in_groups = in_setup(GROUPS)


@in_groups
@variants(version=(0, 1), assignor=(None, "range", "uniform"))
def story_one_member(broker: Broker, version: int, assignor: str | None) -> None:
    topic(broker, "t", 3)
    me = "" if version == 0 else "me"
    joined = join_consumer(broker, "g", me, ["t"], version=version, assignor=assignor)
    me, epoch = joined.member_id, joined.member_epoch
    describe_consumers(broker, "g", version=version)
    beat(broker, "g", me, epoch, version=version)
    beat(broker, "g", me, epoch, owned={"t": [0, 1, 2]}, version=version)
    describe_consumers(broker, "g", version=version)
    listed(broker)
    commit(broker, "g", {T0: 5}, member=me, generation=epoch)
    beat(broker, "g", me, -1, version=version)
    describe_consumers(broker, "g", version=version)
    beat(broker, "g", me, epoch, version=version)
    write_down_records(broker)


@in_groups
@variants(assignor=("range", "uniform"))
def story_two_members(broker: Broker, assignor: str) -> None:
    """The first gives up what the second gets."""
    topic(broker, "t", 3)
    topic(broker, "u", 2)
    # Which topic the uniform assignor begins with is chosen by their ids, which are random.
    topics = ["t", "u"] if assignor == "range" else ["t"]
    owned = {"t": [0, 1, 2], "u": [0, 1]}
    join_consumer(broker, "g", "a", topics, assignor=assignor)
    beat(broker, "g", "a", 1, owned={topic: owned[topic] for topic in topics})
    second = join_consumer(broker, "g", "b", topics, assignor=assignor)
    describe_consumers(broker, "g")
    first = beat(broker, "g", "a", 1)
    describe_consumers(broker, "g")
    beat(broker, "g", "b", second.member_epoch)
    beat(broker, "g", "a", 1, owned=_owned(broker, first))
    describe_consumers(broker, "g")
    second = beat(broker, "g", "b", second.member_epoch)
    beat(broker, "g", "b", second.member_epoch, owned=_owned(broker, second))
    describe_consumers(broker, "g")
    beat(broker, "g", "a", -1)
    beat(broker, "g", "b", second.member_epoch)
    describe_consumers(broker, "g")
    beat(broker, "g", "b", -1)
    describe_consumers(broker, "g")
    write_down_records(broker)


def _owned(broker: Broker, answer: Any) -> dict[str, list[int]]:
    """Return the partitions of an answer's assignment."""
    names = {topic_id: name for name, topic_id in broker.names.topic_ids.items()}
    if answer.assignment is None:
        return {}
    return {
        names[each.topic_id]: list(each.partitions) for each in answer.assignment.topic_partitions
    }


@in_groups
@variants(version=(0, 1))
def story_fences(broker: Broker, version: int) -> None:
    topic(broker, "t", 2)
    beat(broker, "never", "a", 1, version=version)
    join_consumer(broker, "g", "a", ["t"], version=version)
    for epoch in (0, 2, 3, 100):
        beat(broker, "g", "a", epoch, version=version)
    beat(broker, "g", "a", 1, owned={"t": [0]}, version=version)
    join_consumer(broker, "g", "b", ["t"], version=version)
    beat(broker, "g", "a", 1, owned={"t": [0, 1]}, version=version)
    beat(broker, "g", "a", 1, owned={"t": [0]}, version=version)
    beat(broker, "g", "a", 1, owned={"t": [0]}, version=version)
    beat(broker, "g", "a", 1, owned={"t": [0, 1]}, version=version)
    beat(broker, "g", "somebody", 1, version=version)
    beat(broker, "g", "somebody", -1, version=version)
    beat(broker, "g", "somebody", -2, instance="i", version=version)
    join_consumer(broker, "g", "a", ["t"], version=version)
    describe_consumers(broker, "g", version=version)
    write_down_records(broker)


NONSENSE: Final[dict[str, dict[str, Any]]] = {
    "no group": {"group_id": ""},
    "a blank group": {"group_id": " "},
    "no member": {"member_id": ""},
    "a blank member": {"member_id": " "},
    "a blank instance": {"instance_id": ""},
    "a blank rack": {"rack_id": " "},
    "no time-out": {"rebalance_timeout_ms": -1},
    "a time-out of 0": {"rebalance_timeout_ms": 0},
    "a negative time-out": {"rebalance_timeout_ms": -2},
    "nothing owned": {"topic_partitions": None},
    "nothing subscribed": {"subscribed_topic_names": None},
    "an empty subscription": {"subscribed_topic_names": ()},
    "an unknown assignor": {"server_assignor": "sticky"},
    "no assignor": {"server_assignor": ""},
    "epoch -3": {"member_epoch": -3},
    "epoch -2 without instance": {"member_epoch": -2},
    "a pattern that is none": {"subscribed_topic_regex": "("},
    "an empty pattern": {"subscribed_topic_regex": ""},
    "a pattern alone": {"subscribed_topic_names": None, "subscribed_topic_regex": "none.*"},
}


@in_groups
@variants(what=NONSENSE, version=(0, 1))
def story_nonsense(broker: Broker, what: str, version: int) -> None:
    topic(broker, "t")
    wrong = NONSENSE[what]
    if version == 0 and "subscribed_topic_regex" in wrong:
        wrong = {name: value for name, value in wrong.items() if name != "subscribed_topic_regex"}
    request: dict[str, Any] = {
        "group_id": broker.wire_group("g"),
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": PRESENT_MS,
        "subscribed_topic_names": (broker.names.on_wire("t"),),
        "topic_partitions": (),
    }
    message = ConsumerGroupHeartbeatRequest(**(request | wrong))
    broker.ask(f"join with {what} v{version}", CONSUMER_GROUP_HEARTBEAT, version, message)
    if "group_id" not in wrong and wrong.get("member_epoch", 0) == 0:
        joined = {"member_epoch": 1, "rebalance_timeout_ms": -1, "topic_partitions": None}
        message = ConsumerGroupHeartbeatRequest(**(request | joined | wrong))
        broker.ask(f"go on with {what} v{version}", CONSUMER_GROUP_HEARTBEAT, version, message)
    describe_consumers(broker, "g")


@in_groups
def story_subscriptions_that_change(broker: Broker) -> None:
    for name in ("t", "u"):
        topic(broker, name, 2)
    join_consumer(broker, "g", "a", ["t", "never"])
    beat(broker, "g", "a", 1, topics=["t", "u"], owned={"t": [0, 1]})
    beat(broker, "g", "a", 2, owned={"t": [0, 1], "u": [0, 1]})
    describe_consumers(broker, "g")
    beat(broker, "g", "a", 2, topics=["u", "t"])
    beat(broker, "g", "a", 2, topics=["u", "u"])
    beat(broker, "g", "a", 2, owned={"u": [0, 1]})
    beat(broker, "g", "a", 3, owned={"u": [0, 1]})
    beat(broker, "g", "a", 3, topics=[])
    beat(broker, "g", "a", 3, owned={})
    beat(broker, "g", "a", 4, rack="r", timeout_ms=1_000, assignor="range")
    beat(broker, "g", "a", 4)
    describe_consumers(broker, "g")
    write_down_records(broker)


@in_groups
def story_assignors_of_several_members(broker: Broker) -> None:
    """Most members' assignor is taken, the first of the broker's if it is a draw."""
    topic(broker, "t", 4)
    join_consumer(broker, "g", "a", ["t"], assignor="range")
    describe_consumers(broker, "g")
    join_consumer(broker, "g", "b", ["t"], assignor="uniform")
    describe_consumers(broker, "g")
    join_consumer(broker, "g", "c", ["t"], assignor="range")
    describe_consumers(broker, "g")
    join_consumer(broker, "g", "d", ["t"])
    describe_consumers(broker, "g")


@in_groups
@variants(version=(0, 1))
def story_static_members(broker: Broker, version: int) -> None:
    topic(broker, "t", 2)
    join_consumer(broker, "g", "a", ["t"], instance="i", version=version)
    beat(broker, "g", "a", 1, instance="i", owned={"t": [0, 1]}, version=version)
    join_consumer(broker, "g", "b", ["t"], instance="i", version=version)
    beat(broker, "g", "b", 1, instance="i", version=version)
    beat(broker, "g", "a", 1, instance="j", version=version)
    beat(broker, "g", "a", 1, version=version)
    beat(broker, "g", "a", -2, instance="j", version=version)
    beat(broker, "g", "b", -2, instance="i", version=version)
    beat(broker, "g", "a", -2, instance="i", version=version)
    describe_consumers(broker, "g", version=version)
    beat(broker, "g", "a", 1, instance="i", version=version)
    join_consumer(broker, "g", "b", ["t"], instance="i", version=version)
    describe_consumers(broker, "g", version=version)
    beat(broker, "g", "a", 1, instance="i", version=version)
    beat(broker, "g", "b", 1, instance="i", owned={"t": [0, 1]}, version=version)
    beat(broker, "g", "b", -1, instance="i", version=version)
    describe_consumers(broker, "g", version=version)
    write_down_records(broker)


@in_groups
def story_a_static_member_that_comes_back_with_another_subscription(broker: Broker) -> None:
    for name in ("t", "u"):
        topic(broker, name, 2)
    join_consumer(broker, "g", "a", ["t"], instance="i")
    beat(broker, "g", "a", 1, instance="i", owned={"t": [0, 1]})
    beat(broker, "g", "a", -2, instance="i")
    join_consumer(broker, "g", "b", ["u"], instance="i")
    describe_consumers(broker, "g")
    write_down_records(broker)


@in_groups
def story_a_static_member_that_is_removed(broker: Broker) -> None:
    topic(broker, "t", 2)
    join_consumer(broker, "g", "a", ["t"], instance="i")
    join_consumer(broker, "g", "b", ["t"])
    leave(broker, "g", ("somebody", "i"), ("", "j"), ("", "i"))
    leave(broker, "g", ("b", None), ("b", None))
    describe_consumers(broker, "g")
    beat(broker, "g", "a", 1, instance="i")
    write_down_records(broker)


@in_groups
def story_more_members_than_are_allowed(broker: Broker) -> None:
    topic(broker, "t", 2)
    for member in ("a", "b", "c", "d"):
        join_consumer(broker, "g", member, ["t"])
    join_consumer(broker, "g", "e", ["t"], instance="i")
    beat(broker, "g", "a", -1)
    join_consumer(broker, "g", "d", ["t"])


@in_groups
@variants(version=(2, 8, 9, 10))
def story_commits_with_epochs(broker: Broker, version: int) -> None:
    topic(broker, "t", 2)
    join_consumer(broker, "g", "a", ["t"])
    beat(broker, "g", "a", 1, owned={"t": [0, 1]})
    for member in ("a", "somebody", ""):
        for epoch in (-1, 0, 1, 2):
            commit(broker, "g", {T0: 5}, member=member, generation=epoch, version=version)
    join_consumer(broker, "g", "b", ["t"])
    beat(broker, "g", "a", 1, owned={"t": [0, 1]})
    beat(broker, "g", "a", 1, owned={"t": [0]})
    for epoch in (1, 2, 3):
        commit(broker, "g", {T0: 6}, member="a", generation=epoch, version=version)
        commit(broker, "g", {("t", 1): 6}, member="a", generation=epoch, version=version)
        commit(broker, "g", {("t", 1): 6}, member="b", generation=epoch, version=version)
    beat(broker, "g", "a", -1)
    beat(broker, "g", "b", -1)
    for epoch in (-1, 1, 2):
        commit(broker, "g", {T0: 7}, generation=epoch, version=version)
    write_down_records(broker)


@in_groups
@variants(version=(3, 5))
def story_commits_in_transactions(broker: Broker, version: int) -> None:
    topic(broker, "t", 2)
    join_consumer(broker, "g", "a", ["t"])
    beat(broker, "g", "a", 1, owned={"t": [0, 1]})
    producer = broker.init("x")
    for member in ("a", "somebody", ""):
        for epoch in (-1, 0, 1, 2):
            if version < 5:
                broker.add_offsets("x", producer, "g")
            broker.commit_offsets(
                "x", producer, "g", {T0: 5}, member=member, generation=epoch, version=version
            )
    producer = broker.end("x", producer, commit=True, version=version)
    join_consumer(broker, "g", "b", ["t"])
    beat(broker, "g", "a", 1, owned={"t": [0, 1]})
    beat(broker, "g", "a", 1, owned={"t": [0]})
    for epoch in (1, 2, 3):
        if version < 5:
            broker.add_offsets("x", producer, "g")
        for where in (T0, ("t", 1)):
            broker.commit_offsets(
                "x", producer, "g", {where: 6}, member="a", generation=epoch, version=version
            )
    broker.end("x", producer, commit=True, version=version)
    broker.committed("g", [T0, ("t", 1)], stable=True)


@in_groups
def story_the_other_protocol(broker: Broker) -> None:
    """A group with members keeps its protocol, unless the broker migrates it."""
    topic(broker, "t", 2)
    join_consumer(broker, "c", "a", ["t"])
    heartbeat(broker, "c", "a", 1)
    sync(broker, "c", "a", 1)
    leave(broker, "c", "somebody")
    member = enter(broker, "g").member_id
    sync(broker, "g", member, 1, {member: b"all"})
    beat(broker, "g", member, 1)
    beat(broker, "g", member, -1)


@in_groups
def story_an_empty_group_changes_its_protocol(broker: Broker) -> None:
    topic(broker, "t", 2)
    join_consumer(broker, "g", "a", ["t"])
    commit(broker, "g", {T0: 5}, member="a", generation=1)
    beat(broker, "g", "a", -1)
    member = enter(broker, "g").member_id
    sync(broker, "g", member, 1, {member: b"all"})
    listed(broker)
    leave(broker, "g", member)
    join_consumer(broker, "g", "b", ["t"])
    listed(broker)
    broker.committed("g", [T0])
    write_down_records(broker)
