"""The answer to a member that has joined a group."""

from typing import Final

from odradek.broker.group.member_requests import Joined
from odradek.protocol.apis.group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.errors import ErrorCode

NULLABLE_PROTOCOL_FROM: Final = 7


def joined_response(joined: Joined, version: int) -> JoinGroupResponse:
    """Return the answer in the form of a version."""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        # The empty name is null where there is null, as in Kafka.
        protocol_name=joined.protocol_name or (None if version >= NULLABLE_PROTOCOL_FROM else ""),
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata,
            )
            for each in joined.members
        ),
    )
