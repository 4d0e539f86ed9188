"""All entries of a cluster at one moment, and the rules by which they decide.

The rules are those of Kafka's StandardAuthorizer. Of the entries whose pattern covers the resource,
and that name the principal (or everybody), the host (or every host) and the operation:

1. one that denies, denies, whatever else there is;
2. one that allows, allows;
3. without any, the answer is no. If no pattern with entries covers the resource at all, it is what
   `allow.everyone.if.no.acl.found` says.

A question looks up the patterns that may cover a name: the literal one, `*`, and one for each
length that prefixes have. So its cost depends on the entries of these, and not on the number of
all entries; in each, entries are kept by their principal.

The question for some resource of a type has no name to look up. It goes by an index of the patterns
that have an entry for a principal and an operation.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from odradek.broker.security.acls import (
    ANY_USER,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.late import dataclass

Naming = tuple[ResourceKind, str, AclOperation, Permission]
"""That an entry for a resource of this type names a principal and an operation, and what it says.
"""
SOME_MAX: Final = 1_000
"""The most answers about some resource of a type that a table remembers."""


def canonical_host(text: str) -> str:
    """Return a host as entries are compared by it.

    An address of version 6 has many texts: Java writes it without `::`. What is no address is
    compared as it is, and is that of no client.
    """
    if ":" not in text:
        return text
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(text.strip("[]").partition("%")[0])
    except ValueError:
        return text
    return str(address.ipv4_mapped or address)


class ResourceAcls:
    """The entries of one resource pattern."""

    __slots__ = ("_by_principal", "entries")

    def __init__(self, entries: Iterable[AclEntry]) -> None:
        self.entries = tuple(entries)
        self._by_principal: dict[str, list[tuple[str, AclEntry]]] = {}
        for entry in self.entries:
            of_this = self._by_principal.setdefault(entry.principal, [])
            of_this.append((canonical_host(entry.host), entry))

    def about(self, principal: str, host: str) -> Iterator[AclEntry]:
        """Yield the entries that name a principal, or everybody, at a canonical host."""
        # invariant authorization 3: An entry counts for the host that it names.
        # plant an entry for one host counts for every host
        for named in dict.fromkeys((principal, ANY_USER)):
            for of_host, entry in self._by_principal.get(named, ()):
                if of_host in (WILDCARD, host):
                    yield entry


@dataclass(frozen=True, slots=True)
class AclDecision:
    """The answer to a question, and what it follows from."""

    is_allowed: bool
    entry: AclEntry | None = None
    resource: ResourcePattern | None = None
    """The pattern of `entry`."""
    is_about_known: bool = False
    """True if some pattern with entries covers the resource."""


class AclTable:
    """The entries of all patterns. It is immutable. `AclTableBuilder` makes it."""

    __slots__ = ("_naming", "_prefix_lengths", "_some", "identity", "of")

    def __init__(
        self,
        of: Mapping[ResourcePattern, ResourceAcls],
        naming: Mapping[Naming, Collection[ResourcePattern]],
    ) -> None:
        self.identity = object()
        """Stands for the table where it is compared later, without keeping its entries."""
        self.of = MappingProxyType(of)
        self._naming = naming
        lengths: dict[ResourceKind, set[int]] = {}
        for resource in of:
            if resource.pattern is PatternType.PREFIXED:
                lengths.setdefault(resource.kind, set()).add(len(resource.name))
        self._prefix_lengths = {kind: sorted(some) for kind, some in lengths.items()}
        self._some: dict[tuple[str, str, AclOperation, ResourceKind], bool] = {}
        """Answers of `allows_some`: a client that connects again asks the same."""

    @property
    def entry_count(self) -> int:
        return sum(len(each.entries) for each in self.of.values())

    def decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        allows_unknown: bool = False,
    ) -> AclDecision:
        """Decide a question. `allows_unknown`: the answer where no pattern covers the resource."""
        host = canonical_host(host)
        allowing: tuple[AclEntry, ResourcePattern] | None = None
        is_known = False
        for resource, acls in self._covering(kind, name):
            is_known = True
            for entry in acls.about(principal, host):
                if not entry.covers(operation):
                    continue
                # invariant authorization 1: An entry that denies wins over all that allow.
                # plant an entry that denies is ignored behind one that allows
                if entry.permission is Permission.DENY:
                    return AclDecision(False, entry, resource, is_known)
                if allowing is None:
                    allowing = entry, resource
        if allowing is not None:
            return AclDecision(True, *allowing, is_known)
        return AclDecision(allows_unknown and not is_known, is_about_known=is_known)

    def _covering(
        self, kind: ResourceKind, name: str
    ) -> Iterator[tuple[ResourcePattern, ResourceAcls]]:
        """Yield the patterns that cover a resource, with their entries."""
        literals = dict.fromkeys((name, WILDCARD))
        wanted = [ResourcePattern(kind, PatternType.LITERAL, each) for each in literals]
        # invariant authorization 2: A prefixed pattern covers every name that begins with its name.
        # plant a prefixed pattern is taken as a literal one
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            wanted.append(ResourcePattern(kind, PatternType.PREFIXED, name[:length]))
        for resource in wanted:
            found = self.of.get(resource)
            if found is not None:
                yield resource, found

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceKind
    ) -> bool:
        """Return True if the operation is allowed for some resource of a type.

        That is one that an entry allows, and no entry denies for all that it covers. What implies
        the operation does not count here, as in Kafka.
        """
        question = principal, canonical_host(host), operation, kind
        known = self._some.get(question)
        if known is None:
            known = self._is_some_allowed(*question)
            if len(self._some) >= SOME_MAX:
                self._some.clear()
            self._some[question] = known
        return known

    def _is_some_allowed(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceKind
    ) -> bool:
        def is_denied(pattern: PatternType, name: str) -> bool:
            entries = self.of.get(ResourcePattern(kind, pattern, name))
            return entries is not None and any(
                each.permission is Permission.DENY
                and each.operation in (AclOperation.ALL, operation)
                for each in entries.about(principal, host)
            )

        def is_covered(allowed: ResourcePattern) -> bool:
            """Return True if what it allows is denied by the same, or by a prefix of its name.

            A literal `*` that is allowed leaves something, whatever prefixes are denied.
            """
            name = allowed.name
            if allowed.pattern is PatternType.LITERAL:
                if name == WILDCARD:
                    return False
                if is_denied(PatternType.LITERAL, name):
                    return True
            lengths = self._prefix_lengths.get(kind, ())
            return any(
                is_denied(PatternType.PREFIXED, name[:each])
                for each in lengths
                if each <= len(name)
            )

        # Denials are looked up, and not collected: there may be a hundred thousand of them.
        if is_denied(PatternType.LITERAL, WILDCARD):
            return False
        return not all(map(is_covered, self._allowing_patterns(principal, host, operation, kind)))

    def _allowing_patterns(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceKind
    ) -> Iterator[ResourcePattern]:
        """Yield the patterns that have an entry which allows this operation, or ALL."""
        for named in dict.fromkeys((principal, ANY_USER)):
            for each in (AclOperation.ALL, operation):
                naming = kind, named, each, Permission.ALLOW
                for resource in self._naming.get(naming, ()):
                    entries = self.of[resource].about(named, host)
                    if any((e.operation, e.permission) == naming[2:] for e in entries):
                        yield resource

    def select(self, wanted: AclFilter) -> Iterator[tuple[ResourcePattern, AclEntry]]:
        """Yield the entries that a filter selects."""
        for resource, acls in self.of.items():
            if wanted.has_resource(resource):
                for entry in acls.entries:
                    if wanted.has_entry(entry):
                        yield resource, entry


class AclTableBuilder:
    """The entries of all patterns while they change. A change costs what the pattern has.

    The first one after a table was taken also copies what that table shares.
    """

    def __init__(self) -> None:
        self._of: dict[ResourcePattern, ResourceAcls] = {}
        self._naming: dict[Naming, dict[ResourcePattern, None]] = {}
        self._unshared: set[Naming] = set()
        """What no table has of `_naming`."""
        self._table: AclTable | None = NO_ACLS

    def put(self, resource: ResourcePattern, acls: ResourceAcls | None) -> None:
        """Replace the entries of a pattern; None removes them."""
        self._table = None
        before = self._of.get(resource)
        for naming in _namings(resource, before):
            patterns = self._patterns(naming)
            del patterns[resource]
            if not patterns:
                del self._naming[naming]
        if acls is None:
            self._of.pop(resource, None)
            return
        self._of[resource] = acls
        for naming in _namings(resource, acls):
            self._patterns(naming)[resource] = None

    def _patterns(self, naming: Naming) -> dict[ResourcePattern, None]:
        """Return the patterns with such an entry, to be changed."""
        if naming not in self._naming or naming not in self._unshared:
            self._naming[naming] = dict(self._naming.get(naming, ()))
            self._unshared.add(naming)
        return self._naming[naming]

    @property
    def table(self) -> AclTable:
        """The table of all entries. It is the same object until one of them changes."""
        if self._table is None:
            self._table = AclTable(dict(self._of), dict(self._naming))
            self._unshared.clear()
        return self._table


def _namings(resource: ResourcePattern, acls: ResourceAcls | None) -> Collection[Naming]:
    if acls is None:
        return ()
    return {
        (resource.kind, entry.principal, entry.operation, entry.permission)
        for entry in acls.entries
    }


NO_ACLS: Final = AclTable({}, {})
