"""The states of a classic consumer group and what each event does in each of them.

Each change of a group's membership begins the *join phase*: every member must send JoinGroup again,
and gets no answer until all have. Then the generation is raised by one, the answers are sent, and
the *sync phase* begins. The leader, which got the subscriptions of all members, sends the
assignment in its SyncGroup. When the assignment is on disk, every waiting SyncGroup is answered.

    EMPTY --> PREPARING_REBALANCE: ADD
    COMPLETING_REBALANCE --> PREPARING_REBALANCE: ADD, UPDATE, REPLACE, REPLACE_AND_RESELECT,
            REMOVE, ASSIGNMENT_NOT_STORED, SYNC_PHASE_TIMEOUT
    STABLE --> PREPARING_REBALANCE: ADD, REJOIN_AS_LEADER, UPDATE, REPLACE_AND_RESELECT, REMOVE,
            SYNC_PHASE_TIMEOUT
    PREPARING_REBALANCE --> COMPLETING_REBALANCE: JOIN_PHASE_OVER
    PREPARING_REBALANCE --> EMPTY: NOBODY_LEFT
    COMPLETING_REBALANCE --> STABLE: ASSIGNMENT_STORED
    EMPTY --> DEAD: DELETE, EXPIRE, UPGRADE, UNLOAD
    PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE --> DEAD: UPGRADE, UNLOAD

`TABLE` is the whole specification, in the form of the table of transactions: a row for each event,
a column for each state. A cell refuses the event with an error code, or has the next state and one
thing to do (`Do`), or is `LATE` or `NEVER`. The members and their votes are in
`classic_group.py`, their requests in `live_classic_group.py`, waiting and time in `rebalance.py`.

Kafka's names of the states, as DescribeGroups and ListGroups show them, are the enum's values.
"""

from enum import Enum, auto
from typing import Final

from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.transition_table import NEVER, Impossible, Rows, TransitionTable


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """The events of a group."""

    ADD = auto()
    """A new member joins."""
    REJOIN = auto()
    """A follower joins again, unchanged."""
    REJOIN_AS_LEADER = auto()
    """The leader joins again: it is going to make a new assignment."""
    UPDATE = auto()
    """A member joins again with other protocols, or with other metadata in them."""
    REPLACE = auto()
    """A static member restarts with a new member id; the selected protocol stays (KIP-345)."""
    REPLACE_AND_RESELECT = auto()
    """A static member restarts, and another protocol would now be selected."""
    REMOVE = auto()
    """A member left, or its session timed out."""
    JOIN_PHASE_OVER = auto()
    """All members have joined again; those that have not were removed."""
    NOBODY_LEFT = auto()
    """The join phase is over and there is no member."""
    SYNC = auto()
    """A follower asks for its assignment."""
    SYNC_AS_LEADER = auto()
    """The leader sends the assignment of every member."""
    ASSIGNMENT_STORED = auto()
    ASSIGNMENT_NOT_STORED = auto()
    SYNC_PHASE_TIMEOUT = auto()
    """Members have got their generation and have not sent SyncGroup in time."""
    HEARTBEAT = auto()
    COMMIT = auto()
    """A member stores offsets."""
    COMMIT_AS_STRANGER = auto()
    """A request without a member and a generation stores offsets."""
    COMMIT_IN_TRANSACTION = auto()
    COMMIT_IN_TRANSACTION_AS_STRANGER = auto()
    DELETE = auto()
    """An administrator deletes the group."""
    DELETE_OFFSETS = auto()
    """An administrator deletes offsets of topics that the members, consumers, do not read."""
    DELETE_OFFSETS_OF_OTHERS = auto()
    """The same for a group whose members are not consumers: their topics are not known."""
    EXPIRE = auto()
    """No member and no offset is left."""
    UPGRADE = auto()
    """A member of the new protocol (KIP-848) joins, for which the group is converted."""
    UNLOAD = auto()
    """This broker is no longer the group's coordinator."""


