"""The rules of access control: as a table, and against a naive reading of them."""

import pytest

from odradek.broker.security import acl_table
from odradek.broker.security.acl_table import AclTableBuilder, ResourceAcls, canonical_host
from odradek.broker.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from tests.broker.security.acl_tables import Binding, acls_of, table, table_of
from tests.drawing import given, st
from tests.fakes.calls import counted

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
HERE, THERE = "10.0.0.1", "10.0.0.2"
ALICE = "User:alice"


def topic(name: str, pattern: PatternType = LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, pattern, name)


def alice(
    operation: AclOperation, permission: Permission = ALLOW, host: str = "*", who: str = ALICE
) -> AclEntry:
    return AclEntry(who, host, operation, permission)


RULES: dict[str, tuple[list[Binding], AclOperation, bool]] = {
    "nothing allows it": ([], READ, False),
    "an entry allows it": ([(topic("t1"), alice(READ))], READ, True),
    "another operation is allowed": ([(topic("t1"), alice(WRITE))], READ, False),
    "another topic is allowed": ([(topic("t2"), alice(READ))], READ, False),
    "a longer name is allowed": ([(topic("t11"), alice(READ))], READ, False),
    "a group of that name is allowed": (
        [(ResourcePattern(GROUP, LITERAL, "t1"), alice(READ))],
        READ,
        False,
    ),
    "everything is allowed": ([(topic("t1"), alice(ALL))], READ, True),
    "every topic is allowed": ([(topic("*"), alice(READ))], READ, True),
    "a prefix is allowed": ([(topic("t", PREFIXED), alice(READ))], READ, True),
    "the whole name is the prefix": ([(topic("t1", PREFIXED), alice(READ))], READ, True),
    "a longer prefix is allowed": ([(topic("t12", PREFIXED), alice(READ))], READ, False),
    "a prefixed star is the prefix of a star": (
        [(topic("*", PREFIXED), alice(READ))],
        READ,
        False,
    ),
    "everybody is allowed": ([(topic("t1"), alice(READ, who="User:*"))], READ, True),
    "another user is allowed": ([(topic("t1"), alice(READ, who="User:bob"))], READ, False),
    "a longer user is allowed": ([(topic("t1"), alice(READ, who="User:alice2"))], READ, False),
    "another kind is allowed": ([(topic("t1"), alice(READ, who="Group:alice"))], READ, False),
    "this host is allowed": ([(topic("t1"), alice(READ, host=HERE))], READ, True),
    "another host is allowed": ([(topic("t1"), alice(READ, host=THERE))], READ, False),
    "a host is allowed by a name": ([(topic("t1"), alice(READ, host="localhost"))], READ, False),
    "an entry that denies comes first": (
        [(topic("t1"), alice(READ, DENY)), (topic("t1"), alice(READ))],
        READ,
        False,
    ),
    "an entry that denies comes last": (
        [(topic("t1"), alice(READ)), (topic("t1"), alice(READ, DENY))],
        READ,
        False,
    ),
    "a prefix is denied": (
        [(topic("t1"), alice(READ)), (topic("t", PREFIXED), alice(READ, DENY))],
        READ,
        False,
    ),
    "every topic is denied": (
        [(topic("t1"), alice(READ)), (topic("*"), alice(ALL, DENY))],
        READ,
        False,
    ),
    "everybody is denied": (
        [(topic("t1"), alice(READ)), (topic("t1"), alice(READ, DENY, who="User:*"))],
        READ,
        False,
    ),
    "another host is denied": (
        [(topic("t1"), alice(READ)), (topic("t1"), alice(READ, DENY, host=THERE))],
        READ,
        True,
    ),
    "reading implies describing": ([(topic("t1"), alice(READ))], DESCRIBE, True),
    "creating implies no describing": (
        [(topic("t1"), alice(AclOperation.CREATE))],
        DESCRIBE,
        False,
    ),
    "settings imply no describing": (
        [(topic("t1"), alice(AclOperation.ALTER_CONFIGS))],
        DESCRIBE,
        False,
    ),
    "changing settings implies reading them": (
        [(topic("t1"), alice(AclOperation.ALTER_CONFIGS))],
        AclOperation.DESCRIBE_CONFIGS,
        True,
    ),
    "describing implies no reading": ([(topic("t1"), alice(DESCRIBE))], READ, False),
    "reading is denied, and describing not": (
        [(topic("t1"), alice(READ, DENY)), (topic("t1"), alice(DESCRIBE))],
        DESCRIBE,
        True,
    ),
}


