"""A table is complete, or it is refused."""

from enum import Enum, auto

import pytest

from odradek.protocol.transition_table import NEVER, Impossible, TransitionTable


class Door(Enum):
    OPEN = auto()
    SHUT = auto()
    LOCKED = auto()


class Event(Enum):
    PUSH = auto()
    LOCK = auto()


PUSHED = (Event.PUSH, (Door.SHUT, Door.OPEN, Door.LOCKED))
LOCKED = (Event.LOCK, (NEVER, Door.LOCKED, NEVER))


def table(
    *rows: tuple[Event, tuple[Door | Impossible, ...]],
) -> TransitionTable[Door, Event, object]:
    return TransitionTable(Door, Event, rows)


def test_a_cell_is_found_by_state_and_event() -> None:
    complete = table(PUSHED, LOCKED)
    assert len(complete) == 6
    assert complete[Door.OPEN, Event.PUSH] is Door.SHUT
    assert complete[Door.SHUT, Event.LOCK] is Door.LOCKED
    assert complete[Door.OPEN, Event.LOCK] is NEVER


def test_an_event_without_a_row_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"no row for \['LOCK'\]"):
        table(PUSHED)


def test_an_event_with_two_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="two rows for PUSH"):
        table(PUSHED, LOCKED, PUSHED)


@pytest.mark.parametrize("cells", [(Door.OPEN, Door.OPEN), (NEVER,) * 4])
def test_a_row_with_a_cell_too_few_or_too_many_is_refused(
    cells: tuple[Door | Impossible, ...],
) -> None:
    with pytest.raises(AssertionError, match=f"LOCK: {len(cells)} cells, 3 states"):
        table(PUSHED, (Event.LOCK, cells))


def test_the_transitions_are_those_cells_that_lead_to_a_state() -> None:
    def targets(cell: object) -> list[Door]:
        return [cell] if isinstance(cell, Door) else []

    assert list(table(LOCKED, PUSHED).transitions(targets)) == [
        (Event.LOCK, Door.SHUT, Door.LOCKED),
        (Event.PUSH, Door.OPEN, Door.SHUT),
        (Event.PUSH, Door.SHUT, Door.OPEN),
        (Event.PUSH, Door.LOCKED, Door.LOCKED),
    ]
