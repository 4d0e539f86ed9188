"""The table of a member's states, cell by cell: what follows, or that it cannot happen."""

import pytest

from odradek.client.grouping.state import BEATING, WAITS_FOR_POLL, MemberEvent, MemberState
from odradek.client.grouping.state import state_after as after

S, E = MemberState, MemberEvent
STATES = (S.OUT, S.JOINING, S.SYNCING, S.ARRIVED, S.STABLE, S.DUE, S.LOST, S.FAILED)
NEVER = None
EXPECTED = {
    E.JOIN: (S.JOINING, NEVER, NEVER, NEVER, NEVER, S.JOINING, S.JOINING, NEVER),
    E.JOINED: (NEVER, S.SYNCING, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER),
    E.SYNCED: (NEVER, NEVER, S.ARRIVED, NEVER, NEVER, NEVER, NEVER, NEVER),
    E.ASSIGNED: (NEVER, S.ARRIVED, NEVER, S.ARRIVED, S.ARRIVED, NEVER, NEVER, NEVER),
    E.TAKEN: (NEVER, NEVER, NEVER, S.STABLE, NEVER, NEVER, NEVER, NEVER),
    E.REBALANCE: (S.OUT, S.JOINING, S.JOINING, S.DUE, S.DUE, S.DUE, S.LOST, S.FAILED),
    E.EXPELLED: (S.OUT, S.LOST, S.LOST, S.LOST, S.LOST, S.LOST, S.LOST, S.FAILED),
    E.FAIL: (NEVER, *(S.FAILED,) * 7),
    E.LEAVE: (S.OUT,) * 8,
}


@pytest.mark.parametrize("event", E)
def test_every_cell(event: MemberEvent) -> None:
    for state, expected in zip(STATES, EXPECTED[event], strict=True):
        if expected is NEVER:
            with pytest.raises(AssertionError):
                after(state, event)
        else:
            assert after(state, event) is expected


def test_every_state_goes_on_by_itself_or_at_a_poll() -> None:
    assert set(STATES) == set(S)
    assert {S.JOINING, S.STABLE} | BEATING | WAITS_FOR_POLL == set(S)
    assert S.JOINING not in BEATING | WAITS_FOR_POLL