@pytest.mark.parametrize(("bindings", "operation", "is_allowed"), RULES.values(), ids=RULES)
def test_the_rules_are_kafkas(
    bindings: list[Binding], operation: AclOperation, is_allowed: bool
) -> None:
    assert table(*bindings).decide(ALICE, HERE, operation, TOPIC, "t1").is_allowed is is_allowed


def test_a_decision_names_the_entry_that_it_follows_from() -> None:
    denying = topic("t", PREFIXED), alice(ALL, DENY)
    found = table((topic("t1"), alice(READ)), denying).decide(ALICE, HERE, READ, TOPIC, "t1")
    assert (found.resource, found.entry) == denying


def test_only_a_resource_that_no_entry_is_about_is_open_to_everybody() -> None:
    acls = table((topic("t1"), alice(READ)), (topic("p", PREFIXED), alice(READ, who="User:bob")))

    def is_open(name: str) -> bool:
        return acls.decide("User:eve", HERE, WRITE, TOPIC, name, allows_unknown=True).is_allowed

    assert [is_open(name) for name in ("t1", "t2", "p2")] == [False, True, False]


def test_addresses_of_version_6_are_compared_as_addresses() -> None:
    acls = table((topic("t1"), alice(READ, host="0:0:0:0:0:0:0:1")))
    assert acls.decide(ALICE, "[::1]", READ, TOPIC, "t1").is_allowed
    assert not acls.decide(ALICE, "[::2]", READ, TOPIC, "t1").is_allowed
    assert canonical_host("[::ffff:10.0.0.1]") == HERE
    assert canonical_host("no:address") == "no:address"


SOME_TOPIC: dict[str, tuple[list[Binding], bool]] = {
    "nothing": ([], False),
    "one topic": ([(topic("t1"), alice(WRITE))], True),
    "one topic, which is denied": (
        [(topic("t1"), alice(WRITE)), (topic("t1"), alice(WRITE, DENY))],
        False,
    ),
    "one topic, whose prefix is denied": (
        [(topic("t1"), alice(WRITE)), (topic("t", PREFIXED), alice(ALL, DENY))],
        False,
    ),
    "one topic, and a longer prefix is denied": (
        [(topic("t1"), alice(WRITE)), (topic("t12", PREFIXED), alice(WRITE, DENY))],
        True,
    ),
    "a prefix, whose name alone is denied": (
        [(topic("t", PREFIXED), alice(WRITE)), (topic("t"), alice(WRITE, DENY))],
        True,
    ),
    "a prefix, which is denied": (
        [(topic("t", PREFIXED), alice(WRITE)), (topic("t", PREFIXED), alice(WRITE, DENY))],
        False,
    ),
    "all topics, of which a prefix is denied": (
        [(topic("*"), alice(WRITE)), (topic("t", PREFIXED), alice(WRITE, DENY))],
        True,
    ),
    "all topics are denied": (
        [(topic("t1"), alice(WRITE)), (topic("*"), alice(WRITE, DENY))],
        False,
    ),
    "all operations on one topic": ([(topic("t1"), alice(ALL))], True),
    "a topic for another host": ([(topic("t1"), alice(WRITE, host=THERE))], False),
    "a group": ([(ResourcePattern(GROUP, LITERAL, "g"), alice(WRITE))], False),
}


