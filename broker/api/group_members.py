"""The members of classic groups: join, sync, heartbeat and leave.

JoinGroup, key 11, versions 0-9; Heartbeat, key 12, 0-4; LeaveGroup, key 13, 0-5; SyncGroup, key 14,
0-5.

Behaviour: JoinGroup is answered when all members have joined, SyncGroup when the leader's
assignment is on disk. A lost connection does not remove a member, its session timeout does. A group
of the new protocol (`group_consumer.py`) is left by LeaveGroup, too. Members of the classic
protocol may join it, unless `group.consumer.migration.policy` is disabled
(INCONSISTENT_GROUP_PROTOCOL). Each is then answered at once, for itself; nobody leads. Their
generation is the member's epoch.

Versions: JoinGroup 0 has no rebalance timeout and uses the session's; 4 gives a new member only an
id to come back with (MEMBER_ID_REQUIRED, KIP-394); 5 knows static members (KIP-345); 9 may let a
returning static leader keep the assignment (KIP-814). LeaveGroup 3 names many members, before it
was one, whose error was the answer's. SyncGroup 5 must name protocol type and name.

Differs from Kafka:

- A new group is not stored before it has an assignment. Kafka writes an empty group for its first
  JoinGroup. Until the first assignment there is nothing that a member could come back to.
- A refused member leaves no group behind. Kafka keeps the group that it made for a JoinGroup with
  an unusable protocol, and so checks the protocol of an unknown member before its id.
- A protocol that a member names twice counts once. It has the metadata that comes first. Kafka
  counts it as that of two members, and so does not choose it.
- A group member is removed when its session time-out is over. A lost connection does not remove it.
- A group id has at most 1 KiB. It is kept in memory, and any client may send one.
- What a member sends is bounded. Ids have up to 249 characters, patterns 4,096, the topic names of
  a member 1 MiB, the members of a group 16 MiB (64 MiB in the new protocol). In these a protocol of
  a member counts 144 bytes besides its name and metadata, a topic that a pattern matches 64 bytes,
  one of which a member owns partitions 448, and each of the partitions 224. The number of groups is
  bounded, too.
"""

import math
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from odradek.broker.api.context import RequestContext
from odradek.broker.api.joined_response import NULLABLE_PROTOCOL_FROM, joined_response
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns, in_parts
from odradek.broker.group.classic_group import MemberProtocol
from odradek.broker.group.member_requests import (
    Claim,
    Joining,
    MemberIdRequiredError,
    Syncing,
    UnnamedRefusalError,
)
from odradek.broker.security.rights import DESCRIBE_TOPIC, READ_GROUP
from odradek.protocol.apis.group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

T = TypeVar("T")

MEMBER_ID_REQUIRED_FROM: Final = 4
SKIP_ASSIGNMENT_FROM: Final = 9
MANY_LEAVE_FROM: Final = 3
SYNC_NAMES_PROTOCOL_FROM: Final = 5
MEMBERS_AT_ONCE: Final = 1_000
UNNAMED: Final = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED)
"""Members that leave without a checkpoint. Each is looked for among all members of the group."""


async def join_group(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.api_version
    try:
        context.access.check(READ_GROUP, request.group_id)
        await context.core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
        protocols = await Turns().map(_protocol, request.protocols)
        joining = _joining(context, request, protocols)
        joined = await _wait_for_members(
            context, request.group_id, context.core.groups.join_group(joining)
        )
    except KafkaError as error:
        is_unnamed = error.code in UNNAMED or isinstance(error, UnnamedRefusalError)
        member_id = "" if is_unnamed else request.member_id
        # The member joins again with the id that this answer gives it (KIP-394).
        if isinstance(error, MemberIdRequiredError):
            member_id = error.member_id
        return JoinGroupResponse(
            error_code=error.code,
            protocol_name=None if version >= NULLABLE_PROTOCOL_FROM else "",
            leader="",
            member_id=member_id,
            members=(),
        )
    return joined_response(joined, version)


async def _wait_for_members(
    context: RequestContext, group_id: str, waiting: Coroutine[Any, Any, T]
) -> T:
    """Wait for the other members.

    Raises KafkaError if memory is short and the request is large, if the client has closed its
    side, or if the broker stops. The member then joins again.
    """
    with context.allowance.polling(math.inf):
        answer = await waiting
        context.access.check(READ_GROUP, group_id)  # the right may have gone meanwhile
        return answer
    raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the request was not waited for any longer")


def _protocol(asked: JoinGroupRequestProtocol) -> MemberProtocol:
    return MemberProtocol(asked.name, asked.metadata)


def _joining(
    context: RequestContext, request: JoinGroupRequest, protocols: Iterable[MemberProtocol]
) -> Joining:
    version = context.api_version
    return Joining(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=f"/{context.host}",  # as Java prints an address
        protocol_type=request.protocol_type,
        protocols=tuple(protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if version
        else request.session_timeout_ms,
        requires_known_member_id=version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_FROM,
        may_see=partial(context.access.shows, DESCRIBE_TOPIC),
        rights=context.access.rights,
    )


async def sync_group(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    # From version 5 on, a member must name the protocol that it joined with (KIP-559).
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= SYNC_NAMES_PROTOCOL_FROM and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    turns = Turns()
    assignments = {}
    for each in request.assignments:
        await turns.take()
        assignments[each.member_id] = each.assignment
    try:
        context.access.check(READ_GROUP, request.group_id)
        syncing = Syncing(
            group_id=request.group_id,
            claim=_claim(request),
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=assignments,
        )
        waiting = context.core.groups.sync_group(syncing)
        synced = await _wait_for_members(context, request.group_id, waiting)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code, assignment=b"")
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def _claim(request: SyncGroupRequest | HeartbeatRequest) -> Claim:
    return Claim(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
    )


async def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        context.access.check(READ_GROUP, request.group_id)
        context.core.groups.heartbeat(request.group_id, _claim(request))
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse(error_code=ErrorCode.NONE)


async def leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    is_many = context.api_version >= MANY_LEAVE_FROM
    members = request.members if is_many else (MemberIdentity(member_id=request.member_id),)
    turns = Turns()
    leaving = await turns.map(_leaving, members)
    codes: list[ErrorCode] = []
    try:
        context.access.check(READ_GROUP, request.group_id)
        for some in in_parts(leaving, MEMBERS_AT_ONCE):
            await turns.take(len(some))
            codes += await context.core.groups.leave_group(request.group_id, some)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not is_many:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=tuple(await turns.map(_to_leave_result, tuple(zip(members, codes, strict=True)))),
    )


def _leaving(member: MemberIdentity) -> Claim:
    return Claim(member_id=member.member_id, group_instance_id=member.group_instance_id)


def _to_leave_result(found: tuple[MemberIdentity, ErrorCode]) -> MemberResponse:
    member, code = found
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )


SERVED: Final = (
    ServedApi(JOIN_GROUP, join_group, (Need(READ_GROUP),)),
    ServedApi(HEARTBEAT, heartbeat, (Need(READ_GROUP),)),
    ServedApi(LEAVE_GROUP, leave_group, (Need(READ_GROUP),)),
    ServedApi(SYNC_GROUP, sync_group, (Need(READ_GROUP),)),
)
