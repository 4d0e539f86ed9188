"""Classic static members (KIP-345): they keep their place over a restart."""

from typing import Final

from tests.judge.broker import Broker
from tests.judge.group_records import write_down_records
from tests.judge.grouping import (
    begin_join,
    commit,
    describe,
    heartbeat,
    join,
    leave,
    sync,
    until_rebalancing,
)
from tests.judge.story import GROUPS, in_setup, variants

T0: Final = ("t", 0)
in_groups = in_setup(GROUPS)


def settled(broker: Broker, *, version: int = 9) -> str:
    """Make a group with one static member, the instance i."""
    member = join(broker, "g", instance="i", version=version).member_id
    sync(broker, "g", member, 1, {member: b"all"}, instance="i")
    return str(member)


@in_groups
@variants(version=(5, 6, 7, 8, 9))
def story_a_restart(broker: Broker, version: int) -> None:
    broker.topic("t")
    old = settled(broker, version=version)
    describe(broker, "g")
    new = join(broker, "g", instance="i", version=version).member_id
    describe(broker, "g")
    for member in (old, new, "somebody"):
        for instance in ("i", "j", None):
            heartbeat(broker, "g", member, 1, instance=instance)
            sync(broker, "g", member, 1, instance=instance)
            commit(broker, "g", {T0: 5}, member=member, generation=1, instance=instance)
    join(broker, "g", old, instance="i", version=version)
    join(broker, "g", "somebody", instance="i", version=version)
    join(broker, "g", new, instance="j", version=version)
    leave(broker, "g", (old, "i"), ("", "j"), (new, "j"), ("somebody", "i"), (new, "i"))
    describe(broker, "g")
    write_down_records(broker)


@in_groups
@variants(version=(8, 9))
def story_a_restart_with_another_subscription(broker: Broker, version: int) -> None:
    settled(broker, version=version)
    other = (("range", b"other"),)
    new = join(broker, "g", instance="i", version=version, protocols=other).member_id
    describe(broker, "g")
    sync(broker, "g", new, 2, {new: b"more"}, instance="i")
    describe(broker, "g")
    write_down_records(broker)


@in_groups
@variants(version=(8, 9))
def story_a_follower_restarts(broker: Broker, version: int) -> None:
    leader = settled(broker, version=version)
    waiting = begin_join(broker, "g", instance="j", protocols=(("range", b"s"),), version=version)
    until_rebalancing(broker, "g", leader, 1)
    join(broker, "g", leader, instance="i", version=version)
    follower = waiting.answer().member_id
    sync(broker, "g", leader, 2, {leader: b"1", follower: b"2"}, instance="i")
    new = join(broker, "g", instance="j", protocols=(("range", b"s"),), version=version).member_id
    sync(broker, "g", new, 2, instance="j")
    heartbeat(broker, "g", leader, 2, instance="i")
    heartbeat(broker, "g", follower, 2, instance="j")
    describe(broker, "g")
    write_down_records(broker)


@in_groups
def story_a_restart_before_the_assignment(broker: Broker) -> None:
    member = join(broker, "g", instance="i").member_id
    again = join(broker, "g", instance="i").member_id
    sync(broker, "g", member, 1, {member: b"all"}, instance="i")
    sync(broker, "g", again, 2, {again: b"all"}, instance="i")
    describe(broker, "g")


@in_groups
@variants(version=(3, 5))
def story_leaving_by_instance(broker: Broker, version: int) -> None:
    settled(broker)
    leave(broker, "g", ("", "j"), version=version)
    leave(broker, "g", ("", "i"), ("", "i"), version=version)
    describe(broker, "g")
    write_down_records(broker)


@in_groups
def story_names_of_instances(broker: Broker) -> None:
    for number, instance in enumerate(("", " ", "i" * 200)):
        join(broker, f"g{number}", instance=instance)
        describe(broker, f"g{number}")
