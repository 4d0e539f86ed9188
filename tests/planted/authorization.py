"""Access control: what would open to a client what is closed to it."""

from typing import Final

from tests.planted.bug import Planted

SECURITY: Final = "tests/broker/security"
RULES: Final = f"{SECURITY}/test_acl_table.py::test_"
REVOKED: Final = f"{SECURITY}/test_revocation.py::test_"

AUTHORIZATION_BUGS: Final = (
    Planted(
        bug="an entry that denies is ignored behind one that allows",
        where="AclTable.decide",
        old="if entry.permission is Permission.DENY:",
        new="if entry.permission is Permission.DENY and allowing is None:",
        tests=(f"{RULES}the_rules_are_kafkas",),
    ),
    Planted(
        bug="a prefixed pattern is taken as a literal one",
        where="AclTable._covering",
        old="wanted.append(ResourcePattern(kind, PatternType.PREFIXED, name[:length]))",
        new="wanted.append(ResourcePattern(kind, PatternType.PREFIXED, name))",
        tests=(f"{RULES}the_rules_are_kafkas",),
    ),
    Planted(
        bug="an entry for one host counts for every host",
        where="ResourceAcls.about",
        old="if of_host in (WILDCARD, host):",
        new="if of_host:",
        tests=(f"{RULES}the_rules_are_kafkas",),
    ),
    Planted(
        bug="only the first member of a transaction group is asked about",
        where="_end_group",
        old="for member in request.members:",
        new="for member in request.members[:1]:",
        tests=(f"{REVOKED}who_ends_a_transaction_group_may_use_the_id_of_every_member",),
    ),
    Planted(
        bug="a session keeps a permission that was taken away",
        where="LimitedAccess._current_decisions",
        old="table is not self._table or len(self._decisions) >= DECISIONS_MAX",
        new="len(self._decisions) >= DECISIONS_MAX",
        tests=(
            f"{REVOKED}a_fetch_session_does_not_keep_a_permission",
            f"{SECURITY}/test_access.py::test_a_permission_counts_until_it_is_taken_away",
        ),
    ),
    Planted(
        bug="a long poll returns what may not be read any more",
        where="Reading.ask_right",
        old="if self.leader is not None and (not may_read(self.topic)):",
        new="if False:",
        tests=(
            f"{REVOKED}a_long_poll_does_not_return_what_may_not_be_read_any_more",
            f"{REVOKED}a_fetch_that_has_waited_for_memory_asks_for_its_right_again",
        ),
    ),
    Planted(
        bug="a fetch session is anybody's who knows its number",
        where="FetchSessions.go_on",
        old="session is None or session.owner != owner",
        new="session is None",
        tests=(f"{REVOKED}another_principal_cannot_go_on_with_a_fetch_session",),
    ),
    Planted(
        bug="the lane writes for whom may not write",
        where="Lane.take",
        old="if not asking.access.shows(WRITE_TOPIC, group.leader.by_id.topic):",
        new="if False:",
        tests=(f"{REVOKED}a_produce_is_refused_after_its_right_has_gone",),
    ),
)
