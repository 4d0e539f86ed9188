"""The states of a member of a group, and the table of what leads from one to another. Pure.

A rebalance has a part that runs in the background (JoinGroup, SyncGroup, heartbeats) and a part
that waits for the program's next poll, because the program's callbacks are part of it:

    OUT, DUE, LOST --> JOINING: JOIN
    JOINING --> SYNCING: JOINED
    SYNCING --> ARRIVED: SYNCED
    JOINING, STABLE --> ARRIVED: ASSIGNED
    ARRIVED --> STABLE: TAKEN
    SYNCING --> JOINING: REBALANCE
    ARRIVED, STABLE --> DUE: REBALANCE
    JOINING, SYNCING, ARRIVED, STABLE, DUE --> LOST: EXPELLED
    JOINING, SYNCING, ARRIVED, STABLE, DUE, LOST --> FAILED: FAIL
    JOINING, SYNCING, ARRIVED, STABLE, DUE, LOST, FAILED --> OUT: LEAVE

- At JOIN, with the eager protocol, the program has given up all its partitions. With the
  cooperative one it keeps them, and reads on.
- At TAKEN the program has got its assignment. If it had to give up partitions then, which only
  the cooperative protocol asks, a REBALANCE follows at once, so that others get them.
- EXPELLED: the group goes on without the member: it was silent for the session's time, or did not
  join in time, or did not poll; or, after a failover, without its generation. Its partitions have
  other owners by now, or may have them. At the next poll the program learns that, and JOIN follows.
- FAILED: the group does not take the member. Each poll raises the reason, until the program
  subscribes again.

A member of the new protocol (KIP-848) has no SYNCING and no DUE: the coordinator divides the
partitions, and each heartbeat may bring an ASSIGNED. It replaces an earlier assignment that no poll
has taken. Its heartbeats go on while it is JOINING.

Heartbeats of the classic protocol are sent in `BEATING`. In JOINING the coordinator expects none.
"""

from enum import Enum
from typing import Final

from odradek.protocol.transition_table import NEVER, Impossible, Rows, TransitionTable


class MemberState(Enum):
    OUT = "not in the group"
    JOINING = "joining"
    SYNCING = "waiting for its assignment"
    ARRIVED = "has an assignment for the next poll"
    STABLE = "stable"
    DUE = "joins again at the next poll"
    LOST = "lost its membership"
    FAILED = "refused"


class MemberEvent(Enum):
    JOIN = "a poll lets it join"
    JOINED = "JoinGroup is answered: the generation has begun"
    SYNCED = "SyncGroup is answered: the assignment is there"
    ASSIGNED = "a heartbeat has brought an assignment (KIP-848)"
    TAKEN = "a poll has handed the assignment to the program"
    REBALANCE = "the members have to join again"
    EXPELLED = "the coordinator does not count it as a member any more"
    FAIL = "the coordinator does not accept it"
    LEAVE = "the program leaves"


Cell = MemberState | Impossible

E = MemberEvent
OUT, JOINING, SYNCING, ARRIVED, STABLE, DUE, LOST, FAILED = MemberState

# REBALANCE in Joining: nothing is to be done for the program before it joins again. In Arrived: an
# assignment that no poll has taken is dropped, because it is out of date.
# fmt: off
ROWS: Final[Rows[MemberEvent, Cell]] = (
    #               Out      Joining  Syncing  Arrived  Stable   Due      Lost     Failed
    (E.JOIN,       (JOINING, NEVER,   NEVER,   NEVER,   NEVER,   JOINING, JOINING, NEVER)),
    (E.JOINED,     (NEVER,   SYNCING, NEVER,   NEVER,   NEVER,   NEVER,   NEVER,   NEVER)),
    (E.SYNCED,     (NEVER,   NEVER,   ARRIVED, NEVER,   NEVER,   NEVER,   NEVER,   NEVER)),
    (E.ASSIGNED,   (NEVER,   ARRIVED, NEVER,   ARRIVED, ARRIVED, NEVER,   NEVER,   NEVER)),
    (E.TAKEN,      (NEVER,   NEVER,   NEVER,   STABLE,  NEVER,   NEVER,   NEVER,   NEVER)),
    (E.REBALANCE,  (OUT,     JOINING, JOINING, DUE,     DUE,     DUE,     LOST,    FAILED)),
    (E.EXPELLED,   (OUT,     LOST,    LOST,    LOST,    LOST,    LOST,    LOST,    FAILED)),
    (E.FAIL,       (NEVER,   FAILED,  FAILED,  FAILED,  FAILED,  FAILED,  FAILED,  FAILED)),
    (E.LEAVE,      (OUT,     OUT,     OUT,     OUT,     OUT,     OUT,     OUT,     OUT)),
)
# fmt: on
TABLE: Final = TransitionTable(MemberState, MemberEvent, ROWS)

MEMBERS: Final = frozenset({ARRIVED, STABLE})
"""The states in which the coordinator counts it as a member, and has given it an assignment."""
BEATING: Final = frozenset({SYNCING, ARRIVED, STABLE, DUE})
WAITS_FOR_POLL: Final = frozenset({OUT, ARRIVED, DUE, LOST, FAILED})
"""The states in which the next poll has something to do."""


def state_after(state: MemberState, event: MemberEvent) -> MemberState:
    """Return the state after `event`, which must be able to come in `state`."""
    following = TABLE[state, event]
    assert following is not NEVER, (state, event)
    return following
