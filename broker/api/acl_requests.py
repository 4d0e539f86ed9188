"""Filters and types of the requests about ACL entries."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from odradek.broker.security.access import Authorizer
from odradek.broker.security.acls import (
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
)
from odradek.broker.security.principal import Principal, parse_principal
from odradek.protocol.apis.acls import DeleteAclsFilter, DescribeAclsRequest
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.text import shortened

Kind = TypeVar("Kind", bound=IntEnum)

UNKNOWN: Final = 0
"""The type, operation or permission of which a client says that it does not know it."""
NO_AUTHORIZER: Final = "No Authorizer is configured."
ITEMS_AN_ENTRY: Final = 2
"""The size of an entry in an answer, in items."""


def principal_of(text: str) -> Principal:
    """Return the principal of a text. Raises INVALID_REQUEST."""
    try:
        return parse_principal(text)
    except ValueError as error:
        raise invalid(f"Could not parse principal: {shortened(str(error))}.") from error


def invalid(message: str) -> KafkaError:
    """Return the error for a request that cannot be."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_is_on(authorizer: Authorizer, message: str = NO_AUTHORIZER) -> None:
    """Raise SECURITY_DISABLED where no authoriser is switched on."""
    if not authorizer.is_on:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, message)


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request. Raises INVALID_REQUEST for a type that is not known."""
    return AclFilter(
        kind=of_number(ResourceKind, wanted.resource_type_filter, "resource type"),
        pattern=of_number(PatternType, wanted.pattern_type_filter, "pattern type"),
        name=wanted.resource_name_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=of_number(AclOperation, wanted.operation, "operation"),
        permission=of_number(Permission, wanted.permission_type, "permission"),
    )


def of_number(kind: type[Kind], number: int, what: str) -> Kind:
    """Return what a number of the protocol stands for. Raises INVALID_REQUEST."""
    try:
        return kind(number)
    except ValueError:
        raise invalid(f"Unknown {what} {number}.") from None


def check_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> None:
    """Raise ProtocolError for a filter that has an element of type 0."""
    check_known(
        (
            wanted.resource_type_filter,
            wanted.pattern_type_filter,
            wanted.operation,
            wanted.permission_type,
        )
    )


def check_known(types: Iterable[int]) -> None:
    """Raise ProtocolError if one of the types is 0."""
    if UNKNOWN in types:
        raise ProtocolError("a request about ACLs has an element of type 0, which is unknown")