class Do(Enum):
    """The thing to do after a step, besides the change of the state."""

    NOTHING = auto()
    DELAY_FIRST_REBALANCE = auto()
    """Wait `group.initial.rebalance.delay.ms` for more members before the first generation."""
    REBALANCE = auto()
    """Refuse the waiting SyncGroups, then wait until every member has joined again."""
    END_JOIN_PHASE_IF_ALL_JOINED = auto()
    ANSWER_GENERATION = auto()
    """Answer JoinGroup at once with the current generation."""
    STORE_MEMBER = auto()
    """Store the group with the static member's new id, then answer with the same generation."""
    ANSWER_JOINS = auto()
    STORE_EMPTY = auto()
    """Store that the group has no members any more."""
    WAIT_FOR_ASSIGNMENT = auto()
    STORE_ASSIGNMENT = auto()
    ANSWER_SYNCS = auto()
    ANSWER_ASSIGNMENT = auto()
    STORE_TOMBSTONES = auto()
    SEND_AWAY = auto()
    """Answer every waiting request with NOT_COORDINATOR."""
    SEND_TO_JOIN_AGAIN = auto()
    """Answer every waiting request with REBALANCE_IN_PROGRESS."""


@dataclass(frozen=True, slots=True)
class Go:
    """The next state, and the thing to do."""

    state: GroupState
    do: Do = Do.NOTHING


@dataclass(frozen=True, slots=True)
class Refuse:
    code: ErrorCode


class NoStep(Enum):
    """The reason why nothing changes. No answer is sent."""

    LATE = auto()
    """An event of the broker came too late to matter."""


Cell = Go | Refuse | NoStep | Impossible

E = GroupEvent
LATE: Final = NoStep.LATE

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

UNKNOWN: Final = Refuse(ErrorCode.UNKNOWN_MEMBER_ID)
REJOIN: Final = Refuse(ErrorCode.REBALANCE_IN_PROGRESS)
GONE: Final = Refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
NOT_EMPTY: Final = Refuse(ErrorCode.NON_EMPTY_GROUP)
NOT_FOUND: Final = Refuse(ErrorCode.GROUP_ID_NOT_FOUND)

REBALANCE: Final = Go(PREPARING, Do.REBALANCE)
ONE_MORE: Final = Go(PREPARING, Do.END_JOIN_PHASE_IF_ALL_JOINED)
FIRST: Final = Go(PREPARING, Do.DELAY_FIRST_REBALANCE)
SAME: Final = Go(STABLE, Do.ANSWER_GENERATION)
AGAIN: Final = Go(COMPLETING, Do.ANSWER_GENERATION)
STAY_E: Final = Go(EMPTY)
STAY_P: Final = Go(PREPARING)
STAY_C: Final = Go(COMPLETING)
STAY_S: Final = Go(STABLE)
KEEP: Final = Go(STABLE, Do.STORE_MEMBER)
NEXT: Final = Go(COMPLETING, Do.ANSWER_JOINS)
NO_ONE: Final = Go(EMPTY, Do.STORE_EMPTY)
WAIT: Final = Go(COMPLETING, Do.WAIT_FOR_ASSIGNMENT)
ASSIGN: Final = Go(COMPLETING, Do.STORE_ASSIGNMENT)
ASSIGNED: Final = Go(STABLE, Do.ANSWER_SYNCS)
ASSIGNMENT: Final = Go(STABLE, Do.ANSWER_ASSIGNMENT)
BURY: Final = Go(DEAD, Do.STORE_TOMBSTONES)
SEND_AWAY: Final = Go(DEAD, Do.SEND_AWAY)
UPGRADED: Final = Go(DEAD, Do.SEND_TO_JOIN_AGAIN)
STAY_D: Final = Go(DEAD)

