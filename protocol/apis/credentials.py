"""The tokens and credentials of users.

DescribeDelegationToken (key 41), versions 1-3, flexible from 2; 3 says who has asked for a token.
DescribeUserScramCredentials (key 50), version 0, flexible.
AlterUserScramCredentials (key 51), version 0, flexible: it brings the salted password.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, blob, int8, int16, int32, int64, message, string


@message
class DescribeDelegationTokenOwner:
    principal_type: str = string()
    principal_name: str = string()


@message
class DescribeDelegationTokenRequest:
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = array(
        DescribeDelegationTokenOwner, nullable=0
    )


@message
class DescribedDelegationTokenRenewer:
    principal_type: str = string()
    principal_name: str = string()


@message
class DescribedDelegationToken:
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3, default="")
    token_requester_principal_name: str = string(since=3, default="")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = blob()
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = array(DescribedDelegationTokenRenewer)


@message
class DescribeDelegationTokenResponse:
    error_code: int = int16()
    tokens: tuple[DescribedDelegationToken, ...] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32(default=0)


@message
class UserName:
    name: str = string()


@message
class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None = array(UserName, nullable=0)


@message
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@message
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo)


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(
        DescribeUserScramCredentialsResult
    )


@message
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@message
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = blob()
    salted_password: bytes = blob(is_secret=True)


@message
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...] = array(ScramCredentialDeletion)
    upsertions: tuple[ScramCredentialUpsertion, ...] = array(ScramCredentialUpsertion)


@message
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32(default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = array(AlterUserScramCredentialsResult)


ALTER_USER_SCRAM_CREDENTIALS: Final = Api(
    key=51,
    name="AlterUserScramCredentials",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
)
DESCRIBE_DELEGATION_TOKEN: Final = Api(
    key=41,
    name="DescribeDelegationToken",
    min_version=1,
    max_version=3,
    flexible_from=2,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
)
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Api(
    key=50,
    name="DescribeUserScramCredentials",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
)