@pytest.mark.parametrize(("bindings", "is_allowed"), SOME_TOPIC.values(), ids=SOME_TOPIC)
def test_some_topic_is_allowed_if_a_denial_does_not_cover_it(
    bindings: list[Binding], is_allowed: bool
) -> None:
    assert table(*bindings).allows_some(ALICE, HERE, WRITE, TOPIC) is is_allowed


# against a naive reading: every entry is looked at

NAMES = st.text("ab*", min_size=1, max_size=3)
KINDS = st.sampled_from([TOPIC, GROUP])
OPERATIONS = st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.ALTER_CONFIGS, ALL])
ASKED = st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS])
PRINCIPALS = st.sampled_from([ALICE, "User:bob", "User:*"])
HOSTS = st.sampled_from(["*", HERE, THERE])
BINDINGS = st.tuples(
    st.builds(ResourcePattern, KINDS, st.sampled_from([LITERAL, PREFIXED]), NAMES),
    st.builds(AclEntry, PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from([ALLOW, DENY])),
)


def naive(
    bindings: list[Binding], operation: AclOperation, kind: ResourceKind, name: str, unknown: bool
) -> bool:
    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }
    about_resource = [
        entry
        for resource, entry in bindings
        if resource.kind == kind
        and (
            name.startswith(resource.name)
            if resource.pattern == PREFIXED
            else resource.name in {name, "*"}
        )
    ]
    mine = [
        entry
        for entry in about_resource
        if entry.principal in {ALICE, "User:*"} and entry.host in {HERE, "*"}
    ]
    if any(e.permission == DENY and e.operation in {operation, ALL} for e in mine):
        return False
    enough = {operation, ALL, *implied.get(operation, set())}
    if any(e.permission == ALLOW and e.operation in enough for e in mine):
        return True
    return unknown and not about_resource


@given(st.lists(BINDINGS, max_size=8), ASKED, KINDS, NAMES, st.booleans())
def test_every_decision_is_that_of_a_naive_reading(
    bindings: list[Binding], operation: AclOperation, kind: ResourceKind, name: str, unknown: bool
) -> None:
    decision = table(*bindings).decide(ALICE, HERE, operation, kind, name, allows_unknown=unknown)
    assert decision.is_allowed is naive(bindings, operation, kind, name, unknown)
    assert (decision.entry is None) is (decision.resource is None)


def allows_some_topic(bindings: list[Binding]) -> bool:
    """Return True if Alice may write to some topic: by a look at every entry."""
    mine = [
        (resource, entry.permission)
        for resource, entry in bindings
        if resource.kind == TOPIC
        and entry.principal in {ALICE, "User:*"}
        and entry.host in {HERE, "*"}
        and entry.operation in {WRITE, ALL}
    ]
    denied = [resource for resource, permission in mine if permission == DENY]
    return topic("*") not in denied and any(
        permission == ALLOW
        and (
            resource == topic("*")
            or (
                resource not in denied
                and not any(
                    each.pattern == PREFIXED and resource.name.startswith(each.name)
                    for each in denied
                )
            )
        )
        for resource, permission in mine
    )


@given(st.lists(st.lists(BINDINGS, max_size=6), min_size=1, max_size=3))
def test_some_topic_is_that_of_a_naive_reading_after_every_change(
    states: list[list[Binding]],
) -> None:
    builder = AclTableBuilder()
    tables = []
    for bindings in states:
        acls = acls_of(bindings)
        for resource in {*builder.table.of, *acls}:
            builder.put(resource, acls.get(resource))
        tables.append(builder.table)
    for made, bindings in zip(tables, states, strict=True):
        assert made.allows_some(ALICE, HERE, WRITE, TOPIC) is allows_some_topic(bindings)


