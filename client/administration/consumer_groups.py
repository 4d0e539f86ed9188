"""Groups of the new protocol (KIP-848), described by ConsumerGroupDescribe."""

from collections.abc import Callable, Sequence
from typing import Final

from odradek.client.administration.group_descriptions import (
    GroupDescription,
    GroupMemberDescription,
)
from odradek.client.cluster.cluster import Cluster
from odradek.client.errors import OdradekError, Retriable
from odradek.client.types import TopicPartition
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
)
from odradek.protocol.errors import ErrorCode

CONSUMER: Final = "consumer"
CLASSIC_MEMBER: Final = 0
"""The type of a member that speaks the classic protocol; -1 is not known, which version 0 has."""

ErrorOf = Callable[[Cluster, str, int, str, str | None], OdradekError | None]
"""Returns the exception for an error code about a group; None for NONE."""


async def describe_consumer_groups(
    cluster: Cluster, node_id: int, group_ids: Sequence[str], error_of: ErrorOf
) -> dict[str, GroupDescription | OdradekError]:
    """Return those of the groups that have the new protocol, or an error other than that.

    Return nothing if the broker does not have that protocol. Raises the errors of `ask`.
    """
    connection = await cluster.connection(node_id, "coordinator")
    if CONSUMER_GROUP_DESCRIBE.key not in connection.versions:
        return {}
    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(group_ids), include_authorized_operations=False
    )
    version = connection.version_of(CONSUMER_GROUP_DESCRIBE)
    answer = await connection.request(CONSUMER_GROUP_DESCRIBE, version, request)
    found: dict[str, GroupDescription | OdradekError] = {}
    for group in answer.groups:
        if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            continue
        doing = f"describing the group {group.group_id!r}"
        error = error_of(cluster, group.group_id, group.error_code, doing, group.error_message)
        found[group.group_id] = _described(node_id, group) if error is None else error
    return found


def _described(node_id: int, group: ConsumerGroupDescribeGroup) -> GroupDescription | OdradekError:
    if min(group.group_epoch, group.assignment_epoch) < 0:
        return Retriable(f"the broker's answer gives the group {group.group_id!r} a negative epoch")
    return GroupDescription(
        group_id=group.group_id,
        coordinator_id=node_id,
        state=group.group_state,
        protocol_type=CONSUMER,
        protocol=group.assignor_name,
        members=tuple(map(_member, group.members)),
        group_type=CONSUMER,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _member(member: ConsumerGroupDescribeMember) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host.removeprefix("/"),  # as Java prints an address
        partitions=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        member_epoch=member.member_epoch,
        rack=member.rack_id,
        is_classic=member.member_type == CLASSIC_MEMBER,
    )


def _partitions(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )
