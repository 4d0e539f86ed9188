"""What the client of a connection may do, and how long a decision counts."""

import gc
import logging

import pytest

from odradek.broker.security.access import EVERYTHING, OFF, Access, Authorizer
from odradek.broker.security.acl_table import NO_ACLS, AclTable
from odradek.broker.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.principal import Principal
from odradek.broker.security.rights import ALTER_CLUSTER, CLUSTER_ACTION, READ_TOPIC, WRITE_TOPIC
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.broker.security.acl_tables import table

ALICE, ROOT = Principal("User", "alice"), Principal("User", "root")
TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER


def with_entry(operation: AclOperation, kind: ResourceKind = TOPIC, name: str = "t") -> AclTable:
    entry = AclEntry("User:alice", "*", operation, Permission.ALLOW)
    return table((ResourcePattern(kind, PatternType.LITERAL, name), entry))


class Kept:
    """A stand-in for the metadata of a broker."""

    def __init__(self, table: AclTable = NO_ACLS) -> None:
        self.table = table
        self.is_current = True
        self.authorizer = Authorizer(
            is_on=True,
            super_users=[ROOT],
            table=lambda: self.table,
            is_current=lambda: self.is_current,
        )

    def access(self, principal: Principal = ALICE) -> Access:
        return self.authorizer.access_of(principal, "10.0.0.1")


def test_a_permission_counts_until_it_is_taken_away() -> None:
    kept = Kept(with_entry(AclOperation.READ))
    access = kept.access()
    assert access.allows(READ_TOPIC, "t")
    kept.table = NO_ACLS
    assert not access.allows(READ_TOPIC, "t")
    kept.table = with_entry(AclOperation.READ)
    assert access.allows(READ_TOPIC, "t")


def test_some_topic_is_asked_for_anew_when_the_entries_have_changed() -> None:
    kept = Kept(with_entry(AclOperation.WRITE))
    access = kept.access()
    assert access.allows_some(WRITE_TOPIC)
    kept.table = NO_ACLS
    assert not access.allows_some(WRITE_TOPIC)


def test_a_broker_that_may_have_old_entries_allows_nothing_and_refuses_nothing() -> None:
    kept = Kept(with_entry(AclOperation.READ))
    access = kept.access()
    assert access.allows(READ_TOPIC, "t")
    kept.is_current = False
    for ask in (access.shows, access.allows, access.check):
        with pytest.raises(ProtocolError, match="no connection to the metadata store"):
            ask(READ_TOPIC, "t")
    with pytest.raises(ProtocolError):
        access.allows_some(READ_TOPIC)
    with pytest.raises(ProtocolError):
        kept.access(ROOT).check_cluster(ALTER_CLUSTER)


def test_a_super_user_may_do_everything() -> None:
    access = Kept().access(ROOT)
    access.check_cluster(ALTER_CLUSTER)
    access.check(READ_TOPIC, "t")
    assert access.allows_some(WRITE_TOPIC)
    assert access.cluster_operations() == 0x1FA0


def test_the_refusal_names_nothing() -> None:
    access = Kept().access()
    with pytest.raises(KafkaError) as found:
        access.check(READ_TOPIC, "secret")
    assert found.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found.value.message == "Topic authorization failed."
    with pytest.raises(KafkaError) as found:
        access.check_cluster(ALTER_CLUSTER, CLUSTER_ACTION)
    assert found.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_one_of_the_operations_on_the_cluster_is_enough() -> None:
    kept = Kept(with_entry(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    kept.access().check_cluster(ALTER_CLUSTER, CLUSTER_ACTION)


def test_authorised_operations_are_the_bits_of_what_is_allowed() -> None:
    access = Kept(with_entry(AclOperation.READ)).access()
    expected = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert access.operations(TOPIC, "t") == expected
    assert access.operations(TOPIC, "other") == 0
    assert access.cluster_operations() == 0


def test_a_denied_request_is_logged_with_who_what_and_where(
    caplog: pytest.LogCaptureFixture,
) -> None:
    access = Kept().access(Principal("User", "al\nice"))
    with caplog.at_level(logging.INFO):
        assert not access.shows(READ_TOPIC, "t")
        assert not caplog.records
        assert not access.allows(READ_TOPIC, "secret")
    [record] = caplog.records
    expected = r"denied: User:al\nice at 10.0.0.1 may not READ TOPIC secret"
    assert record.getMessage() == expected


def test_what_is_remembered_is_bounded() -> None:
    kept = Kept()
    access = kept.access()
    for number in range(2_500):
        assert not access.shows(READ_TOPIC, f"t{number}")
    decisions = access._decisions  # type: ignore[attr-defined]
    assert 0 < len(decisions) <= 1_000


def test_rights_are_other_ones_for_other_entries_and_do_not_keep_the_old() -> None:
    kept = Kept(with_entry(AclOperation.READ))
    access = kept.access()
    before = access.rights
    assert before is access.rights
    assert not gc.get_referents(before), "an idle session kept a table of old entries"
    kept.table = with_entry(AclOperation.READ)
    assert access.rights is not before


def test_long_names_that_clients_choose_are_not_remembered() -> None:
    """A name may have 32,767 characters: those of 1,000 questions stayed in memory."""
    access = Kept().access()
    assert not access.shows(READ_TOPIC, "t" * 249)
    for number in range(100):
        assert not access.shows(READ_TOPIC, f"{'t' * 247}{number:03d}")
    decisions = access._decisions  # type: ignore[attr-defined]
    assert list(decisions) == [(READ_TOPIC, "t" * 249)]


def test_a_long_name_is_decided_each_time() -> None:
    name = "t" * 1_000
    kept = Kept(with_entry(AclOperation.READ, name=name))
    access = kept.access()
    assert access.allows(READ_TOPIC, name)
    assert access.allows(READ_TOPIC, name)
    assert not access.allows(WRITE_TOPIC, name)


def test_connections_of_one_principal_share_their_decisions() -> None:
    kept = Kept()
    assert kept.access() is kept.access()
    assert kept.access() is not kept.access(ROOT)


def test_without_an_authoriser_everything_is_allowed() -> None:
    access = OFF.access_of(ALICE, "10.0.0.1")
    assert access is EVERYTHING
    access.check_cluster(ALTER_CLUSTER)
    assert access.allows(READ_TOPIC, "t")
    assert access.allows_some(WRITE_TOPIC)
