"""The group APIs over a socket, in every version, on our broker and (--peers) on a real Kafka."""

import threading
from typing import Any

import pytest

from odradek.protocol.apis.group import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.group.wire import WireClient, versions

NONE = ErrorCode.NONE


def describe(client: WireClient, group: str, version: int = 6) -> Any:
    return client.ask(DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=(group,))).groups[0]


# membership


@pytest.mark.parametrize("version", versions(JOIN_GROUP))
def test_a_member_lives_its_life_in_every_version(
    client: WireClient, group: str, topic: str, version: int
) -> None:
    joined = client.join(group, version=version)
    if version >= 4:
        assert (joined.error_code, joined.leader) == (ErrorCode.MEMBER_ID_REQUIRED, "")
        joined = client.join(group, joined.member_id, version=version)
    assert joined.error_code == NONE
    assert joined.generation_id == 1
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (joined.member_id, b"meta")
    ]
    assert joined.member_id.startswith("wire-")
    synced = client.sync(group, joined, {joined.member_id: b"mine"}, version=min(version, 5))
    assert (synced.error_code, synced.assignment) == (NONE, b"mine")
    assert client.heartbeat(group, joined, version=min(version, 4)) == NONE
    who = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert client.commit(group, topic, 7, version=max(2, version), **who) == NONE
    described = describe(client, group, min(version, 6))
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (member,) = described.members
    assert (member.client_id, member.client_host) == ("wire", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")
    left = client.leave(group, joined.member_id, version=min(version, 5))
    assert left.error_code == NONE
    assert [each.error_code for each in left.members] == ([NONE] if version >= 3 else [])
    assert client.heartbeat(group, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(client, group).group_state == "Empty"


def test_two_members_and_what_the_first_hears_of_the_second(
    bootstrap: str, client: WireClient, group: str
) -> None:
    first = client.member(group)
    answers: list[Any] = []
    with WireClient(bootstrap, "other") as other:
        promised = other.join(group)
        thread = threading.Thread(
            target=lambda: answers.append(other.join(group, promised.member_id))
        )
        thread.start()
        while client.heartbeat(group, first) == NONE:
            pass
        assert client.heartbeat(group, first) == ErrorCode.REBALANCE_IN_PROGRESS
        assert client.sync(group, first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        again = client.join(group, first.member_id)
        thread.join()
        (second,) = answers
        assert (again.generation_id, second.generation_id) == (2, 2)
        assert again.leader == second.leader == first.member_id
        assert len(again.members) == 2
        assert second.members == ()
        assert client.heartbeat(group, first) == ErrorCode.ILLEGAL_GENERATION
        assert describe(client, group).group_state == "CompletingRebalance"


REFUSED_JOINS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"session_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ({"session_ms": 2_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED_JOINS)
def test_joins_that_are_refused(
    client: WireClient, group: str, changes: dict[str, Any], code: ErrorCode
) -> None:
    assert client.join(group, **changes).error_code == code


def test_joins_that_do_not_fit_a_group(client: WireClient, group: str) -> None:
    assert client.join("").error_code == ErrorCode.INVALID_GROUP_ID
    client.member(group)
    for changes in ({"protocols": (("other", b""),)}, {"protocol_type": "connect"}):
        refused = client.join(group, **changes)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    who = client.join(group, "who")
    assert (who.error_code, who.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "who")


def test_syncs_and_heartbeats_that_are_refused(client: WireClient, group: str) -> None:
    joined = client.member(group)
    assert client.sync(group, joined, generation=9).error_code == ErrorCode.ILLEGAL_GENERATION
    nameless = SyncGroupRequest(
        group_id=group, generation_id=1, member_id=joined.member_id, assignments=()
    )
    answer = client.ask(SYNC_GROUP, 5, nameless)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.ask(SYNC_GROUP, 4, nameless).error_code == NONE
    assert client.heartbeat("", joined) == ErrorCode.INVALID_GROUP_ID
    assert client.heartbeat("nowhere", joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(group, joined, member_id="who") == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(group, joined, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert (
        client.heartbeat(group, joined, group_instance_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_static_members(client: WireClient, group: str) -> None:
    first = client.member(group, instance="i1")
    assert first.member_id.startswith("i1-")
    again = client.join(group, instance="i1")
    assert (again.error_code, again.generation_id) == (NONE, 1)
    assert again.skip_assignment
    assert again.leader == again.member_id
    assert len(again.members) == 1
    assert client.sync(group, again, instance="i1").assignment == b"mine"
    fenced = client.heartbeat(group, first, group_instance_id="i1")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert client.heartbeat(group, first) == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat(group, again, group_instance_id="i1") == NONE
    older = client.join(group, instance="i1", version=8)
    assert older.leader == again.member_id
    assert older.member_id != again.member_id
    assert older.members == ()


def test_leaving_in_company(client: WireClient, group: str) -> None:
    joined = client.member(group, instance="i1")
    request = LeaveGroupRequest(
        group_id=group,
        members=(
            MemberIdentity(member_id="who"),
            MemberIdentity(member_id="who", group_instance_id="i1"),
            MemberIdentity(member_id="", group_instance_id="i2"),
            MemberIdentity(member_id="", group_instance_id="i1"),
            MemberIdentity(member_id=joined.member_id),
        ),
    )
    answer = client.ask(LEAVE_GROUP, 5, request)
    assert answer.error_code == NONE
    assert [each.error_code for each in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


@pytest.mark.parametrize("version", versions(LEAVE_GROUP))
def test_leaving_a_group_that_is_not_there(client: WireClient, version: int) -> None:
    left = client.leave("nowhere", "who", version=version)
    codes = [left.error_code] if version < 3 else [each.error_code for each in left.members]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


# administration


@pytest.mark.parametrize("version", versions(DESCRIBE_GROUPS))
def test_describing_a_group_that_is_not_there(client: WireClient, group: str, version: int) -> None:
    described = describe(client, group, version)
    assert described.group_state == "Dead"
    if version >= 6:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == f"Group {group} not found."
    else:
        assert described.error_code == NONE


@pytest.mark.parametrize("version", versions(LIST_GROUPS))
def test_listing_groups(client: WireClient, group: str, topic: str, version: int) -> None:
    client.member(group)
    client.commit(f"{group}-simple", topic, 1)
    listed = client.ask(LIST_GROUPS, version, ListGroupsRequest()).groups
    found = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type.lower())
        for each in listed
        if each.group_id.startswith(group)
    }
    state, simple = ("Stable", "Empty") if version >= 4 else ("", "")
    kind = "classic" if version >= 5 else ""
    assert found == {
        group: ("consumer", state, kind),
        f"{group}-simple": ("", simple, kind),
    }


def test_listing_groups_by_state_and_type(client: WireClient, group: str, topic: str) -> None:
    client.member(group)
    client.commit(f"{group}-simple", topic, 1)

    def listed(**filters: tuple[str, ...]) -> set[str]:
        answer = client.ask(LIST_GROUPS, 5, ListGroupsRequest(**filters))
        assert answer.error_code == NONE
        return {each.group_id for each in answer.groups if each.group_id.startswith(group)}

    both = {group, f"{group}-simple"}
    assert listed(states_filter=("STABLE",)) == {group}
    assert listed(states_filter=("empty", "Dead")) == {f"{group}-simple"}
    assert listed(states_filter=("Nonsense",)) == set()
    assert listed(types_filter=("Classic",)) == both
    assert listed(types_filter=("consumer",)) == set()


@pytest.mark.parametrize("version", versions(DELETE_GROUPS))
def test_deleting_groups(client: WireClient, group: str, topic: str, version: int) -> None:
    simple = f"{group}-simple"
    client.member(group)
    client.commit(simple, topic, 5)
    request = DeleteGroupsRequest(groups_names=(group, simple, f"{group}-missing"))
    results = client.ask(DELETE_GROUPS, version, request).results
    assert {each.group_id: each.error_code for each in results} == {
        group: ErrorCode.NON_EMPTY_GROUP,
        simple: NONE,
        f"{group}-missing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert client.fetch(simple, topic).committed_offset == -1
