"""The transitions that stand at the head of each state table are those of the table."""

import textwrap
from collections.abc import Iterable
from enum import Enum
from types import ModuleType

import pytest

from odradek.broker.group import state as classic_group
from odradek.broker.group.consumer import state as consumer_group
from odradek.client.grouping import state as member
from odradek.client.producing import state as producer


def targets_of(cell: object) -> Iterable[Enum]:
    """Return the states that a cell of any of the tables leads to."""
    if isinstance(cell, classic_group.Go):
        return (cell.state,)
    if isinstance(cell, frozenset):
        return sorted(cell, key=list(consumer_group.ConsumerState).index)
    return (cell,) if isinstance(cell, producer.SessionState | member.MemberState) else ()


def arrows(module: ModuleType) -> list[str]:
    """Return a line for each pair of states and the events that lead from one to the other.

    Sources with the same events and the same target share a line.
    """
    events: dict[tuple[Enum, Enum], list[str]] = {}
    for event, source, target in module.TABLE.transitions(targets_of):
        if source is not target:
            events.setdefault((source, target), []).append(event.name)
    sources: dict[tuple[Enum, str], list[str]] = {}
    for (source, target), names in events.items():
        sources.setdefault((target, ", ".join(names)), []).append(source.name)
    return [
        f"{', '.join(names)} --> {target.name}: {words}"
        for (target, words), names in sources.items()
    ]


@pytest.mark.parametrize("module", [classic_group, consumer_group, producer, member])
def test_the_docstring_has_the_transitions_of_the_table(module: ModuleType) -> None:
    wrapped = [
        textwrap.fill(line, 100, initial_indent=4 * " ", subsequent_indent=12 * " ")
        for line in arrows(module)
    ]
    expected = "\n" + "\n".join(wrapped) + "\n\n"
    assert expected in (module.__doc__ or ""), f"write there:\n{expected}"
    assert (module.__doc__ or "").count("-->") == len(wrapped)
