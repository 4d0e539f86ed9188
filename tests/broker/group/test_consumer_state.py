"""The table of consumer groups (KIP-848), from Kafka's source and not from the table."""

import pytest

from odradek.broker.group.consumer.state import (
    ConsumerEvent,
    ConsumerState,
    decide_for,
)
from odradek.protocol.errors import ErrorCode, KafkaError

EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD = ConsumerState
ACTIVE = (ASSIGNING, RECONCILING, STABLE)
E = ConsumerEvent

REFUSED = {
    # GroupMetadataManager: getOrMaybeCreateMember finds no member in an empty group
    E.HEARTBEAT: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    E.LEAVE: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    E.LEAVE_FOR_A_WHILE: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    # classicGroupSync and classicGroupHeartbeat find no member in an empty group
    E.SYNC_CLASSIC: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    E.HEARTBEAT_CLASSIC: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    # validateOnlineDowngradeWithFencedMembers: an empty group stays
    E.DOWNGRADE: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    # ConsumerGroup.validateOffsetCommit
    E.COMMIT: {EMPTY: ErrorCode.UNKNOWN_MEMBER_ID},
    E.COMMIT_AS_STRANGER: dict.fromkeys(ACTIVE, ErrorCode.UNKNOWN_MEMBER_ID),
    # ConsumerGroup.validateDeleteGroup
    E.DELETE: dict.fromkeys(ACTIVE, ErrorCode.NON_EMPTY_GROUP),
    E.EXPIRE: dict.fromkeys(ACTIVE, ErrorCode.NON_EMPTY_GROUP),
}
LEADS_TO = {
    E.JOIN: {state: set(ACTIVE) for state in (EMPTY, *ACTIVE)},
    E.HEARTBEAT: {state: set(ACTIVE) for state in ACTIVE},
    E.LEAVE: {state: {EMPTY, ASSIGNING} for state in ACTIVE},
    E.LEAVE_FOR_A_WHILE: {
        ASSIGNING: {ASSIGNING},
        RECONCILING: {RECONCILING},
        STABLE: {RECONCILING},
    },
    # classicGroupJoin: maybeDeleteEmptyConsumerGroup, or classicGroupJoinToConsumerGroup
    E.JOIN_CLASSIC: {EMPTY: {DEAD}, **{state: set(ACTIVE) for state in ACTIVE}},
    E.SYNC_CLASSIC: {state: {state} for state in ACTIVE},
    E.HEARTBEAT_CLASSIC: {state: {state} for state in ACTIVE},
    E.DOWNGRADE: {state: {DEAD} for state in ACTIVE},
    E.COMMIT: {state: {state} for state in ACTIVE},
    E.COMMIT_AS_STRANGER: {EMPTY: {EMPTY}},
    E.COMMIT_IN_TRANSACTION_AS_STRANGER: {state: {state} for state in (EMPTY, *ACTIVE)},
    E.DELETE: {EMPTY: {DEAD}},
    E.EXPIRE: {EMPTY: {DEAD}},
    E.UNLOAD: {state: {DEAD} for state in ConsumerState},
}


@pytest.mark.parametrize("event", ConsumerEvent)
@pytest.mark.parametrize("state", [EMPTY, *ACTIVE])
def test_an_event_is_refused_or_leads_where_kafka_goes(
    state: ConsumerState, event: ConsumerEvent
) -> None:
    code = REFUSED.get(event, {}).get(state)
    if code is None:
        assert decide_for(state, event).states == LEADS_TO[event][state]
    else:
        with pytest.raises(KafkaError) as refused:
            decide_for(state, event)
        assert refused.value.code is code


@pytest.mark.parametrize("event", ConsumerEvent)
def test_a_dead_group_takes_nothing(event: ConsumerEvent) -> None:
    if event is E.UNLOAD:
        assert decide_for(DEAD, event).states == {DEAD}
        return
    with pytest.raises(KafkaError) as refused:
        decide_for(DEAD, event)
    is_administration = event in (E.DELETE, E.EXPIRE)
    expected = ErrorCode.GROUP_ID_NOT_FOUND if is_administration else ErrorCode.NOT_COORDINATOR
    assert refused.value.code is expected


def test_a_state_that_an_event_does_not_lead_to_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        decide_for(STABLE, E.LEAVE).check(STABLE)
