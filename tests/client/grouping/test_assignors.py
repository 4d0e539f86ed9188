"""The assignors beside those of kafka-python, and the rules of the sticky ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as AiokafkasRoundRobin,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from odradek.client.grouping.assignors import Assignment, Subscriber, every_partition
from odradek.client.grouping.sticky import assign_cooperatively, assign_sticky
from odradek.client.grouping.subscriptions import ASSIGNORS
from odradek.client.types import TopicPartition
from tests.drawing import given, st

TOPICS = ("a", "b", "c")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


def members_of(topics: Sequence[Sequence[str]]) -> list[Subscriber]:
    return [
        Subscriber(member_id=f"m{number}", topics=frozenset(wanted))
        for number, wanted in enumerate(topics)
    ]


MEMBERS = st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6).map(
    lambda topics: members_of([sorted(wanted) for wanted in topics])
)
ALIKE = st.integers(1, 7).map(lambda count: members_of([TOPICS] * count))


class Cluster:
    """What kafka-python's assignors ask of its cluster."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.counts[topic])) if topic in self.counts else None

    def topics(self) -> set[str]:
        return set(self.counts)


def theirs(assignor: Any, counts: Mapping[str, int], members: Sequence[Subscriber]) -> Assignment:
    joined = [
        SimpleNamespace(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=ConsumerProtocolSubscription(0, sorted(member.topics), b""),
        )
        for member in members
    ]
    found = assignor.assign(Cluster(counts), joined)
    return {
        member_id: [
            TopicPartition(topic, number)
            for topic, numbers in assigned.assigned_partitions
            for number in numbers
        ]
        for member_id, assigned in found.items()
    }


def sorted_by_member(assignment: Assignment) -> Assignment:
    return {member_id: sorted(partitions) for member_id, partitions in sorted(assignment.items())}


@given(COUNTS, MEMBERS)
def test_range_is_kafka_pythons(counts: dict[str, int], members: list[Subscriber]) -> None:
    ours = ASSIGNORS["range"](counts, members)
    assert sorted_by_member(ours) == sorted_by_member(
        theirs(RangePartitionAssignor, counts, members)
    )


@given(COUNTS, ALIKE)
def test_roundrobin_is_kafka_pythons(counts: dict[str, int], members: list[Subscriber]) -> None:
    ours = ASSIGNORS["roundrobin"](counts, members)
    of_theirs = theirs(RoundRobinPartitionAssignor, counts, members)
    assert sorted_by_member(ours) == sorted_by_member(of_theirs)


@given(COUNTS, MEMBERS)
def test_roundrobin_is_aiokafkas_where_members_want_different_topics(
    counts: dict[str, int], members: list[Subscriber]
) -> None:
    """kafka-python 3.0.12 raises KeyError there."""
    metadata = {
        member.member_id: SimpleNamespace(subscription=sorted(member.topics)) for member in members
    }
    found = AiokafkasRoundRobin.assign(Cluster(counts), metadata)
    theirs_by_member = {
        member_id: [
            TopicPartition(topic, number)
            for topic, numbers in assigned.assignment
            for number in numbers
        ]
        for member_id, assigned in found.items()
    }
    ours = ASSIGNORS["roundrobin"](counts, members)
    assert sorted_by_member(ours) == sorted_by_member(theirs_by_member)


def test_static_members_come_first_in_the_order_of_their_names() -> None:
    members = [
        Subscriber(member_id="a", topics=frozenset("t")),
        Subscriber(member_id="c", topics=frozenset("t"), group_instance_id="1"),
        Subscriber(member_id="b", topics=frozenset("t"), group_instance_id="2"),
    ]
    assert ASSIGNORS["range"]({"t": 3}, members) == {
        "c": [TopicPartition("t", 0)],
        "b": [TopicPartition("t", 1)],
        "a": [TopicPartition("t", 2)],
    }


def check_complete(counts: dict[str, int], members: list[Subscriber], found: Assignment) -> None:
    """Every partition that a member wants has one owner, who wants it."""
    wanted = {
        partition
        for partition in every_partition(counts)
        if any(partition.topic in member.topics for member in members)
    }
    given_out = [partition for partitions in found.values() for partition in partitions]
    assert sorted(given_out) == sorted(wanted)
    assert found.keys() == {member.member_id for member in members}
    for member in members:
        assert {partition.topic for partition in found[member.member_id]} <= member.topics


