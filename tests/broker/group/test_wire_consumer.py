"""The APIs of consumer groups (KIP-848) over a socket, on our broker and (--peers) on Kafka."""

from typing import Any

import pytest

from odradek.protocol.apis.group import (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.group.wire import WireClient, versions

NONE = ErrorCode.NONE


def describe(client: WireClient, *groups: str, version: int = 1) -> tuple[Any, ...]:
    request = ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
    described: tuple[Any, ...] = client.ask(CONSUMER_GROUP_DESCRIBE, version, request).groups
    return described


def assigned(answer: Any) -> list[list[int]] | None:
    """Return the partitions of each topic in an answer; None if it has no assignment."""
    if answer.assignment is None:
        return None
    return [sorted(each.partitions) for each in answer.assignment.topic_partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_lives_its_life_in_every_version(
    client: WireClient, group: str, topic: str, version: int
) -> None:
    joined = client.heartbeat_of_consumer(group, "m", topics=[topic], version=version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (NONE, "m", 2)
    assert joined.heartbeat_interval_ms == 300
    while not assigned(joined):  # a coordinator of Kafka may learn of the topic a little later
        joined = client.heartbeat_of_consumer(
            group, "m", joined.member_epoch, topics=[topic], version=version
        )
    epoch = joined.member_epoch
    assert assigned(joined) == [[0, 1]]
    (described,) = describe(client, group, version=version)
    assert (described.error_code, described.group_state) == (NONE, "Stable")
    assert (described.group_epoch, described.assignment_epoch) == (epoch, epoch)
    assert described.assignor_name == "uniform"
    (member,) = described.members
    assert (member.client_id, member.client_host) == ("wire", "/127.0.0.1")
    assert member.subscribed_topic_names == (topic,)
    for assignment in (member.assignment, member.target_assignment):
        (owned,) = assignment.topic_partitions
        assert (owned.topic_name, sorted(owned.partitions)) == (topic, [0, 1])
    assert member.member_type == (1 if version >= 1 else -1)
    idle = client.heartbeat_of_consumer(group, "m", epoch, version=version, rebalance_timeout_ms=-1)
    assert (idle.error_code, idle.member_epoch, idle.assignment) == (NONE, epoch, None)
    left = client.heartbeat_of_consumer(group, "m", -1, version=version)
    assert (left.error_code, left.member_id, left.member_epoch) == (NONE, "m", -1)
    assert (left.heartbeat_interval_ms, left.assignment) == (0, None)
    (described,) = describe(client, group, version=version)
    assert (described.group_state, described.members) == ("Empty", ())


def test_a_group_that_is_named_twice_is_answered_for_each_member(
    client: WireClient, group: str, topic: str
) -> None:
    """The second answer was the first one again, whatever the epoch of the second member."""
    joined = client.heartbeat_of_consumer(group, "m", topics=[topic])
    named = tuple(
        OffsetFetchRequestGroup(group_id=group, member_id="m", member_epoch=epoch, topics=None)
        for epoch in (joined.member_epoch, joined.member_epoch + 1, joined.member_epoch)
    )
    answers = client.ask(OFFSET_FETCH, 9, OffsetFetchRequest(groups=named)).groups
    codes = [answer.error_code for answer in answers]
    assert codes == [NONE, ErrorCode.STALE_MEMBER_EPOCH, NONE]


def test_a_member_without_an_id_gets_one_in_version_0_only(
    client: WireClient, group: str, topic: str
) -> None:
    joined = client.heartbeat_of_consumer(group, "", topics=[topic], version=0)
    assert joined.error_code == NONE
    assert len(joined.member_id) == 22
    refused = client.heartbeat_of_consumer(group, "", topics=[topic], version=1)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "MemberId can't be empty.",
    )


REFUSALS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "no time-out": ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    "no subscription": ({"topics": None}, ErrorCode.INVALID_REQUEST),
    "an empty instance id": ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    "an empty rack": ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    "an unknown epoch": ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
    "away without an instance id": ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
    "an unknown assignor": ({"server_assignor": "x"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    "a pattern that is none": ({"regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "an epoch of no member": ({"member": "x", "epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    "no member leaves": ({"member": "x", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    "an epoch of the future": ({"epoch": 7}, ErrorCode.FENCED_MEMBER_EPOCH),
    "another group": ({"group": "-other", "epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_kafkas_code_and_a_message(
    client: WireClient, group: str, topic: str, name: str
) -> None:
    asked, code = REFUSALS[name]
    changes = {"topics": [topic], **asked}
    client.heartbeat_of_consumer(group, "m", topics=[topic])
    other = group + changes.pop("group", "")
    client.coordinator_of(other)
    refused = client.heartbeat_of_consumer(other, changes.pop("member", "m"), **changes)
    assert refused.error_code == code
    assert refused.error_message
    assert (refused.member_id, refused.member_epoch, refused.assignment) == (None, 0, None)


def test_a_group_that_is_no_consumer_group_is_not_described(
    client: WireClient, group: str, topic: str
) -> None:
    client.coordinator_of(f"{group}-classic")
    client.member(f"{group}-classic")
    described = describe(client, f"{group}-no", f"{group}-classic", "")
    by_id = {each.group_id: each for each in described}
    missing, classic, nameless = (by_id[name] for name in (f"{group}-no", f"{group}-classic", ""))
    assert missing.error_code == classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == f"Group {group}-classic is not a consumer group."
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_consumer_group_is_no_classic_group(client: WireClient, group: str, topic: str) -> None:
    client.heartbeat_of_consumer(group, "m", topics=[topic])
    (described,) = client.ask(DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=(group,))).groups
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == f"Group {group} is not a classic group."


@pytest.fixture
def listed(client: WireClient, group: str, topic: str) -> Any:
    client.heartbeat_of_consumer(group, "m", topics=[topic])

    def ask(states: tuple[str, ...], types: tuple[str, ...]) -> list[Any]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        groups = client.ask(LIST_GROUPS, 5, request).groups
        return [each for each in groups if each.group_id == group]

    return ask


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        ((), (), True),
        (("stable",), ("Consumer",), True),
        (("Assigning", "Reconciling"), (), False),
        ((), ("classic",), False),
        (("Empty",), ("consumer",), False),
    ],
)
def test_consumer_groups_are_listed_by_state_and_type(
    listed: Any, states: tuple[str, ...], types: tuple[str, ...], is_listed: bool
) -> None:
    found = listed(states, types)
    assert len(found) == is_listed
    for each in found:
        assert (each.protocol_type, each.group_type) == ("consumer", "consumer")
        assert each.group_state == "Stable"


@pytest.mark.parametrize("version", [8, 9])
def test_offsets_are_stored_with_the_members_epoch(
    client: WireClient, group: str, topic: str, version: int
) -> None:
    client.heartbeat_of_consumer(group, "m", topics=[topic])
    who: Any = {"member_id": "m", "generation_id_or_member_epoch": 2}
    code = client.commit(group, topic, 7, version=version, **who)
    assert code == (NONE if version >= 9 else ErrorCode.UNSUPPORTED_VERSION)
    if version >= 9:
        stale: Any = {"member_id": "m", "generation_id_or_member_epoch": 3}
        assert client.commit(group, topic, 8, version=9, **stale) == ErrorCode.STALE_MEMBER_EPOCH


def test_the_versions_of_the_apis() -> None:
    assert versions(CONSUMER_GROUP_DESCRIBE) == range(2)
