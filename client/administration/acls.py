"""Access control: the part of `Admin` that adds, lists and removes ACL entries, and explains them.

Words stand for Kafka's numbers: a resource is of type `"topic"`, `"group"`, `"transactional_id"` or
`"cluster"`, an operation is `"read"`, `"alter_configs"` or `"all"`, say.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import Refused, Retriable
from odradek.protocol.apis.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
)
from odradek.protocol.errors import ErrorCode

ResourceWord = Literal["topic", "group", "cluster", "transactional_id", "delegation_token", "user"]
PatternWord = Literal["literal", "prefixed"]
PermissionWord = Literal["allow", "deny"]
OperationWord = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]

ANY: Final = 1
"""The number that stands for any type, pattern, operation or permission in a filter."""
RESOURCES: Final[Mapping[str, int]] = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional_id": 5,
    "delegation_token": 6,
    "user": 7,
}
PATTERNS: Final[Mapping[str, int]] = {"any": ANY, "match": 2, "literal": 3, "prefixed": 4}
PERMISSIONS: Final[Mapping[str, int]] = {"deny": 2, "allow": 3}
OPERATIONS: Final[Mapping[str, int]] = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type `"cluster"`."""
DISABLED: Final = "the broker has no access control: it was started without authorizer.class.name"


class Acl(NamedTuple):
    """One entry: a principal at a host may do, or may not, an operation on a resource.

    `principal` is `"User:alice"`, or `"User:*"` for everybody; `host` an address, or `"*"`. With
    the pattern `"prefixed"` the entry is about all resources whose names begin with `name`, with
    `"literal"` and the name `"*"` about all of the type.
    """

    resource: ResourceWord
    name: str
    principal: str
    operation: OperationWord
    permission: PermissionWord = "allow"
    host: str = "*"
    pattern: PatternWord = "literal"


class AccessDecision(NamedTuple):
    """The answer to "may it?", and what decides.

    `reason` is `"entry"` (the entry is `acl`), `"super.users"`, `"no entry for it"` (there are
    entries about the resource), or `"no entry at all"`, for which
    `allow.everyone.if.no.acl.found` counts.
    """

    is_allowed: bool
    reason: str
    acl: Acl | None = None


