"""The entries of access control: CreateAcls and DeleteAcls (`describe_acls.py` has DescribeAcls).

CreateAcls, key 30, DeleteAcls, key 31, versions 1-3.

Behaviour: an entry allows or denies a principal at a host an operation on a resource, or on all
whose names begin with a prefix. CreateAcls adds each entry for itself; one that is there already
succeeds. DeleteAcls removes what its filters select. The entries are kept in the metadata store.
When the answer is sent, this broker goes by the new ones; the others do when their watch of the
store has brought them. Without an authoriser both answer SECURITY_DISABLED, as Kafka does: clients
and tools then go on without ACLs. A request with an element of type 0 (unknown) is nonsense, and
its connection is closed.

Versions: 2 is flexible; the fields are the same.

Differs from Kafka:

- A pattern of type ANY or MATCH cannot be created. CreateAcls answers INVALID_REQUEST, and Kafka
  UNKNOWN_SERVER_ERROR.
- An entry for `*` is about every name. For Kafka it is not about a name that begins with a star,
  such as the group `*g`.
- The number of ACL entries is bounded. There are at most 100,000 (POLICY_VIOLATION), names have up
  to 4,096 characters, and the entries of one resource pattern 256 KiB.
- ACLs wait for every broker. While a broker of a version without ACLs is registered, or away and
  not forgotten, CreateAcls answers UNSUPPORTED_VERSION: that broker would leave open what others
  lock.
- A broker that has lost the metadata store allows nothing. It closes connections, as if it were
  down, until its session with the store goes on. A broker of Kafka goes by the entries that it has.
"""

from typing import Final

from odradek.broker.api.acl_requests import (
    ITEMS_AN_ENTRY,
    check_filter,
    check_is_on,
    check_known,
    filter_of,
    invalid,
    of_number,
    principal_of,
)
from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.acls import Binding
from odradek.broker.environment.turns import Turns
from odradek.broker.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.rights import ALTER_CLUSTER
from odradek.protocol.apis.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError

TEXT_MAX: Final = 4_096
"""The most characters of a resource's name, a principal or a host."""
FILTER_STEPS: Final = 5


async def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    turns = Turns()
    for creation in request.creations:
        await turns.take()
        check_known(_types_of(creation))
    await context.expect(len(request.creations))
    errors: list[KafkaError | None] = [None] * len(request.creations)
    try:
        check_is_on(context.core.authorizer)
        context.access.check_cluster(ALTER_CLUSTER)
        bindings = []
        for number, creation in enumerate(request.creations):
            await turns.take()
            try:
                bindings.append(_binding_of(creation))
            except KafkaError as error:
                errors[number] = error
        if bindings:
            await context.core.acls.create(bindings)
    except KafkaError as error:
        errors = [each or error for each in errors]
    return CreateAclsResponse(results=tuple(await turns.map(_creation_result, errors)))


def _creation_result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _binding_of(creation: AclCreation) -> Binding:
    """Return the entry that a request adds. Raises INVALID_REQUEST for one that cannot be."""
    kind, name = (
        of_number(ResourceKind, creation.resource_type, "resource type"),
        creation.resource_name,
    )
    if kind is ResourceKind.CLUSTER and name != CLUSTER_NAME:
        raise invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise invalid("Invalid empty resource name")
    pattern = of_number(PatternType, creation.resource_pattern_type, "pattern type")
    if kind is ResourceKind.ANY or pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise invalid("Invalid patternType or resourceType: an entry is about named resources.")
    operation = of_number(AclOperation, creation.operation, "operation")
    permission = of_number(Permission, creation.permission_type, "permission")
    if operation is AclOperation.ANY or permission is Permission.ANY:
        raise invalid("Invalid operation or permissionType: ANY stands in filters only.")
    if max(map(len, (name, creation.principal, creation.host))) > TEXT_MAX:
        raise invalid(f"A name, a principal or a host has more than {TEXT_MAX} characters.")
    if not creation.host:
        raise invalid("Invalid empty host. It is * for every host.")
    principal_of(creation.principal)
    entry = AclEntry(creation.principal, creation.host, operation, permission)
    return ResourcePattern(kind, pattern, name), entry


async def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    turns = Turns()
    for each in request.filters:
        await turns.take()
        check_filter(each)
    await context.expect(len(request.filters))
    try:
        check_is_on(context.core.authorizer)
        context.access.check_cluster(ALTER_CLUSTER)
        wanted = []
        for each in request.filters:
            await turns.take(FILTER_STEPS)
            wanted.append(filter_of(each))
        deleted = await context.core.acls.delete(wanted)
    except KafkaError as error:
        refused = DeleteAclsFilterResult(
            error_code=error.code, error_message=error.message, matching_acls=()
        )
        return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
    await context.expect(sum(map(len, deleted)) * ITEMS_AN_ENTRY)
    results = []
    for found in deleted:
        await turns.take()
        results.append(
            DeleteAclsFilterResult(
                error_code=ErrorCode.NONE,
                error_message=None,
                matching_acls=tuple(await turns.map(_to_matching, found)),
            )
        )
    return DeleteAclsResponse(filter_results=tuple(results))


def _to_matching(found: Binding) -> DeleteAclsMatchingAcl:
    resource, entry = found
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.kind,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _types_of(creation: AclCreation) -> tuple[int, ...]:
    return (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )


SERVED: Final = (
    ServedApi(CREATE_ACLS, create_acls, (Need(ALTER_CLUSTER),)),
    ServedApi(DELETE_ACLS, delete_acls, (Need(ALTER_CLUSTER),)),
)