def check_even(members: list[Subscriber], found: Assignment) -> None:
    """No partition can move to a member that has at least two fewer."""
    for owner in members:
        for other in members:
            if len(found[owner.member_id]) > len(found[other.member_id]) + 1:
                assert not {name.topic for name in found[owner.member_id]} & other.topics


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts=COUNTS, members=MEMBERS)
def test_every_partition_has_one_owner(
    name: Any, counts: dict[str, int], members: list[Subscriber]
) -> None:
    check_complete(counts, members, ASSIGNORS[name](counts, members))


@given(COUNTS, MEMBERS)
def test_sticky_is_even(counts: dict[str, int], members: list[Subscriber]) -> None:
    found = assign_sticky(counts, members)
    check_even(members, found)
    sizes = sorted(len(partitions) for partitions in found.values())
    of_theirs = theirs(StickyPartitionAssignor(), counts, members)
    assert sum(size * size for size in sizes) <= sum(len(p) ** 2 for p in of_theirs.values())


def remembering(
    members: list[Subscriber], found: Assignment, generation: int = 1
) -> list[Subscriber]:
    return [
        replace(member, owned=tuple(found.get(member.member_id, ())), generation=generation)
        for member in members
    ]


@given(COUNTS, MEMBERS)
def test_sticky_changes_nothing_when_nothing_has_changed(
    counts: dict[str, int], members: list[Subscriber]
) -> None:
    found = assign_sticky(counts, members)
    again = assign_sticky(counts, remembering(members, found))
    assert sorted_by_member(again) == sorted_by_member(found)


@given(COUNTS, ALIKE)
def test_sticky_moves_no_more_than_a_new_member_gets(
    counts: dict[str, int], members: list[Subscriber]
) -> None:
    found = assign_sticky(counts, members)
    newcomer = Subscriber(member_id="new", topics=frozenset(TOPICS))
    everybody = [*remembering(members, found), newcomer]
    after = assign_sticky(counts, everybody)
    check_complete(counts, everybody, after)
    check_even(everybody, after)
    for member in members:
        assert set(after[member.member_id]) <= set(found[member.member_id])


@given(COUNTS, MEMBERS)
def test_sticky_leaves_everything_where_it_is_when_a_member_goes(
    counts: dict[str, int], members: list[Subscriber]
) -> None:
    found = assign_sticky(counts, members)
    rest = remembering(members[1:], found)
    after = assign_sticky(counts, rest)
    check_complete(counts, rest, after)
    check_even(rest, after)
    if len({member.topics for member in rest}) == 1:
        for member in rest:
            assert set(found[member.member_id]) <= set(after[member.member_id])


def test_of_two_claims_the_later_generation_wins_and_equal_ones_lose() -> None:
    both = frozenset("t")
    place = TopicPartition("t", 0)
    old = Subscriber(member_id="a", topics=both, owned=(place,), generation=1)
    new = Subscriber(member_id="b", topics=both, owned=(place,), generation=2)
    assert assign_sticky({"t": 1}, [old, new]) == {"a": [], "b": [place]}
    tie = replace(new, generation=1)
    assert assign_sticky({"t": 1}, [old, tie]) == {"a": [place], "b": []}
    assert assign_cooperatively({"t": 1}, [old, tie]) == {"a": [], "b": []}


@given(COUNTS, ALIKE, st.integers(1, 3))
def test_a_cooperative_rebalance_takes_first_and_gives_afterwards(
    counts: dict[str, int], members: list[Subscriber], newcomers: int
) -> None:
    before = assign_cooperatively(counts, members)
    others = [
        Subscriber(member_id=f"new{number}", topics=frozenset(TOPICS))
        for number in range(newcomers)
    ]
    everybody = [*remembering(members, before), *others]
    first = assign_cooperatively(counts, everybody)
    owners = {name: member_id for member_id, names in before.items() for name in names}
    for member_id, partitions in first.items():
        assert all(owners.get(name, member_id) == member_id for name in partitions)
    second = assign_cooperatively(counts, remembering(everybody, first, 2))
    check_complete(counts, everybody, second)
    check_even(everybody, second)
    third = assign_cooperatively(counts, remembering(everybody, second, 3))
    assert sorted_by_member(third) == sorted_by_member(second)


def test_a_thousand_members_and_ten_thousand_partitions_are_divided_soon() -> None:
    """The first draft compared every member with every other one."""
    members = members_of([["a"]] * 1000)
    found = assign_sticky({"a": 10_000}, members)
    assert {len(partitions) for partitions in found.values()} == {10}
