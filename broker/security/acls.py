"""Entries of access control as Kafka has them: resources, operations, permissions, filters.

The numbers are those of Kafka's protocol. An entry belongs to a resource pattern. A LITERAL pattern
is the resource of that name, or all of the type if the name is `*`. A PREFIXED one is every
resource whose name begins with its name.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from odradek.late import dataclass


class ResourceKind(IntEnum):
    """The type of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    # Enum's own hash is a function in Python, and these are parts of the keys of every decision.
    __hash__ = int.__hash__


class PatternType(IntEnum):
    """The way in which a pattern names resources. ANY and MATCH stand in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    __hash__ = int.__hash__


class AclOperation(IntEnum):
    """An operation on a resource. Authorised operations have the bit of this number."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    __hash__ = int.__hash__


class Permission(IntEnum):
    """The answer of an entry. ANY stands in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    __hash__ = int.__hash__


WILDCARD: Final = "*"
"""The name of all resources of a type, and the host that stands for every host."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
ANY_USER: Final = "User:*"
"""The principal of entries for everybody."""

OPERATIONS_OF: Final = {
    ResourceKind.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceKind.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceKind.TRANSACTIONAL_ID: (
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
}
"""The operations that can be done to each type of resource."""

IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""The operations that, if they are allowed, allow this one too. A denied one denies no other."""


class ResourcePattern(NamedTuple):
    """The resources that entries are about."""

    kind: ResourceKind
    pattern: PatternType
    name: str

    def covers(self, kind: ResourceKind, name: str) -> bool:
        """Return True if the resource of this type and name is one of them."""
        if self.kind is not kind:
            return False
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (WILDCARD, name)

    def __str__(self) -> str:
        return f"{self.kind.name} {self.pattern.name} {self.name}"


class AclEntry(NamedTuple):
    """A permission of a principal at a host, or its denial."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def covers(self, operation: AclOperation) -> bool:
        """Return True if the entry is about this operation, also by what it implies."""
        if self.operation in (AclOperation.ALL, operation):
            return True
        is_allowing = self.permission is Permission.ALLOW
        return is_allowing and self.operation in IMPLIED_BY.get(operation, ())

    def __str__(self) -> str:
        return f"{self.permission.name} {self.principal} {self.operation.name} from {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects entries. A name, principal or host of None selects every one."""

    kind: ResourceKind = ResourceKind.ANY
    pattern: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def has_resource(self, resource: ResourcePattern) -> bool:
        """Return True if the filter selects entries of a pattern.

        MATCH selects the patterns that cover the resource of the name, whatever their type is.
        """
        if self.kind not in (ResourceKind.ANY, resource.kind):
            return False
        if self.pattern is PatternType.MATCH:
            return self.name is None or resource.covers(resource.kind, self.name)
        if self.pattern not in (PatternType.ANY, resource.pattern):
            return False
        return self.name in (None, resource.name)

    def has_entry(self, entry: AclEntry) -> bool:
        """Return True if the filter selects an entry of a pattern that it selects."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )
