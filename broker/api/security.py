"""The security of a broker that has none.

DescribeAcls, key 29, CreateAcls, key 30, DeleteAcls, key 31, versions 1-3; DescribeDelegationToken,
key 41, versions 1-3; DescribeUserScramCredentials, key 50, version 0.

Behaviour: those of ACLs answer SECURITY_DISABLED, as Kafka does without an authoriser: clients and
tools then go on without ACLs. A request of ACLs with an element of type 0 (unknown) is nonsense,
and its connection is closed. DescribeDelegationToken answers DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
as always where clients are not authenticated. No user has SCRAM credentials, so
DescribeUserScramCredentials answers RESOURCE_NOT_FOUND for each, and DUPLICATE_RESOURCE, once, for
one that is named several times.

Versions: DescribeDelegationToken 3 has who asked for a token.

Differs from Kafka:

- There are no ACLs, tokens and credentials. DescribeAcls, CreateAcls and DeleteAcls answer
  SECURITY_DISABLED, DescribeDelegationToken DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
  DescribeUserScramCredentials RESOURCE_NOT_FOUND for each user, all as a Kafka without security.
  What changes tokens and credentials is not served.
"""

from collections.abc import Iterable
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.protocol.apis.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from odradek.protocol.apis.credentials import (
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.text import shortened

ITEMS_A_USER: Final = 2
"""The size of the answer for a user with its sentence, in items of an answer."""
UNKNOWN: Final = 0
"""The type, operation or permission of which a client says that it does not know it."""


async def describe_acls(
    _context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    _check_filter(request)
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
        resources=(),
    )


async def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    turns = Turns()
    for creation in request.creations:
        await turns.take()
        _check(_types_of(creation))
    await context.expect(len(request.creations))
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=(refused,) * len(request.creations))


async def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    turns = Turns()
    for each in request.filters:
        await turns.take()
        _check_filter(each)
    await context.expect(len(request.filters))
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured.",
        matching_acls=(),
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))


def _check_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> None:
    _check(
        (
            wanted.resource_type_filter,
            wanted.pattern_type_filter,
            wanted.operation,
            wanted.permission_type,
        )
    )


def _types_of(creation: AclCreation) -> tuple[int, ...]:
    return (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )


def _check(types: Iterable[int]) -> None:
    if UNKNOWN in types:
        raise ProtocolError("a request about ACLs has an element of type 0, which is unknown")


async def describe_delegation_token(
    _context: RequestContext, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=()
    )


async def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    turns = Turns()
    counts = await turns.distinct(user.name for user in request.users or ())
    await context.expect(len(counts) * ITEMS_A_USER)
    results = []
    for name, count in counts.items():
        await turns.take()
        if count == 1:
            code = ErrorCode.RESOURCE_NOT_FOUND
            message = "Attempt to describe a user credential that does not exist"
        else:
            code = ErrorCode.DUPLICATE_RESOURCE
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request"
            )
        results.append(
            DescribeUserScramCredentialsResult(
                user=name,
                error_code=code,
                error_message=f"{message}: {shortened(name)}",
                credential_infos=(),
            )
        )
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message="", results=tuple(results)
    )


SERVED: Final = (
    ServedApi(DESCRIBE_ACLS, describe_acls),
    ServedApi(CREATE_ACLS, create_acls),
    ServedApi(DELETE_ACLS, delete_acls),
    ServedApi(DESCRIBE_DELEGATION_TOKEN, describe_delegation_token),
    ServedApi(DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials),
)
