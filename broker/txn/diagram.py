"""The state diagram in docs/transactions.md, made from the table, so that it stays true.

`scripts/fix` runs this, which writes the diagram between two marks:

    python -m odradek.broker.txn.diagram docs/transactions.md

A test fails if the page has another diagram.
"""

import sys
from pathlib import Path
from typing import Final

from odradek.broker.txn.events import Event
from odradek.broker.txn.moves import Move
from odradek.broker.txn.state import TABLE, Cell
from odradek.broker.txn.transaction import State
from odradek.protocol.transition_table import Impossible

BEGIN: Final = "<!-- made from the table in broker/txn/state.py: scripts/fix makes it anew -->"
END: Final = "<!-- end of the diagram -->"

STARTING: Final = "InitProducerId"
KEEPING: Final = "InitProducerId(keep)"
LABELS: Final = {
    STARTING: {
        Event.INIT_NEW,
        Event.INIT_CURRENT,
        Event.INIT_LAST,
        Event.INIT_STALE,
    },
    KEEPING: {Event.KEEP_NEW, Event.KEEP_CURRENT, Event.KEEP_LAST},
    "a partition": {Event.ADD, Event.ADD_KNOWN},
    "EndTxn(commit)": {Event.COMMIT},
    "EndTxn(abort)": {Event.ABORT},
    "time-out": {Event.FENCE},
    "producer gone": {Event.DISCONNECT},
    "epoch + 1": {Event.ABORT_FENCED},
    "all markers written": {Event.MARKED},
    "unused for long": {Event.EXPIRE},
}
"""The label of each event that changes the state. Other events are not in the diagram."""


def diagram() -> str:
    """Return the state diagram in mermaid's form. TV2 marks what only that generation does."""
    lines = ["stateDiagram-v2", "    [*] --> Empty: InitProducerId"]
    for (source, target), (words, is_new) in _transitions().items():
        labels = " or ".join(w for w in words if w != KEEPING or STARTING not in words)
        lines.append(f"    {source.label} --> {target.label}: {labels}{' (TV2)' if is_new else ''}")
    lines.append("    Dead --> [*]: its record is removed")
    return "\n".join(lines)


def _transitions() -> dict[tuple[State, State], tuple[list[str], bool]]:
    """Return for each transition the labels of its events, and whether only TV2 has it."""
    found: dict[tuple[State, State], tuple[list[str], bool]] = {}
    for words, events in LABELS.items():
        for version, table in TABLE.items():
            for event, source, target in table.transitions(_targets):
                if event in events:
                    labels, is_new = found.get((source, target), ([], True))
                    if words not in labels:
                        labels.append(words)
                    found[source, target] = (labels, is_new and version == 2)
    return dict(sorted(found.items()))


def _targets(cell: Cell | Impossible) -> tuple[State, ...]:
    return (cell.target,) if isinstance(cell, Move) else ()


def with_diagram(text: str) -> str:
    """Return `text` with the diagram between its marks. Raises ValueError if they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"there is no place for the diagram: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n```mermaid\n{diagram()}\n```\n\n{END}{after}"


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(with_diagram(path.read_text()))


if __name__ == "__main__":
    main()
