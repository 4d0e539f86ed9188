"""DescribeAcls (key 29), CreateAcls (30) and DeleteAcls (31), versions 1-3, flexible from 2.

The versions have the same fields, but for our own tags. A type of 1 stands for any, 0 for one that
is not known.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int8, int16, int32, message, string

LITERAL: Final = 3


@message
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()
    explains: bool = boolean(default=False, since=2, tag=10_000)
    """Odradek's: ask which entry decides what the principal may do to the resource."""


@message
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    acls: tuple[AclDescription, ...] = array(AclDescription)


@message
class DescribeAclsResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resources: tuple[DescribeAclsResource, ...] = array(DescribeAclsResource)
    is_allowed: bool = boolean(default=False, since=2, tag=10_000)
    """Odradek's: the decision, where one is asked for."""
    reason: str | None = string(default=None, nullable=2, since=2, tag=10_001)
    """What decides: `entry` (the only one in `resources`), `super.users`, `no entry for it`, or
    `no entry at all`. None where nothing is asked."""


@message
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class CreateAclsRequest:
    creations: tuple[AclCreation, ...] = array(AclCreation)


@message
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message
class CreateAclsResponse:
    throttle_time_ms: int = int32(default=0)
    results: tuple[AclCreationResult, ...] = array(AclCreationResult)


@message
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


@message
class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...] = array(DeleteAclsFilter)


@message
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = array(DeleteAclsMatchingAcl)


@message
class DeleteAclsResponse:
    throttle_time_ms: int = int32(default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = array(DeleteAclsFilterResult)


DESCRIBE_ACLS: Final = Api(
    key=29,
    name="DescribeAcls",
    min_version=1,
    max_version=3,
    flexible_from=2,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
)
CREATE_ACLS: Final = Api(
    key=30,
    name="CreateAcls",
    min_version=1,
    max_version=3,
    flexible_from=2,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
)
DELETE_ACLS: Final = Api(
    key=31,
    name="DeleteAcls",
    min_version=1,
    max_version=3,
    flexible_from=2,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
)