@given(st.lists(BINDINGS, max_size=8), NAMES)
def test_what_is_selected_by_match_is_what_covers_the_name(
    bindings: list[Binding], name: str
) -> None:
    wanted = AclFilter(kind=TOPIC, pattern=PatternType.MATCH, name=name, principal=ALICE)
    expected = {
        (resource, entry)
        for resource, entry in bindings
        if resource.kind == TOPIC
        and entry.principal == ALICE
        and (
            name.startswith(resource.name)
            if resource.pattern == PREFIXED
            else resource.name in {name, "*"}
        )
    }
    assert set(table(*bindings).select(wanted)) == expected


def test_a_question_among_ten_thousand_entries_looks_at_few_of_them() -> None:
    looked_at = 0

    class Counted(ResourceAcls):
        __slots__ = ()

        def about(self, principal: str, host: str):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            for entry in super().about(principal, host):
                looked_at += 1
                yield entry

    of = {topic(f"t{n}"): Counted([alice(READ, who=f"User:{n}")]) for n in range(5_000)}
    of[topic("t")] = Counted([alice(READ, who=f"User:{n}") for n in range(5_000)])
    acls = table_of(of)
    assert acls.entry_count == 10_000
    assert acls.decide("User:7", HERE, READ, TOPIC, "t").is_allowed
    assert not acls.decide(ALICE, HERE, READ, TOPIC, "t1").is_allowed
    assert looked_at == 1


def test_whether_some_topic_is_allowed_is_no_walk_over_ten_thousand_denials() -> None:
    """Seen: each new connection of a client that asked for a producer id held all others, 38 ms."""
    asked = 0

    class Counted(ResourceAcls):
        __slots__ = ()

        def about(self, principal: str, host: str):  # type: ignore[no-untyped-def]
            nonlocal asked
            asked += 1
            return super().about(principal, host)

    def denied(name: str) -> Counted:
        return Counted([alice(WRITE, who="User:*", permission=DENY)])

    of = {topic(f"t{n}"): denied(f"t{n}") for n in range(10_000)}
    of |= {topic(f"p{n}", PREFIXED): denied(f"p{n}") for n in range(10)}
    of |= {topic(f"p{n}x"): Counted([alice(WRITE)]) for n in range(10)}
    covered = table_of(of)
    assert not covered.allows_some(ALICE, HERE, WRITE, TOPIC)
    assert asked <= 50
    asked = 0
    assert not covered.allows_some(ALICE, HERE, WRITE, TOPIC), "the next connection"
    assert asked == 0
    of[topic("mine")] = Counted([alice(WRITE)])
    assert table_of(of).allows_some(ALICE, HERE, WRITE, TOPIC)
    assert asked <= 50


def test_answers_about_some_topic_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_table, "SOME_MAX", 3)
    acls = table((topic("t"), alice(WRITE)))
    for number in range(10):
        assert acls.allows_some(ALICE, f"192.0.2.{number}", WRITE, TOPIC)
        assert len(acls._some) <= 3
    assert not acls.allows_some("User:eve", HERE, WRITE, TOPIC)


def calls_of_some_topic(count: int) -> int:
    """Return the calls of asking for some topic among so many entries, of all kinds but one."""
    others = [(topic(f"t{n}"), alice(WRITE, who=f"User:{n}")) for n in range(count)]
    read = [(topic(f"t{n}"), alice(READ, who="User:*")) for n in range(count)]
    acls = table(*others, *read, (topic("mine"), alice(WRITE)))
    with counted() as calls:
        assert acls.allows_some(ALICE, HERE, WRITE, TOPIC)
        assert not acls.allows_some("User:eve", HERE, WRITE, TOPIC)
    return calls.count


def test_the_question_for_some_topic_looks_at_no_entry_of_others_and_of_other_operations() -> None:
    """Each connection of an idempotent producer asks it."""
    assert calls_of_some_topic(1_000) == calls_of_some_topic(10)