@ends_where_it_waits
class AclAdmin:
    """The calls of `Admin` about access control."""

    _cluster: Cluster

    @bounded("adding ACL entries")
    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add entries. One that is there already stays as it is.

        When this returns they count on the broker that was asked, and within a second on the
        others. Raises `Refused`: an entry cannot be, there is no access control, or the client may
        not alter the cluster; ValueError for a word that does not exist.
        """
        await _create(self._cluster, tuple(map(_creation, acls)))

    async def describe_acls(
        self,
        *,
        resource: ResourceWord | None = None,
        name: str | None = None,
        pattern: Literal["any", "match", "literal", "prefixed"] = "any",
        principal: str | None = None,
        host: str | None = None,
        operation: OperationWord | None = None,
        permission: PermissionWord | None = None,
    ) -> list[Acl]:
        """Return the entries that agree with all that is given.

        The pattern `"match"` selects the entries that are about the resource called `name`, also
        those of a prefix of it and of all resources. Raises `Refused`, `TimedOut`.
        """
        return await _describe(
            self._cluster,
            DescribeAclsRequest(
                **_selection(resource, name, pattern, principal, host, operation, permission)
            ),
        )

    @bounded("removing ACL entries")
    async def delete_acls(
        self,
        *,
        resource: ResourceWord | None = None,
        name: str | None = None,
        pattern: Literal["any", "match", "literal", "prefixed"] = "any",
        principal: str | None = None,
        host: str | None = None,
        operation: OperationWord | None = None,
        permission: PermissionWord | None = None,
    ) -> list[Acl]:
        """Remove the entries that agree with all that is given, and return them.

        See `describe_acls`; without arguments it is every entry. Raises `Refused`, `TimedOut`.
        """
        return await _delete(
            self._cluster,
            DeleteAclsFilter(
                **_selection(resource, name, pattern, principal, host, operation, permission)
            ),
        )

    async def explain_access(
        self,
        principal: str,
        operation: OperationWord,
        resource: ResourceWord,
        name: str = CLUSTER_NAME,
        *,
        host: str = "*",
    ) -> AccessDecision:
        """Return the decision about a principal at a host, and the entry that decides.

        `host` is the address of the client; with `"*"` only entries for every host count. Raises
        `Refused`, also for a broker that is no Odradek.
        """
        return await _explain(
            self._cluster,
            DescribeAclsRequest(
                **_selection(resource, name, "match", principal, host, operation, None),
                explains=True,
            ),
        )


def _selection(
    resource: str | None,
    name: str | None,
    pattern: str,
    principal: str | None,
    host: str | None,
    operation: str | None,
    permission: str | None,
) -> dict[str, Any]:
    """Return the fields of a filter; None stands for anything."""
    return {
        "resource_type_filter": _number(RESOURCES, resource),
        "resource_name_filter": name,
        "pattern_type_filter": _number(PATTERNS, pattern),
        "principal_filter": principal,
        "host_filter": host,
        "operation": _number(OPERATIONS, operation),
        "permission_type": _number(PERMISSIONS, permission),
    }


async def _create(cluster: Cluster, creations: tuple[AclCreation, ...]) -> None:
    request = CreateAclsRequest(creations=creations)

    async def attempt() -> None:
        answer = await cluster.ask(None, CREATE_ACLS, request)
        if len(answer.results) != len(creations):
            raise Retriable("adding ACL entries: the broker's answer leaves some out")
        for result in answer.results:
            _check(cluster, result.error_code, "adding ACL entries", result.error_message)

    if creations:
        await cluster.retrying("adding ACL entries", attempt)


async def _describe(cluster: Cluster, request: DescribeAclsRequest) -> list[Acl]:
    async def attempt() -> list[Acl]:
        answer = await cluster.ask(None, DESCRIBE_ACLS, request)
        _check(cluster, answer.error_code, "reading ACL entries", answer.error_message)
        return [acl for resource in answer.resources for acl in _acls_of(resource)]

    return await cluster.retrying("reading ACL entries", attempt)


async def _delete(cluster: Cluster, wanted: DeleteAclsFilter) -> list[Acl]:
    request = DeleteAclsRequest(filters=(wanted,))
    deleted: dict[Acl, None] = {}

    async def attempt() -> list[Acl]:
        answer = await cluster.ask(None, DELETE_ACLS, request)
        for result in answer.filter_results:
            _check(cluster, result.error_code, "removing ACL entries", result.error_message)
            for each in result.matching_acls:
                _check(cluster, each.error_code, "removing ACL entries", each.error_message)
                deleted[_acl_of(each)] = None
        return list(deleted)

    return await cluster.retrying("removing ACL entries", attempt)


async def _explain(cluster: Cluster, request: DescribeAclsRequest) -> AccessDecision:
    async def attempt() -> AccessDecision:
        answer = await cluster.ask(None, DESCRIBE_ACLS, request)
        _check(cluster, answer.error_code, "asking for a decision", answer.error_message)
        if answer.reason is None:
            raise Refused(
                "only Odradek explains what its ACL entries decide",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        acls = [acl for resource in answer.resources for acl in _acls_of(resource)]
        return AccessDecision(answer.is_allowed, answer.reason, acls[0] if acls else None)

    return await cluster.retrying("asking for a decision", attempt)


def _check(cluster: Cluster, number: int, doing: str, said: str | None) -> None:
    if number == ErrorCode.SECURITY_DISABLED:
        raise Refused(f"{doing}: {DISABLED}", code=ErrorCode.SECURITY_DISABLED)
    cluster.check(number, doing, said)


def _number(numbers: Mapping[str, int], word: str | None) -> int:
    if word is None:
        return ANY
    if word not in numbers:
        raise ValueError(f"{word!r} is none of {', '.join(numbers)}")
    return numbers[word]


def _word(numbers: Mapping[str, int], number: int) -> str:
    """Return the word for a number; that of a later version is shown as it is."""
    return next((word for word, each in numbers.items() if each == number), str(number))


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=_number(RESOURCES, acl.resource),
        resource_name=acl.name,
        resource_pattern_type=_number(PATTERNS, acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=_number(OPERATIONS, acl.operation),
        permission_type=_number(PERMISSIONS, acl.permission),
    )


def _acls_of(resource: DescribeAclsResource) -> list[Acl]:
    return [
        _acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in resource.acls
    ]


def _acl_of(deleted: DeleteAclsMatchingAcl) -> Acl:
    return _acl(
        deleted.resource_type,
        deleted.resource_name,
        deleted.pattern_type,
        deleted.principal,
        deleted.host,
        deleted.operation,
        deleted.permission_type,
    )


def _acl(
    resource: int,
    name: str,
    pattern: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    return Acl(
        resource=_word(RESOURCES, resource),  # type: ignore[arg-type]
        name=name,
        principal=principal,
        operation=_word(OPERATIONS, operation),  # type: ignore[arg-type]
        permission=_word(PERMISSIONS, permission),  # type: ignore[arg-type]
        host=host,
        pattern=_word(PATTERNS, pattern),  # type: ignore[arg-type]
    )
