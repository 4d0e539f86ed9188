"""The entries of access control in the metadata store: keys, and values in msgpack.

    /acls/TYPE/PATTERN/NAME/  {"entries": [[principal, host, operation, permission], ...]}

There is one key for a resource pattern. NAME is percent-encoded, and a slash ends the key, so that
no key begins another one. TYPE and PATTERN are Kafka's words in lower case.
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.cluster.store import fields_of, pack, reading
from odradek.broker.environment.env import Versioned
from odradek.broker.security.acl_table import AclTable, AclTableBuilder, ResourceAcls
from odradek.broker.security.acls import (
    ANY_USER,
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)

ACLS: Final = "/acls/"
CLOSED: Final = AclEntry(ANY_USER, WILDCARD, AclOperation.ALL, Permission.DENY)
"""Stands for entries that cannot be read: one of them might deny what others allow."""

EVERY_RESOURCE: Final = (
    ResourcePattern(ResourceKind.TOPIC, PatternType.LITERAL, WILDCARD),
    ResourcePattern(ResourceKind.GROUP, PatternType.LITERAL, WILDCARD),
    ResourcePattern(ResourceKind.TRANSACTIONAL_ID, PatternType.LITERAL, WILDCARD),
    ResourcePattern(ResourceKind.CLUSTER, PatternType.LITERAL, CLUSTER_NAME),
)


def closing_puts() -> dict[str, bytes | None]:
    """Return the writes that close a cluster whose entries are lost to all but super users.

    The entries are ordinary ones: a super user sees and removes them, when the others are there
    again.
    """
    return {acl_key(resource): pack_entries([CLOSED]) for resource in EVERY_RESOURCE}


def is_closed(table: AclTable) -> bool:
    """Return True if entries of a rebuild close every resource."""
    return all(
        resource in table.of and CLOSED in table.of[resource].entries for resource in EVERY_RESOURCE
    )


def acl_key(resource: ResourcePattern) -> str:
    """Return the key of the entries of a resource pattern."""
    from urllib.parse import quote

    kind, pattern = resource.kind.name.lower(), resource.pattern.name.lower()
    return f"{ACLS}{kind}/{pattern}/{quote(resource.name, safe='')}/"


def resource_of_key(key: str) -> ResourcePattern:
    """Return the resource pattern of a key under `/acls/`. Raises `Unreadable`."""
    from urllib.parse import unquote

    with reading(key):
        kind, pattern, name, end = key.removeprefix(ACLS).split("/")
        if end or not name:
            raise ValueError("it is not the key of a resource pattern")
        return ResourcePattern(
            ResourceKind[kind.upper()],
            PatternType[pattern.upper()],
            unquote(name, errors="strict"),
        )


def pack_entries(entries: Sequence[AclEntry]) -> bytes:
    return pack(
        {
            "entries": [
                [each.principal, each.host, int(each.operation), int(each.permission)]
                for each in entries
            ]
        }
    )


def read_entries(key: str, stored: Versioned) -> tuple[AclEntry, ...]:
    """Return the entries of a resource pattern. Raises `Unreadable`."""
    with reading(key):
        return tuple(
            AclEntry(str(principal), str(host), AclOperation(operation), Permission(permission))
            for principal, host, operation, permission in fields_of(stored)["entries"]
        )


class AclsBuilder:
    """The values under `/acls/`, as tables are made of them."""

    def __init__(self) -> None:
        self._tables = AclTableBuilder()

    def put(self, key: str, stored: Versioned | None) -> None:
        """Take over one key; None deletes it.

        Raises `Unreadable`. If that is the value, its resource is closed to all but super users.
        """
        resource = resource_of_key(key)
        if stored is None:
            self._tables.put(resource, None)
            return
        # What cannot be read may be an entry that denies.
        entries: Sequence[AclEntry] = [CLOSED]
        try:
            entries = read_entries(key, stored)
        finally:
            self._tables.put(resource, ResourceAcls(entries))

    @property
    def table(self) -> AclTable:
        """The table of all values. It is the same object until one of them changes."""
        return self._tables.table
