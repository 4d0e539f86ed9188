"""The table of what a transactional producer may do."""

import pytest

from odradek.client.errors import Aborted, Fatal, OdradekError, Refused
from odradek.client.producing.state import TABLE, Event, State, step


def test_every_cell_is_filled() -> None:
    assert set(TABLE) == set(State)
    for state, row in TABLE.items():
        assert set(row) == set(Event), state


@pytest.mark.parametrize("state", State)
def test_a_failure_is_for_ever(state: State) -> None:
    assert step(state, Event.FAIL) is State.FAILED


@pytest.mark.parametrize("event", Event)
def test_nothing_leads_out_of_a_failure(event: Event) -> None:
    following = TABLE[State.FAILED][event]
    assert following is State.FAILED or (isinstance(following, tuple) and following[0] is Fatal)


def test_only_the_coordinators_confirmation_makes_a_producer_ready_again() -> None:
    arrivals = {
        (state, event)
        for state, row in TABLE.items()
        for event, following in row.items()
        if following is State.READY and state is not State.READY
    }
    assert arrivals == {
        (State.NEW, Event.INITIALISED),
        (State.COMMITTING, Event.ENDED),
        (State.ABORTING, Event.ENDED),
    }


def test_only_an_open_or_prepared_transaction_can_be_committed() -> None:
    committable = [state for state in State if TABLE[state][Event.COMMIT] is State.COMMITTING]
    assert committable == [State.OPEN, State.PREPARED]


def test_only_what_is_open_or_was_found_can_be_prepared() -> None:
    preparable = [state for state in State if TABLE[state][Event.PREPARE] is State.PREPARED]
    assert preparable == [State.NEW, State.OPEN]


def test_records_are_taken_only_in_an_open_transaction() -> None:
    taking = [state for state in State if isinstance(TABLE[state][Event.SEND], State)]
    assert taking == [State.OPEN, State.IN_DOUBT]


@pytest.mark.parametrize(
    ("state", "event", "kind"),
    [
        (State.NEW, Event.BEGIN, Refused),
        (State.READY, Event.SEND, Refused),
        (State.READY, Event.COMMIT, Refused),
        (State.OPEN, Event.BEGIN, Refused),
        (State.ABORTABLE, Event.SEND, Aborted),
        (State.ABORTABLE, Event.COMMIT, Aborted),
        (State.COMMITTING, Event.ABORT, Refused),
        (State.FAILED, Event.BEGIN, Fatal),
    ],
)
def test_what_is_not_allowed_is_told_in_words(
    state: State, event: Event, kind: type[OdradekError]
) -> None:
    with pytest.raises(kind, match=r"\w+ \w+"):
        step(state, event)


def test_a_lost_record_during_a_commit_leads_to_an_abort() -> None:
    state = step(step(State.READY, Event.BEGIN), Event.COMMIT)
    state = step(state, Event.ABORT_NEEDED)
    assert state is State.ABORTABLE
    assert step(step(state, Event.ABORT), Event.ENDED) is State.READY


def test_late_news_of_an_ended_transaction_change_nothing() -> None:
    for event in (Event.ABORT_NEEDED, Event.DOUBT, Event.TIMED_OUT):
        assert step(State.READY, event) is State.READY
