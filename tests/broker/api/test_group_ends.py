"""EndTxn 5 with members: what a broker that has transaction groups, or has not, makes of it."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.txn import END_TXN, EndTxnMember, EndTxnRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.api.transactor import PATIENCE_S, Transactor
from tests.broker.raw import RawClient

E = ErrorCode
TRANSACTION = 1
"""The key type of a transactional id in FindCoordinator."""


def transactors(client: RawClient) -> list[Transactor]:
    """Return a leader and a member of a group, each with an open transaction."""
    found = [Transactor(client), Transactor(client)]
    tag = f"{{{found[0].id}}}"
    for number, transactor in enumerate(found):
        transactor.id = f"{tag}.{number}"
        wanted = FindCoordinatorRequest(coordinator_keys=(transactor.id,), key_type=TRANSACTION)
        deadline = time.monotonic() + PATIENCE_S
        while (
            client.ask(FIND_COORDINATOR, 4, wanted).coordinators[0].error_code
            or transactor.init().error_code
        ):
            assert time.monotonic() < deadline, "a new Kafka makes its state topic first"
            time.sleep(0.02)
        assert transactor.produce(b"a", version=12).error_code == E.NONE
    return found


def end(
    client: RawClient,
    members: Sequence[Transactor],
    *,
    version: int = 5,
    decision: int = 1,
    **others: Any,
) -> Any:
    request = EndTxnRequest(
        transactional_id=members[0].id,
        producer_id=others.pop("producer_id", -1),
        producer_epoch=others.pop("producer_epoch", -1),
        committed=True,
        members=tuple(
            EndTxnMember(
                transactional_id=each.id,
                producer_id=each.producer[0],
                producer_epoch=each.producer[1],
            )
            for each in members
        ),
        decision_id=UUID(int=decision),
    )
    return client.ask(END_TXN, version, request)


def test_members_are_committed_by_one_request(client: RawClient) -> None:
    members = transactors(client)
    answer = end(client, members)
    assert answer.error_code == E.NONE
    assert [(each.producer_id, each.producer_epoch) for each in answer.members] == [
        (each.producer[0], each.producer[1] + 1) for each in members
    ]
    assert (answer.producer_id, answer.producer_epoch) == (
        members[0].producer[0],
        members[0].producer[1] + 1,
    )
    for each in members:
        each.wait_until_complete()
        assert each.visible().last_stable_offset == 2
    assert end(client, members).members == answer.members, "a repeat"
    other = end(client, members, decision=2)
    assert other.error_code == E.INVALID_TXN_STATE
    assert other.refused_member == members[0].id


def test_a_refusal_names_the_member_and_the_cause(client: RawClient) -> None:
    members = transactors(client)
    members[1].producer = (members[1].producer[0], 7)
    answer = end(client, members)
    assert answer.error_code == E.PRODUCER_FENCED
    assert answer.refused_member == members[1].id
    assert "has producer id" in answer.error_message
    assert answer.members == ()
    assert members[0].visible().last_stable_offset == 0


@pytest.mark.parametrize("which", ["producer_id", "producer_epoch"])
def test_the_fixed_fields_must_be_empty(client: RawClient, which: str) -> None:
    members = transactors(client)
    answer = end(client, members, **{which: 0})
    assert answer.error_code == E.INVALID_REQUEST
    assert members[0].visible().last_stable_offset == 0


@pytest.mark.parametrize("version", range(5))
def test_an_older_version_has_no_members_and_is_refused_as_a_whole(
    client: RawClient, version: int
) -> None:
    members = transactors(client)
    assert end(client, members, version=version).error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert [each.visible().last_stable_offset for each in members] == [0, 0]
    assert end(client, members).error_code == E.NONE


def test_a_broker_without_groups_decides_nothing_for_the_leader_alone(either: RawClient) -> None:
    """With --peers: a real Kafka skips the tagged fields, and refuses by the fixed ones."""
    members = transactors(either)
    answer = end(either, members)
    if answer.error_code == E.NONE:
        return
    assert answer.error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert [each.visible().last_stable_offset for each in members] == [0, 0]
    for each in members:
        assert each.end(version=5).error_code == E.NONE


def test_all_bad_members_get_a_code_and_leave_the_connection(client: RawClient) -> None:
    leader, member = transactors(client)
    stranger = Transactor(client)
    stranger.init()
    for members in ([leader, leader], [leader, stranger], [stranger], [stranger, leader]):
        assert end(client, members).error_code == E.INVALID_REQUEST
    assert end(client, [leader, member]).error_code == E.NONE
