"""Tables of entries for tests."""

from collections.abc import Iterable, Mapping

from odradek.broker.security.acl_table import AclTable, AclTableBuilder, ResourceAcls
from odradek.broker.security.acls import AclEntry, ResourcePattern

Binding = tuple[ResourcePattern, AclEntry]


def acls_of(bindings: Iterable[Binding]) -> dict[ResourcePattern, ResourceAcls]:
    of: dict[ResourcePattern, list[AclEntry]] = {}
    for resource, entry in bindings:
        of.setdefault(resource, []).append(entry)
    return {resource: ResourceAcls(entries) for resource, entries in of.items()}


def table_of(acls: Mapping[ResourcePattern, ResourceAcls]) -> AclTable:
    builder = AclTableBuilder()
    for resource, each in acls.items():
        builder.put(resource, each)
    return builder.table


def table(*bindings: Binding) -> AclTable:
    """Return the table of some entries."""
    return table_of(acls_of(bindings))
