"""One group as a value: votes, leaders, admission of members."""

import pytest

from odradek.broker.group.classic_group import ClassicGroup, Member, MemberProtocol
from odradek.broker.group.state import GroupState
from odradek.protocol.errors import ErrorCode, KafkaError


def member(member_id: str, *protocols: str, instance: str | None = None) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=500,
        protocols=tuple(MemberProtocol(name, name.encode()) for name in protocols or ("range",)),
    )


def group(*members: Member) -> ClassicGroup:
    value = ClassicGroup(group_id="g")
    for each in members:
        value = value.with_joined(each, "consumer")
    return value.in_state(GroupState.PREPARING_REBALANCE, 1)


def test_the_first_to_join_leads_until_it_goes() -> None:
    three = group(member("a"), member("b"), member("c"))
    assert three.leader_id == "a"
    assert three.without(["a"]).leader_id == "b"
    assert three.without(["a", "b", "c"]).leader_id is None


def test_a_leader_that_does_not_come_back_is_replaced_by_the_oldest_that_did() -> None:
    late = group(member("a"), member("b"), member("c")).with_next_generation(
        GroupState.COMPLETING_REBALANCE, 2
    )
    assert late.with_joining("c").with_leader_that_joined().leader_id == "c"
    assert late.with_joining("c").with_joining("b").with_leader_that_joined().leader_id == "b"
    assert late.with_leader_that_joined().leader_id == "a"


def test_the_protocol_with_most_votes_wins_among_those_that_all_support() -> None:
    three = group(
        member("a", "sticky", "range"),
        member("b", "roundrobin", "range", "sticky"),
        member("c", "range", "sticky"),
    )
    assert three.selected_protocol() == "range"
    assert three.with_next_generation(GroupState.STABLE, 2).protocol_name == "range"


def test_votes_that_are_equal_go_to_the_oldest_member() -> None:
    assert group(member("a", "x", "y"), member("b", "y", "x")).selected_protocol() == "x"


def test_who_shares_no_protocol_with_all_may_not_join() -> None:
    two = group(member("a", "x", "y"), member("b", "y"))
    assert two.supports("consumer", ["z", "y"])
    assert not two.supports("consumer", ["x"])
    assert not two.supports("connect", ["y"])


def test_admission_looks_at_each_protocol_of_each_member_once() -> None:
    """A thousand members with 64 protocols held the broker up for 0.2 s at each JoinGroup."""
    comparisons = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__eq__(self, other)

    names = [Counted(f"p{number}") for number in range(64)]
    many = group(*(member(f"m{number}", *names) for number in range(50)), member("z", names[-1]))
    assert many.supports("consumer", [*map(str, reversed(names[:-1])), "p63"])
    assert not many.supports("consumer", [*map(str, reversed(names[:-1]))])
    assert comparisons <= 2 * 51 * 64


def test_an_empty_group_takes_anybody_who_names_a_protocol() -> None:
    empty = ClassicGroup(group_id="g", protocol_type="connect")
    assert empty.supports("consumer", ["x"])
    assert not empty.supports("consumer", [])
    assert not empty.supports("", ["x"])


def test_who_says_to_be_a_static_member_that_another_is_now_is_fenced() -> None:
    static = group(member("a", instance="i"))
    static.check_member("a", "i")
    static.check_member("a", None)
    for member_id, instance, code in (
        ("old", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("old", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            static.check_member(member_id, instance)
        assert refused.value.code is code


def test_a_static_members_new_self_takes_its_place_and_its_leadership() -> None:
    two = group(member("a", instance="i"), member("b")).with_next_generation(
        GroupState.COMPLETING_REBALANCE, 2
    )
    replaced = two.with_replaced("a", member("a2", instance="i"))
    assert list(replaced.members) == ["a2", "b"]
    assert replaced.leader_id == "a2"
    assert replaced.unsynced == {"a2", "b"}


def test_a_generation_begins_with_nobody_joined_and_nobody_synced() -> None:
    value = group(member("a"), member("b"))
    assert value.have_all_joined
    following = value.with_next_generation(GroupState.COMPLETING_REBALANCE, 2)
    assert (following.generation_id, following.joined) == (1, frozenset())
    assert following.unsynced == {"a", "b"}


def test_ids_that_were_promised_are_waited_for() -> None:
    assert not group(member("a")).with_promised("b").have_all_joined


def test_what_a_group_takes_in_memory_counts_protocols_assignments_and_promises() -> None:
    small = group(member("a"))
    more_bytes = 1000 - len("range")  # in the name, and as many in the metadata
    assert group(member("a", "x" * 1000)).size_bytes == small.size_bytes + 2 * more_bytes
    assigned = small.with_assignment({"a": b"12345"})
    assert assigned.size_bytes == small.size_bytes + 5
    assert small.with_promised("b").size_bytes > small.size_bytes
