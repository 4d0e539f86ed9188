"""SCRAM credentials as they are described, and delegation tokens, of which there are none.

DescribeDelegationToken, key 41, versions 1-3; DescribeUserScramCredentials, key 50, version 0.

Behaviour: DescribeDelegationToken answers DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as always where
they are switched off. DescribeUserScramCredentials returns the mechanisms of users and their
iterations, of all users for null. It answers RESOURCE_NOT_FOUND for a user without credentials, and
DUPLICATE_RESOURCE, once, for one that is named several times (`scram_credentials.py` changes them).

Versions: DescribeDelegationToken 3 has who asked for a token.

Differs from Kafka:

- There are no delegation tokens. DescribeDelegationToken answers
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as a Kafka that has them switched off. What changes tokens
  is not served.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import NOTHING, Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.user_keys import Credentials
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import DESCRIBE_CLUSTER
from odradek.protocol.apis.credentials import (
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    CredentialInfo,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.text import shortened

ITEMS_A_USER: Final = 2
"""The size of the answer for a user with its sentence, in items of an answer."""


async def describe_delegation_token(
    _context: RequestContext, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=()
    )


async def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER)
    except KafkaError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=error.message, results=()
        )
    turns = Turns()
    users = context.core.users.users
    if request.users is None:
        counts = await turns.distinct(users)
    else:
        counts = await turns.distinct(user.name for user in request.users)
    await context.expect(len(counts) * ITEMS_A_USER)
    results = []
    for name, count in counts.items():
        await turns.take()
        if count == 1 and name in users:
            results.append(_to_description(name, users[name]))
            continue
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


def _to_description(name: str, credentials: Credentials) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=tuple(
            CredentialInfo(mechanism=mechanism, iterations=each.iterations)
            for mechanism, each in sorted(credentials.items())
        ),
    )


SERVED: Final = (
    ServedApi(DESCRIBE_DELEGATION_TOKEN, describe_delegation_token, NOTHING),
    ServedApi(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        describe_user_scram_credentials,
        (Need(DESCRIBE_CLUSTER),),
    ),
)
