"""The table of what a transactional producer may do."""

import pytest

from odradek.client.errors import Aborted, Fatal, OdradekError, Refused
from odradek.client.producing.state import TABLE, SessionEvent, SessionState, state_after


@pytest.mark.parametrize("state", SessionState)
def test_a_failure_is_for_ever(state: SessionState) -> None:
    assert state_after(state, SessionEvent.FAIL) is SessionState.FAILED


@pytest.mark.parametrize("event", SessionEvent)
def test_nothing_leads_out_of_a_failure(event: SessionEvent) -> None:
    following = TABLE[SessionState.FAILED, event]
    assert following is SessionState.FAILED or (
        isinstance(following, tuple) and following[0] is Fatal
    )


def test_only_the_coordinators_confirmation_makes_a_producer_ready_again() -> None:
    arrivals = {
        (state, event)
        for (state, event), following in TABLE.items()
        if following is SessionState.READY and state is not SessionState.READY
    }
    assert arrivals == {
        (SessionState.NEW, SessionEvent.INITIALISED),
        (SessionState.COMMITTING, SessionEvent.ENDED),
        (SessionState.ABORTING, SessionEvent.ENDED),
    }


def test_only_an_open_or_prepared_transaction_can_be_committed() -> None:
    committable = [
        state
        for state in SessionState
        if TABLE[state, SessionEvent.COMMIT] is SessionState.COMMITTING
    ]
    assert committable == [SessionState.OPEN, SessionState.PREPARED]


def test_only_what_is_open_or_was_found_can_be_prepared() -> None:
    preparable = [
        state
        for state in SessionState
        if TABLE[state, SessionEvent.PREPARE] is SessionState.PREPARED
    ]
    assert preparable == [SessionState.NEW, SessionState.OPEN]


def test_records_are_taken_only_in_an_open_transaction() -> None:
    taking = [
        state for state in SessionState if isinstance(TABLE[state, SessionEvent.SEND], SessionState)
    ]
    assert taking == [SessionState.OPEN, SessionState.IN_DOUBT]


@pytest.mark.parametrize(
    ("state", "event", "kind"),
    [
        (SessionState.NEW, SessionEvent.BEGIN, Refused),
        (SessionState.READY, SessionEvent.SEND, Refused),
        (SessionState.READY, SessionEvent.COMMIT, Refused),
        (SessionState.OPEN, SessionEvent.BEGIN, Refused),
        (SessionState.ABORTABLE, SessionEvent.SEND, Aborted),
        (SessionState.ABORTABLE, SessionEvent.COMMIT, Aborted),
        (SessionState.COMMITTING, SessionEvent.ABORT, Refused),
        (SessionState.FAILED, SessionEvent.BEGIN, Fatal),
    ],
)
def test_what_is_not_allowed_is_told_in_words(
    state: SessionState, event: SessionEvent, kind: type[OdradekError]
) -> None:
    with pytest.raises(kind, match=r"\w+ \w+"):
        state_after(state, event)


def test_a_lost_record_during_a_commit_leads_to_an_abort() -> None:
    state = state_after(state_after(SessionState.READY, SessionEvent.BEGIN), SessionEvent.COMMIT)
    state = state_after(state, SessionEvent.ABORT_NEEDED)
    assert state is SessionState.ABORTABLE
    assert (
        state_after(state_after(state, SessionEvent.ABORT), SessionEvent.ENDED)
        is SessionState.READY
    )


def test_late_news_of_an_ended_transaction_change_nothing() -> None:
    for event in (SessionEvent.ABORT_NEEDED, SessionEvent.DOUBT, SessionEvent.TIMED_OUT):
        assert state_after(SessionState.READY, event) is SessionState.READY
