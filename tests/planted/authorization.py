"""Access control: what would open to a client what is closed to it."""

from typing import Final

from tests.planted.bug import Planted
from tests.planted.reach import REVOKED, REVOKED_WHILE_CUT_OFF

SECURITY: Final = "tests/broker/security"
RULES: Final = f"{SECURITY}/test_acl_table.py::test_"
REVOKED_TESTS: Final = f"{SECURITY}/test_revocation.py::test_"
CLUSTER: Final = "tests/broker/cluster/test_"
SIMULATED: Final = "tests/simulation/test_"

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
        tests=(f"{REVOKED_TESTS}who_ends_a_transaction_group_may_use_the_id_of_every_member",),
    ),
    Planted(
        bug="a session keeps a permission that was taken away",
        where="LimitedAccess._current_decisions",
        old="table is not self._table or len(self._decisions) >= DECISIONS_MAX",
        new="len(self._decisions) >= DECISIONS_MAX",
        tests=(
            f"{REVOKED_TESTS}a_fetch_session_does_not_keep_a_permission",
            f"{SECURITY}/test_access.py::test_a_permission_counts_until_it_is_taken_away",
        ),
    ),
    Planted(
        bug="a long poll returns what may not be read any more",
        where="Reading.ask_right",
        old="if self.leader is not None and (not may_read(self.topic)):",
        new="if False:",
        tests=(
            f"{REVOKED_TESTS}a_long_poll_does_not_return_what_may_not_be_read_any_more",
            f"{REVOKED_TESTS}a_fetch_that_has_waited_for_memory_asks_for_its_right_again",
        ),
    ),
    Planted(
        bug="a fetch session is anybody's who knows its number",
        where="FetchSessions.go_on",
        old="session is None or session.owner != owner",
        new="session is None",
        tests=(f"{REVOKED_TESTS}another_principal_cannot_go_on_with_a_fetch_session",),
    ),
    Planted(
        bug="the lane writes for whom may not write",
        where="Lane.take",
        old="if not asking.access.shows(WRITE_TOPIC, group.leader.by_id.topic):",
        new="if False:",
        tests=(f"{REVOKED_TESTS}a_produce_is_refused_after_its_right_has_gone",),
    ),
    Planted(
        bug="a broker that may have old entries goes on granting",
        where="broker._authorizer",
        old="not (membership.session.has_lapsed or metadata.is_behind)",
        new="True",
        tests=(f"{SIMULATED}revoked_rights.py::test_what_one_broker_revokes_no_other_grants",),
        seed=1,
        fixed=REVOKED_WHILE_CUT_OFF,
    ),
    Planted(
        bug="an image that lacks a known change is never too old",
        where="ClusterMetadata.is_behind",
        old="return trio.current_time() - self._lacked_since > BEHIND_SECONDS",
        new="return False",
        tests=(f"{CLUSTER}acls.py::test_an_image_that_lacks_a_known_change_is_behind",),
    ),
    Planted(
        bug="a lapse that ends with the answer of the store is no lapse",
        where="Session.run",
        old="if self.has_lapsed:",
        new="if False:",
        tests=(
            f"{CLUSTER}session.py::test_an_answer_that_comes_after_the_lapse_does_not_open_an_image_"
            "that_lacks_changes",
        ),
    ),
    Planted(
        bug="a broker goes by the entries of its start",
        where="broker._authorizer",
        old="lambda: metadata.newest_image.acls",
        new="lambda: acls",
        tests=(f"{SIMULATED}revoked_rights.py::test_what_one_broker_revokes_no_other_grants",),
    ),
    Planted(
        bug="a revocation counts only at the broker that was asked for it",
        where="ClusterMetadata._take",
        old="if revision <= self.image.revision:",
        new=(
            "if revision <= self.image.revision or (revision > self._heard_of and "
            "all(key.startswith(ACLS) and not stored for key, stored in changed.items())):"
        ),
        tests=(f"{SIMULATED}revoked_rights.py::test_what_one_broker_revokes_no_other_grants",),
        seed=2,
        fixed=REVOKED,
    ),
    Planted(
        bug="an operation that is allowed implies no other",
        where="AclEntry.covers",
        old="return is_allowing and self.operation in IMPLIED_BY.get(operation, ())",
        new="return False",
        tests=(f"{RULES}the_rules_are_kafkas",),
    ),
    Planted(
        bug="an operation that is denied denies what it implies",
        where="AclEntry.covers",
        old="is_allowing = self.permission is Permission.ALLOW",
        new="is_allowing = True",
        tests=(f"{RULES}the_rules_are_kafkas",),
    ),
    Planted(
        bug="super users are separated by commas, which names of certificates have",
        where="parse_principals",
        old="text.split(';')",
        new="text.replace(';', ',').split(',')",
        tests=(f"{SECURITY}/test_principal.py::test_semicolons_separate_principals",),
    ),
    Planted(
        bug="what some entry is about is open to everybody who is named in none",
        where="AclTable.decide",
        old="allows_unknown and not is_known",
        new="allows_unknown",
        tests=(f"{RULES}only_a_resource_that_no_entry_is_about_is_open_to_everybody",),
    ),
    Planted(
        bug="a fetch session looks at idle topics only when they have news",
        where="FetchSession.note_rights",
        old="self.ready = dict.fromkeys(self.places.values())",
        new="pass",
        tests=(f"{REVOKED_TESTS}a_fetch_session_does_not_keep_a_permission",),
    ),
    Planted(
        bug="a member that waited for others is let in by the right that it had",
        where="_wait_for_members",
        old="context.access.check(READ_GROUP, group_id)",
        tests=(
            f"{REVOKED_TESTS}a_member_that_waits_for_others_is_refused_when_its_right_has_gone",
        ),
    ),
    Planted(
        bug="a client may ask as a broker, which has shown its rights elsewhere",
        where="add_partitions_to_txn",
        old="context.access.check_cluster(CLUSTER_ACTION)",
        new="pass",
        tests=(f"{SECURITY}/test_rights.py::test_a_request_needs_each_of_its_rights",),
    ),
    Planted(
        bug="requests lose the principal of their connection",
        where="RequestContext.of_connection",
        old="core.authorizer.access_of(principal, host)",
        new="core.authorizer.access_of(ANONYMOUS, host)",
        tests=(
            f"{SIMULATED}acls.py::test_what_was_taken_away_is_not_granted_and_what_was_given_"
            "not_refused",
        ),
        seed=1,
        fixed=REVOKED,
    ),
    Planted(
        bug="entries that cannot be read open what they close",
        where="AclsBuilder.put",
        old="[CLOSED]",
        new="[]",
        tests=(f"{CLUSTER}acls.py::test_an_entry_that_cannot_be_read_closes_its_resource",),
    ),
    Planted(
        bug="a broker overwrites the entries that another one adds at the same time",
        where="ClusterAcls._change",
        old="[unchanged_since(key, found) for key in some]",
        new="[]",
        tests=(f"{CLUSTER}acls.py::test_two_brokers_that_change_at_once_lose_neither_change",),
    ),
    Planted(
        bug="a broker that may have old users lets a deleted one in",
        where="listener_sasl.mechanisms_of",
        old="check_current()",
        tests=(f"{SIMULATED}revoked_rights.py::test_a_user_that_was_deleted_is_let_in_nowhere",),
    ),
)
