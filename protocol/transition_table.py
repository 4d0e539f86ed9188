"""The table of a state machine: a row for each event, a column for each state. It does no I/O.

Five modules named `state.py` have one: transactions and the two kinds of group in the broker, a
transactional producer and a member of a group in the client. Each writes its table as literal rows,
whose columns are the states in the order of their enum:

    ROWS: Final[Rows[DoorEvent, Cell]] = (
        #          Open     Closed   Locked
        (E.OPEN,  (DONE,    OPEN,    REFUSED)),
        (E.LOCK,  (REFUSED, LOCKED,  NEVER)),
    )
    TABLE: Final = TransitionTable(DoorState, DoorEvent, ROWS)

    cell = TABLE[DoorState.OPEN, DoorEvent.LOCK]

What a cell is, and what follows from it, is the module's own affair. The table is complete: an
import fails if an event has no row or two, or a row lacks a cell. So a pair that cannot come is
written down, too, as `NEVER`.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Final, Generic, TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)
Cell = TypeVar("Cell")

Rows = tuple[tuple[Event, tuple[Cell, ...]], ...]


class Impossible(Enum):
    """The cell of an event that cannot come in a state."""

    NEVER = auto()
    """Reaching it is a bug of this program."""


NEVER: Final = Impossible.NEVER


class TransitionTable(dict[tuple[State, Event], Cell], Generic[State, Event, Cell]):
    """A cell for each state and event."""

    def __init__(
        self,
        states: type[State],
        events: type[Event],
        rows: Iterable[tuple[Event, tuple[Cell, ...]]],
    ) -> None:
        """Fill the table. Raises AssertionError for a row or a cell too many or too few."""
        super().__init__()
        seen = set()
        for event, row in rows:
            assert event not in seen, f"two rows for {event.name}"
            seen.add(event)
            assert len(row) == len(states), f"{event.name}: {len(row)} cells, {len(states)} states"
            self.update({(state, event): cell for state, cell in zip(states, row, strict=True)})
        missing = [event.name for event in events if event not in seen]
        assert not missing, f"no row for {missing}"

    def transitions(
        self, targets: Callable[[Cell], Iterable[State]]
    ) -> Iterator[tuple[Event, State, State]]:
        """Yield the event, the source and the target of each transition, in the table's order.

        `targets` returns the states that a cell leads to. A diagram is made from this.
        """
        for (source, event), cell in self.items():
            for target in targets(cell):
                yield event, source, target
