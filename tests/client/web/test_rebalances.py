"""What is said about a rebalance, from two descriptions of a group."""

from typing import Any

import pytest

from odradek.client.administration.group_descriptions import (
    GroupDescription,
    GroupMemberDescription,
)
from odradek.client.types import TopicPartition
from odradek.client.web.groups import rebalance


def a_member(name: str, *partitions: int) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=f"{name}-1",
        group_instance_id=None,
        client_id=name,
        client_host="10.0.0.7",
        partitions=tuple(TopicPartition("t", number) for number in partitions),
    )


def a_group(*members: GroupMemberDescription, **others: Any) -> GroupDescription:
    fields: dict[str, Any] = {"state": "Stable", "group_epoch": 3, **others}
    return GroupDescription(
        group_id="g",
        coordinator_id=1,
        protocol_type="consumer",
        protocol="uniform",
        members=members,
        **fields,
    )


A, B, C = a_member("a", 0), a_member("b", 1), a_member("c", 2)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (a_group(A), a_group(A), None),
        (a_group(A), a_group(A, B, group_epoch=4), "b at 10.0.0.7 joined"),
        (a_group(A, B), a_group(A, group_epoch=4), "b at 10.0.0.7 left"),
        (
            a_group(A, B),
            a_group(C),
            "c at 10.0.0.7 joined; 2 members left, a at 10.0.0.7 among them",
        ),
        (
            a_group(A),
            a_group(A, group_epoch=4),
            "its topics or the subscriptions of its members have changed",
        ),
        (a_group(A), a_group(a_member("a", 0, 1)), "its partitions have moved"),
        (
            a_group(A),
            a_group(state="Empty"),
            "a at 10.0.0.7 left; it is Empty and was Stable",
        ),
    ],
)
def test_a_rebalance_is_told_with_what_has_changed(
    before: GroupDescription, after: GroupDescription, said: str | None
) -> None:
    assert rebalance(before, after) == said
