"""Membership of classic consumer groups.

JoinGroup (key 11), versions 0-9, flexible from 6. Versions 0 and 1 are for librdkafka before 2.11,
which assumes a broker without GSSAPI if they are missing (KAFKA-19444).

- 1: a rebalance timeout besides the session timeout.
- 4: a member that joins without a member id gets an id with MEMBER_ID_REQUIRED, and joins again.
- 5: static members. 7: the protocol type in the response. 8: the reason for joining.
- 9: the response may ask the leader to skip the assignment.

SyncGroup (key 14), versions 0-5, flexible from 4. 3: static members. 5: protocol type and name.

Heartbeat (key 12), versions 0-4, flexible from 4. 3: static members.

LeaveGroup (key 13), versions 0-5, flexible from 4. 3: several members in a request. 5: the reason.

DescribeGroups (key 15), versions 0-6, flexible from 5. 3: the client's authorized operations.
4: static members. 6: GROUP_ID_NOT_FOUND with a message, instead of a group in state Dead.

ListGroups (key 16), versions 0-5, flexible from 3. 4: a filter by states. 5: a filter by types.

DeleteGroups (key 42), versions 0-2, flexible from 2.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, blob, boolean, int16, int32, message, string


@message
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = blob()


@message
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable=5)
    protocol_type: str = string()
    protocols: tuple[JoinGroupRequestProtocol, ...] = array(JoinGroupRequestProtocol)
    reason: str | None = string(default=None, since=8, nullable=8)


@message
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable=5)
    metadata: bytes = blob()


@message
class JoinGroupResponse:
    throttle_time_ms: int = int32(default=0, since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(default=None, since=7, nullable=7)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(default=False, since=9)
    member_id: str = string()
    members: tuple[JoinGroupResponseMember, ...] = array(JoinGroupResponseMember)


@message
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = blob()


@message
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    protocol_type: str | None = string(default=None, since=5, nullable=5)
    protocol_name: str | None = string(default=None, since=5, nullable=5)
    assignments: tuple[SyncGroupRequestAssignment, ...] = array(SyncGroupRequestAssignment)


@message
class SyncGroupResponse:
    throttle_time_ms: int = int32(default=0, since=1)
    error_code: int = int16()
    protocol_type: str | None = string(default=None, since=5, nullable=5)
    protocol_name: str | None = string(default=None, since=5, nullable=5)
    assignment: bytes = blob()


@message
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)


@message
class HeartbeatResponse:
    throttle_time_ms: int = int32(default=0, since=1)
    error_code: int = int16()


@message
class MemberIdentity:
    member_id: str = string(since=3)
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    reason: str | None = string(default=None, since=5, nullable=5)


@message
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string(default="", until=2)
    members: tuple[MemberIdentity, ...] = array(MemberIdentity, default=(), since=3)


@message
class MemberResponse:
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3)
    error_code: int = int16(since=3)


@message
class LeaveGroupResponse:
    throttle_time_ms: int = int32(default=0, since=1)
    error_code: int = int16()
    members: tuple[MemberResponse, ...] = array(MemberResponse, default=(), since=3)


@message
class DescribeGroupsRequest:
    groups: tuple[str, ...] = array("string")
    include_authorized_operations: bool = boolean(default=False, since=3)


@message
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=4, nullable=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


@message
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(default=None, since=6, nullable=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: tuple[DescribedGroupMember, ...] = array(DescribedGroupMember)
    authorized_operations: int = int32(default=-(2**31), since=3)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(default=0, since=1)
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup)


@message
class ListGroupsRequest:
    states_filter: tuple[str, ...] = array("string", default=(), since=4)
    types_filter: tuple[str, ...] = array("string", default=(), since=5)


@message
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(default="", since=4)
    group_type: str = string(default="", since=5)


@message
class ListGroupsResponse:
    throttle_time_ms: int = int32(default=0, since=1)
    error_code: int = int16()
    groups: tuple[ListedGroup, ...] = array(ListedGroup)


@message
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = array("string")


@message
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = int32(default=0)
    results: tuple[DeletableGroupResult, ...] = array(DeletableGroupResult)


JOIN_GROUP: Final = Api(
    key=11,
    name="JoinGroup",
    min_version=0,
    max_version=9,
    flexible_from=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)
SYNC_GROUP: Final = Api(
    key=14,
    name="SyncGroup",
    min_version=0,
    max_version=5,
    flexible_from=4,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
)
HEARTBEAT: Final = Api(
    key=12,
    name="Heartbeat",
    min_version=0,
    max_version=4,
    flexible_from=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)
LEAVE_GROUP: Final = Api(
    key=13,
    name="LeaveGroup",
    min_version=0,
    max_version=5,
    flexible_from=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)
DESCRIBE_GROUPS: Final = Api(
    key=15,
    name="DescribeGroups",
    min_version=0,
    max_version=6,
    flexible_from=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)
LIST_GROUPS: Final = Api(
    key=16,
    name="ListGroups",
    min_version=0,
    max_version=5,
    flexible_from=3,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
)
DELETE_GROUPS: Final = Api(
    key=42,
    name="DeleteGroups",
    min_version=0,
    max_version=2,
    flexible_from=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
