"""The states of a consumer group of the new protocol, and what each event may lead to.

    EMPTY --> ASSIGNING: JOIN
    EMPTY --> RECONCILING: JOIN
    EMPTY --> STABLE: JOIN
    ASSIGNING --> RECONCILING: JOIN, HEARTBEAT, JOIN_CLASSIC
    ASSIGNING, RECONCILING --> STABLE: JOIN, HEARTBEAT, JOIN_CLASSIC
    RECONCILING, STABLE --> ASSIGNING: JOIN, HEARTBEAT, LEAVE, JOIN_CLASSIC
    STABLE --> RECONCILING: JOIN, HEARTBEAT, LEAVE_FOR_A_WHILE, JOIN_CLASSIC
    ASSIGNING, RECONCILING, STABLE --> EMPTY: LEAVE
    EMPTY --> DEAD: JOIN_CLASSIC, DELETE, EXPIRE, UNLOAD
    ASSIGNING, RECONCILING, STABLE --> DEAD: DOWNGRADE, UNLOAD

One heartbeat may take several of these steps at once: a member that joins an empty group finds its
target computed, and is reconciled at once. So a cell of `TABLE` has *all* the states that the event
may lead to, or the error that it is refused with. The state itself follows from the group
(`consumer_group.py:state_of`), as in Kafka. The shell checks every change against the table.

The errors in the table are those of a whole group. The epochs of one member are checked in
`heartbeat.py`. Kafka's names of the states are the enum's values.
"""

from enum import Enum, auto
from typing import Final

from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.transition_table import Rows, TransitionTable


class ConsumerState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerEvent(Enum):
    """The events of a consumer group."""

    JOIN = auto()
    """A heartbeat with epoch 0."""
    HEARTBEAT = auto()
    """A heartbeat of a member, which may change its subscription or report a revocation."""
    LEAVE = auto()
    """Members leave, are removed by an administrator, or their time is over."""
    LEAVE_FOR_A_WHILE = auto()
    """A static member leaves, and its partitions wait for it (epoch -2)."""
    JOIN_CLASSIC = auto()
    """A member of the classic protocol joins. An empty group is removed for it."""
    SYNC_CLASSIC = auto()
    """A member of the classic protocol asks for its assignment."""
    HEARTBEAT_CLASSIC = auto()
    DOWNGRADE = auto()
    """All members that stay use the classic protocol, so the group becomes a classic one."""
    COMMIT = auto()
    """A member stores offsets."""
    COMMIT_AS_STRANGER = auto()
    """A request with a negative epoch stores offsets."""
    COMMIT_IN_TRANSACTION_AS_STRANGER = auto()
    """A transaction stores offsets, and names no member."""
    DELETE = auto()
    EXPIRE = auto()
    """No member and no offset is left."""
    UNLOAD = auto()
    """This broker is no longer the group's coordinator."""


E = ConsumerEvent
EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD = ConsumerState

Cell = frozenset[ConsumerState] | ErrorCode


def _may(*states: ConsumerState) -> frozenset[ConsumerState]:
    return frozenset(states)


ACTIVE: Final = _may(ASSIGNING, RECONCILING, STABLE)
LESS: Final = _may(EMPTY, ASSIGNING)
IS_E: Final = _may(EMPTY)
IS_A: Final = _may(ASSIGNING)
IS_R: Final = _may(RECONCILING)
IS_S: Final = _may(STABLE)
AWAY: Final = _may(RECONCILING)
GONE: Final = _may(DEAD)

UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID
MISSING: Final = ErrorCode.GROUP_ID_NOT_FOUND
BUSY: Final = ErrorCode.NON_EMPTY_GROUP
ELSE: Final = ErrorCode.NOT_COORDINATOR

# fmt: off
ROWS: Final[Rows[ConsumerEvent, Cell]] = (
    #                                      Empty     Assigning Reconciling Stable   Dead
    (E.JOIN,                              (ACTIVE,   ACTIVE,   ACTIVE,     ACTIVE,  ELSE)),
    (E.HEARTBEAT,                         (UNKNOWN,  ACTIVE,   ACTIVE,     ACTIVE,  ELSE)),
    (E.LEAVE,                             (UNKNOWN,  LESS,     LESS,       LESS,    ELSE)),
    (E.LEAVE_FOR_A_WHILE,                 (UNKNOWN,  IS_A,     IS_R,       AWAY,    ELSE)),
    (E.JOIN_CLASSIC,                      (GONE,     ACTIVE,   ACTIVE,     ACTIVE,  ELSE)),
    (E.SYNC_CLASSIC,                      (UNKNOWN,  IS_A,     IS_R,       IS_S,    ELSE)),
    (E.HEARTBEAT_CLASSIC,                 (UNKNOWN,  IS_A,     IS_R,       IS_S,    ELSE)),
    (E.DOWNGRADE,                         (UNKNOWN,  GONE,     GONE,       GONE,    ELSE)),
    (E.COMMIT,                            (UNKNOWN,  IS_A,     IS_R,       IS_S,    ELSE)),
    (E.COMMIT_AS_STRANGER,                (IS_E,     UNKNOWN,  UNKNOWN,    UNKNOWN, ELSE)),
    (E.COMMIT_IN_TRANSACTION_AS_STRANGER, (IS_E,     IS_A,     IS_R,       IS_S,    ELSE)),
    (E.DELETE,                            (GONE,     BUSY,     BUSY,       BUSY,    MISSING)),
    (E.EXPIRE,                            (GONE,     BUSY,     BUSY,       BUSY,    MISSING)),
    (E.UNLOAD,                            (GONE,     GONE,     GONE,       GONE,    GONE)),
)
# fmt: on
TABLE: Final = TransitionTable(ConsumerState, ConsumerEvent, ROWS)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The states that an event may lead to."""

    event: ConsumerEvent
    states: frozenset[ConsumerState]

    def check(self, state: ConsumerState) -> None:
        """Check the state after the event: another one is a bug of the broker."""
        assert state in self.states, (self.event, state)


def decide_for(state: ConsumerState, event: ConsumerEvent) -> Allowed:
    """Return the states that `event` may lead to in `state`.

    Raises KafkaError with the cell's code if the event is refused. Pure: nothing is changed.
    """
    cell = TABLE[state, event]
    if isinstance(cell, ErrorCode):
        raise KafkaError(cell, f"the group is {state.value}")
    return Allowed(event, cell)
