"""The members of groups: join, sync, heartbeat, leave, describe, list and delete.

JoinGroup, key 11, versions 0-9; Heartbeat, key 12, 0-4; LeaveGroup, key 13, 0-5; SyncGroup, key 14,
0-5; DescribeGroups, key 15, 0-6; ListGroups, key 16, 0-5; DeleteGroups, key 42, 0-2.

Behaviour: JoinGroup is answered when all members have joined, SyncGroup when the leader's
assignment is on disk. A lost connection does not remove a member, its session timeout does. A group
of the new protocol (`group_consumer.py`) is listed, deleted, and left by LeaveGroup; for
DescribeGroups it does not exist. Members of the classic protocol may join it, unless
`group.consumer.migration.policy` is disabled (INCONSISTENT_GROUP_PROTOCOL). Each is then answered
at once, for itself; nobody leads. Their generation is the member's epoch.

Versions: JoinGroup 0 has no rebalance timeout and uses the session's; 4 gives a new member only an
id to come back with (MEMBER_ID_REQUIRED, KIP-394); 5 knows static members (KIP-345); 9 may let a
returning static leader keep the assignment (KIP-814). LeaveGroup 3 names many members, before it
was one, whose error was the answer's. SyncGroup 5 must name protocol type and name. DescribeGroups
6 says that a group does not exist, before it was a group in state Dead.

Differs from Kafka: a new group is not stored before it has an assignment; member metadata, group
size and number of groups are bounded (`broker/group/limits.py`).
"""

import math
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeVar

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.api.operations import GROUP_OPERATIONS, NOT_ASKED
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.members import ClassicGroup, Member, MemberProtocol
from odradek.broker.group.requests import (
    Claim,
    Joined,
    Joining,
    MemberIdRequiredError,
    Syncing,
    UnnamedRefusalError,
)
from odradek.broker.group.state import GroupState
from odradek.broker.turns import Turns, in_parts
from odradek.protocol.apis.group import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC

T = TypeVar("T")

MEMBER_ID_REQUIRED_FROM: Final = 4
NULLABLE_PROTOCOL_FROM: Final = 7
SKIP_ASSIGNMENT_FROM: Final = 9
MANY_LEAVE_FROM: Final = 3
SYNC_NAMES_PROTOCOL_FROM: Final = 5
NOT_FOUND_FROM: Final = 6
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The type of a group of the new protocol, and the protocol type of groups of consumers."""
MEMBERS_AT_ONCE: Final = 1_000
"""Members that leave without a checkpoint. Each is looked for among all members of the group."""
DESCRIBE_STEPS: Final = 4
"""The cost of one group, in steps of a turn."""


async def join_group(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.api_version
    try:
        await context.core.cluster.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
        protocols = await Turns().map(_protocol, request.protocols)
        joined = await _polled(
            context, context.core.groups.join_group(_joining(context, request, protocols))
        )
    except KafkaError as error:
        member_id = request.member_id
        # The member joins again with the id that this answer gives it (KIP-394).
        if isinstance(error, MemberIdRequiredError):
            member_id = error.member_id
        elif error.code is ErrorCode.GROUP_MAX_SIZE_REACHED or isinstance(
            error, UnnamedRefusalError
        ):
            member_id = ""
        return JoinGroupResponse(
            error_code=error.code,
            protocol_name=None if version >= NULLABLE_PROTOCOL_FROM else "",
            leader="",
            member_id=member_id,
            members=(),
        )
    return _joined_response(joined, version)


async def _polled(context: RequestContext, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait for the other members.

    Raises KafkaError if memory is short and the request is large, if the client has closed its
    side, or if the broker stops. The member then joins again.
    """
    with context.allowance.polling(math.inf):
        return await waiting
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
    )


