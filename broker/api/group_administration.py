"""Groups as administrators see them: describe, list and delete.

DescribeGroups, key 15, versions 0-6; ListGroups, key 16, 0-5; DeleteGroups, key 42, 0-2.

Behaviour: a group of the new protocol (`group_consumer.py`) is listed and deleted. For
DescribeGroups it does not exist.

Versions: DescribeGroups 6 says that a group does not exist, before it was a group in state Dead.

Differs from Kafka: in nothing that is known.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Final

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.api.needs import Need
from odradek.broker.api.operations import NOT_ASKED
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.group.classic_group import ClassicGroup, Member
from odradek.broker.group.consumer.state import ConsumerState
from odradek.broker.group.state import GroupState
from odradek.broker.security.access import Access
from odradek.broker.security.rights import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP, GROUP
from odradek.protocol.apis.group import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

NOT_FOUND_FROM: Final = 6
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The type of a group of the new protocol, and the protocol type of groups of consumers."""
DESCRIBE_STEPS: Final = 4
"""The cost of one group, in steps of a turn."""


async def describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    turns = Turns()
    counts = await turns.distinct(request.groups)
    await _expect_groups(context, counts, turns)
    described = {}
    for group_id in counts:
        await turns.take(DESCRIBE_STEPS)
        described[group_id] = _describe(
            context, group_id, asks_operations=request.include_authorized_operations
        )
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
        # What is refused has one size, whatever is stored.
        if not context.access.shows(DESCRIBE_GROUP, group_id):
            continue
        with suppress(KafkaError):
            group = context.core.groups.describe_group(group_id)
            item_count += count * len(group.members)
            size_bytes += count * group.size_bytes
    await context.expect(item_count, extra_bytes=size_bytes)


def _describe(context: RequestContext, group_id: str, *, asks_operations: bool) -> DescribedGroup:
    operations = NOT_ASKED
    if asks_operations:
        operations = context.access.operations(GROUP, group_id)
    try:
        context.access.check(DESCRIBE_GROUP, group_id)
        return _to_described_group(context.core.groups.describe_group(group_id), operations)
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


def _to_described_group(group: ClassicGroup, operations: int) -> DescribedGroup:
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
    access = context.access
    if not access.shows(DESCRIBE_CLUSTER):
        # A large reservation waits or is refused: it must not depend on what is not shown.
        classic = [each for each in classic if await _is_shown(access, each.group_id, turns)]
        consumers = [each for each in consumers if await _is_shown(access, each[0], turns)]
    await context.expect(len(classic) + len(consumers))
    listed = []
    names_bytes = 0
    sees_all = access.shows(DESCRIBE_CLUSTER)
    for group in chain(map(_to_listed_group, classic), map(_listed_consumer, consumers)):
        await turns.take()
        if states and group.group_state.lower() not in states:
            continue
        if sees_all or access.shows(DESCRIBE_GROUP, group.group_id):
            listed.append(group)
            names_bytes += text_bytes(group.group_id) + text_bytes(group.protocol_type)
    await context.expect(0, extra_bytes=names_bytes)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed))


async def _is_shown(access: Access, group_id: str, turns: Turns) -> bool:
    await turns.take()
    return access.shows(DESCRIBE_GROUP, group_id)


def _to_listed_group(group: ClassicGroup) -> ListedGroup:
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
    codes = {}
    for group_id in names:
        await turns.take()
        if not context.access.allows(DELETE_GROUP, group_id):
            codes[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    own = [group_id for group_id in names if group_id not in codes]
    results = {**await context.core.groups.delete_groups(own), **codes}
    return DeleteGroupsResponse(
        results=tuple(await turns.map(_to_deletion_result, tuple(results.items())))
    )


def _to_deletion_result(result: tuple[str, ErrorCode]) -> DeletableGroupResult:
    group_id, code = result
    return DeletableGroupResult(group_id=group_id, error_code=code)


SERVED: Final = (
    ServedApi(DESCRIBE_GROUPS, describe_groups, (Need(DESCRIBE_GROUP),)),
    ServedApi(
        LIST_GROUPS,
        list_groups,
        (Need(DESCRIBE_CLUSTER, "to see all"), Need(DESCRIBE_GROUP, "to see one")),
    ),
    ServedApi(DELETE_GROUPS, delete_groups, (Need(DELETE_GROUP),)),
)
