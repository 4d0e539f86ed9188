"""The table of the classic group protocol, cell by cell where it matters and as a whole."""

import pytest

from odradek.broker.group.state import TABLE, Do, Go, GroupEvent, GroupState, Refuse, decide
from odradek.protocol.errors import ErrorCode, KafkaError

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

# which states Kafka lets a group come from
MAY_COME_FROM = {
    EMPTY: {EMPTY, PREPARING},
    PREPARING: {EMPTY, PREPARING, COMPLETING, STABLE},
    COMPLETING: {PREPARING, COMPLETING},
    STABLE: {COMPLETING, STABLE},
    DEAD: set(GroupState),
}


@pytest.mark.parametrize(("state", "event"), TABLE)
def test_a_group_only_goes_where_kafka_lets_it(state: GroupState, event: GroupEvent) -> None:
    cell = TABLE[state, event]
    if isinstance(cell, Go):
        assert state in MAY_COME_FROM[cell.state]


def test_every_state_can_be_reached_and_every_deed_is_asked_for() -> None:
    goes = [cell for cell in TABLE.values() if isinstance(cell, Go)]
    assert {cell.state for cell in goes} == set(GroupState)
    assert {cell.do for cell in goes} == set(Do)


def test_nothing_leads_out_of_dead() -> None:
    for event in GroupEvent:
        cell = TABLE[DEAD, event]
        assert not isinstance(cell, Go) or cell == Go(DEAD)


@pytest.mark.parametrize(
    ("state", "event", "code"),
    [
        (EMPTY, GroupEvent.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
        (PREPARING, GroupEvent.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS),
        (PREPARING, GroupEvent.SYNC, ErrorCode.REBALANCE_IN_PROGRESS),
        (COMPLETING, GroupEvent.COMMIT, ErrorCode.REBALANCE_IN_PROGRESS),
        (STABLE, GroupEvent.COMMIT_AS_STRANGER, ErrorCode.UNKNOWN_MEMBER_ID),
        (STABLE, GroupEvent.DELETE, ErrorCode.NON_EMPTY_GROUP),
        (DEAD, GroupEvent.DELETE, ErrorCode.GROUP_ID_NOT_FOUND),
        (DEAD, GroupEvent.DELETE_OFFSETS, ErrorCode.GROUP_ID_NOT_FOUND),
        (STABLE, GroupEvent.DELETE_OFFSETS_OF_OTHERS, ErrorCode.NON_EMPTY_GROUP),
        (PREPARING, GroupEvent.DELETE_OFFSETS_OF_OTHERS, ErrorCode.NON_EMPTY_GROUP),
        (DEAD, GroupEvent.ADD, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (DEAD, GroupEvent.HEARTBEAT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_refusals_have_kafkas_codes(state: GroupState, event: GroupEvent, code: ErrorCode) -> None:
    assert TABLE[state, event] == Refuse(code)
    with pytest.raises(KafkaError) as refused:
        decide(state, event)
    assert refused.value.code is code


def test_offsets_in_a_transaction_do_not_ask_whether_a_rebalance_is_under_way() -> None:
    for state in (PREPARING, COMPLETING, STABLE):
        for event in (
            GroupEvent.COMMIT_IN_TRANSACTION,
            GroupEvent.COMMIT_IN_TRANSACTION_AS_STRANGER,
        ):
            assert decide(state, event) == Go(state)


@pytest.mark.parametrize("state", GroupState)
def test_an_assignment_counts_only_while_the_group_waits_for_it(state: GroupState) -> None:
    expected = Go(STABLE, Do.ANSWER_SYNCS) if state is COMPLETING else None
    assert decide(state, GroupEvent.ASSIGNMENT_STORED) == expected


def test_an_event_that_cannot_be_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        decide(STABLE, GroupEvent.JOIN_PHASE_OVER)