# fmt: off
ROWS: Final[Rows[GroupEvent, Cell]] = (
    #                                      Empty      Preparing  Completing Stable      Dead
    (E.ADD,                               (FIRST,     ONE_MORE,  REBALANCE, REBALANCE,  GONE)),
    (E.REJOIN,                            (UNKNOWN,   ONE_MORE,  AGAIN,     SAME,       GONE)),
    (E.REJOIN_AS_LEADER,                  (UNKNOWN,   ONE_MORE,  AGAIN,     REBALANCE,  GONE)),
    (E.UPDATE,                            (UNKNOWN,   ONE_MORE,  REBALANCE, REBALANCE,  GONE)),
    (E.REPLACE,                           (UNKNOWN,   ONE_MORE,  REBALANCE, KEEP,       GONE)),
    (E.REPLACE_AND_RESELECT,              (UNKNOWN,   ONE_MORE,  REBALANCE, REBALANCE,  GONE)),
    (E.REMOVE,                            (STAY_E,    ONE_MORE,  REBALANCE, REBALANCE,  LATE)),
    (E.JOIN_PHASE_OVER,                   (NEVER,     NEXT,      NEVER,     NEVER,      LATE)),
    (E.NOBODY_LEFT,                       (NEVER,     NO_ONE,    NEVER,     NEVER,      LATE)),
    (E.SYNC,                              (UNKNOWN,   REJOIN,    WAIT,      ASSIGNMENT, GONE)),
    (E.SYNC_AS_LEADER,                    (UNKNOWN,   REJOIN,    ASSIGN,    ASSIGNMENT, GONE)),
    (E.ASSIGNMENT_STORED,                 (LATE,      LATE,      ASSIGNED,  LATE,       LATE)),
    (E.ASSIGNMENT_NOT_STORED,             (LATE,      LATE,      REBALANCE, LATE,       LATE)),
    (E.SYNC_PHASE_TIMEOUT,                (LATE,      LATE,      REBALANCE, REBALANCE,  LATE)),
    (E.HEARTBEAT,                         (UNKNOWN,   REJOIN,    STAY_C,    STAY_S,     GONE)),
    (E.COMMIT,                            (UNKNOWN,   STAY_P,    REJOIN,    STAY_S,     GONE)),
    (E.COMMIT_AS_STRANGER,                (STAY_E,    UNKNOWN,   UNKNOWN,   UNKNOWN,    GONE)),
    (E.COMMIT_IN_TRANSACTION,             (UNKNOWN,   STAY_P,    STAY_C,    STAY_S,     GONE)),
    (E.COMMIT_IN_TRANSACTION_AS_STRANGER, (STAY_E,    STAY_P,    STAY_C,    STAY_S,     GONE)),
    (E.DELETE,                            (BURY,      NOT_EMPTY, NOT_EMPTY, NOT_EMPTY,  NOT_FOUND)),
    (E.DELETE_OFFSETS,                    (STAY_E,    STAY_P,    STAY_C,    STAY_S,     NOT_FOUND)),
    (E.DELETE_OFFSETS_OF_OTHERS,          (STAY_E,    NOT_EMPTY, NOT_EMPTY, NOT_EMPTY,  NOT_FOUND)),
    (E.EXPIRE,                            (BURY,      LATE,      LATE,      LATE,       LATE)),
    (E.UPGRADE,                           (UPGRADED,  UPGRADED,  UPGRADED,  UPGRADED,   GONE)),
    (E.UNLOAD,                            (SEND_AWAY, SEND_AWAY, SEND_AWAY, SEND_AWAY,  STAY_D)),
)
# fmt: on
TABLE: Final = TransitionTable(GroupState, GroupEvent, ROWS)


def decide(state: GroupState, event: GroupEvent) -> Go | None:
    """Return the cell for `event` in `state`; None if the event came too late to matter.

    Raises KafkaError with the cell's code if it is refused. Pure: nothing is changed.
    """
    cell = TABLE[state, event]
    if isinstance(cell, Refuse):
        raise KafkaError(cell.code, f"the group is {state.value}")
    assert cell is not NEVER, (state, event)
    return cell if isinstance(cell, Go) else None