def _joined_response(joined: Joined, version: int) -> JoinGroupResponse:
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
        syncing = Syncing(
            group_id=request.group_id,
            claim=_claim(request),
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=assignments,
        )
        synced = await _polled(context, context.core.groups.sync_group(syncing))
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
        for some in in_parts(leaving, MEMBERS_AT_ONCE):
            await turns.take(len(some))
            codes += await context.core.groups.leave_group(request.group_id, some)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not is_many:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=tuple(await turns.map(_left, tuple(zip(members, codes, strict=True)))),
    )


def _leaving(member: MemberIdentity) -> Claim:
    return Claim(member_id=member.member_id, group_instance_id=member.group_instance_id)


def _left(found: tuple[MemberIdentity, ErrorCode]) -> MemberResponse:
    member, code = found
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )


async def describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    turns = Turns()
    counts = await turns.distinct(request.groups)
    await _expect_groups(context, counts, turns)
    described = {}
    for group_id in counts:
        await turns.take(DESCRIBE_STEPS)
        described[group_id] = _describe(context, group_id, operations)
        await turns.take(len(described[group_id].members))
    return DescribeGroupsResponse(
        groups=tuple(await turns.map(described.__getitem__, request.groups))
    )


async def _expect_groups(context: RequestContext, counts: Mapping[str, int], turns: Turns) -> None:
    """Reserve memory for `counts` descriptions of each group."""
    item_count = size_bytes = 0
    for group_id, count in counts.items():
        await turns.take(DESCRIBE_STEPS)
        item_count += count
        with suppress(KafkaError):
            group = context.core.groups.describe_group(group_id)
            item_count += count * len(group.members)
            size_bytes += count * group.size_bytes
    await context.expect(item_count, extra_bytes=size_bytes)


def _describe(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
    try:
        return _described(context.core.groups.describe_group(group_id), operations)
    except KafkaError as error:
        is_missing = error.code is ErrorCode.GROUP_ID_NOT_FOUND
        is_silent = is_missing and context.api_version < NOT_FOUND_FROM
        return DescribedGroup(
            error_code=ErrorCode.NONE if is_silent else error.code,
            error_message=error.message,
            group_id=group_id,
            group_state=GroupState.DEAD.value if is_missing else "",
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=operations if is_silent else NOT_ASKED,
        )


def _described(group: ClassicGroup, operations: int) -> DescribedGroup:
    """Describe a group. Its protocol and members' metadata are only shown while it is stable."""
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=tuple(_described_member(each, protocol) for each in group.members.values()),
        authorized_operations=operations,
    )


def _described_member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol),
        member_assignment=member.assignment,
    )


async def list_groups(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        groups = context.core.groups.list_groups()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code, groups=())
    turns = Turns()
    states = frozenset(await turns.map(str.lower, request.states_filter))
    types = frozenset(await turns.map(str.lower, request.types_filter))
    classic = groups if not types or CLASSIC in types else []
    consumers = context.core.groups.consumers.list_groups()
    if types and CONSUMER not in types:
        consumers = []
    await context.expect(len(classic) + len(consumers))
    listed = []
    names_bytes = 0
    for group in chain(map(_listed, classic), map(_listed_consumer, consumers)):
        await turns.take()
        if not states or group.group_state.lower() in states:
            listed.append(group)
            names_bytes += text_bytes(group.group_id) + text_bytes(group.protocol_type)
    await context.expect(0, extra_bytes=names_bytes)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed))


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


def _listed_consumer(group: tuple[str, ConsumerState]) -> ListedGroup:
    group_id, state = group
    return ListedGroup(
        group_id=group_id,
        protocol_type=CONSUMER,
        group_state=state.value,
        group_type=CONSUMER,
    )


async def delete_groups(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    turns = Turns()
    names = await turns.distinct(request.groups_names)
    results = await context.core.groups.delete_groups(names)
    return DeleteGroupsResponse(results=tuple(await turns.map(_deleted, tuple(results.items()))))


def _deleted(result: tuple[str, ErrorCode]) -> DeletableGroupResult:
    group_id, code = result
    return DeletableGroupResult(group_id=group_id, error_code=code)
