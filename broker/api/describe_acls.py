"""DescribeAcls, key 29, versions 1-3: the entries of access control.

Behaviour: returns the entries that a filter selects. MATCH selects those that are about the
resource of a name, also by a prefix or `*`. Without an authoriser it answers SECURITY_DISABLED. A
request with an element of type 0 (unknown) is nonsense, and its connection is closed.

Our own tags of version 2 and later ask which entry decides what the principal of the filter may do
to the resource (`explains`), super users and settings included.

Versions: 2 is flexible; the fields are the same.

Differs from Kafka: in nothing that is known.
"""

from typing import Final

from odradek.broker.api.acl_requests import (
    ITEMS_AN_ENTRY,
    check_filter,
    check_is_on,
    filter_of,
    principal_of,
)
from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.security.access import Authorizer
from odradek.broker.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.rights import DESCRIBE_CLUSTER, Right
from odradek.protocol.apis.acls import (
    DESCRIBE_ACLS,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError


async def describe_acls(
    context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    check_filter(request)
    authorizer = context.core.authorizer
    try:
        check_is_on(authorizer, "No Authorizer is configured on the broker")
        context.access.check_cluster(DESCRIBE_CLUSTER)
        wanted = filter_of(request)
        if request.explains:
            return _explanation(authorizer, wanted)
    except KafkaError as error:
        return DescribeAclsResponse(
            error_code=error.code, error_message=error.message, resources=()
        )
    turns = Turns()
    found: dict[ResourcePattern, list[AclDescription]] = {}
    count = 0
    for resource, acls in authorizer.table.of.items():
        await turns.take()
        if wanted.has_resource(resource):
            await turns.take(len(acls.entries))
            chosen = [_described_entry(each) for each in acls.entries if wanted.has_entry(each)]
            if chosen:
                found[resource] = chosen
                count += len(chosen)
    await context.expect((len(found) + count) * ITEMS_AN_ENTRY)
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=tuple(await turns.map(_described_resource, tuple(found.items()))),
    )


def _described_resource(
    found: tuple[ResourcePattern, list[AclDescription]],
) -> DescribeAclsResource:
    resource, entries = found
    return DescribeAclsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        acls=tuple(entries),
    )


def _described_entry(entry: AclEntry) -> AclDescription:
    return AclDescription(
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _explanation(authorizer: Authorizer, wanted: AclFilter) -> DescribeAclsResponse:
    """Return whether the principal of a filter may do something, and the entry that decides.

    Raises KafkaError if the filter leaves open who, what or to which resource.
    """
    if wanted.principal is None or wanted.name is None or wanted.host is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A decision is about one principal, host and resource."
        )
    if wanted.operation <= AclOperation.ALL or wanted.kind <= ResourceKind.ANY:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A decision is about one operation on one type of resource."
        )
    principal = principal_of(wanted.principal)
    right = Right(wanted.operation, wanted.kind)
    decision = authorizer.decide(principal, wanted.host, right, wanted.name)
    resources: tuple[DescribeAclsResource, ...] = ()
    if decision.entry is not None and decision.resource is not None:
        reason = "entry"
        found = decision.resource, [_described_entry(decision.entry)]
        resources = (_described_resource(found),)
    elif principal in authorizer.super_users:
        reason = "super.users"
    elif decision.is_about_known:
        reason = "no entry for it"
    else:
        reason = "no entry at all"
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=resources,
        is_allowed=decision.is_allowed,
        reason=reason,
    )


SERVED: Final = (ServedApi(DESCRIBE_ACLS, describe_acls, (Need(DESCRIBE_CLUSTER),)),)
