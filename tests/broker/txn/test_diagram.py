"""The state diagram in the documentation is the table's."""

from pathlib import Path

import pytest

from odradek.broker.txn.diagram import BEGIN, END, LABELS, diagram, with_diagram
from odradek.broker.txn.events import Event
from odradek.broker.txn.moves import Move
from odradek.broker.txn.state import TABLE
from odradek.broker.txn.transaction import State

PAGE = Path(__file__).parents[3] / "docs" / "transactions.md"


def test_the_page_shows_the_table_of_today() -> None:
    text = PAGE.read_text()
    assert text == with_diagram(text), "run scripts/fix"


def test_every_transition_of_the_table_is_in_the_picture() -> None:
    shown = diagram()
    for table in TABLE.values():
        for (source, event), cell in table.items():
            if isinstance(cell, Move):
                assert f"{source.label} --> {cell.target.label}:" in shown, event
                assert any(event in said for said in LABELS.values()), event


def test_an_event_that_leads_nowhere_has_no_words() -> None:
    leading = {
        event
        for table in TABLE.values()
        for (_, event), cell in table.items()
        if isinstance(cell, Move)
    }
    assert set().union(*LABELS.values()) == leading
    assert leading < set(Event)


def test_all_eight_states_are_in_the_picture() -> None:
    assert all(state.label in diagram() for state in State)


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        with_diagram("# Odradek")
    assert with_diagram(f"a {BEGIN}old{END} z").startswith(f"a {BEGIN}")
    assert "old" not in with_diagram(f"a {BEGIN}old{END} z")
