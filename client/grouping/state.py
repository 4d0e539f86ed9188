"""The states of a member of a group, and the table of what leads from one to another. Pure.

A rebalance has a part that runs in the background (JoinGroup, SyncGroup, heartbeats) and a part
that waits for the program's next poll, because the program's callbacks are part of it:

    OUT --JOIN--> JOINING --JOINED--> SYNCING --SYNCED--> ARRIVED --TAKEN--> STABLE
                     ^                                                          |
                     +------------JOIN------------- DUE <------REBALANCE--------+

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

from collections.abc import Mapping
from enum import Enum
from typing import Final


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


_S = MemberState
TABLE: Final[Mapping[MemberEvent, Mapping[MemberState, MemberState]]] = {
    MemberEvent.JOIN: {
        _S.OUT: _S.JOINING,
        _S.DUE: _S.JOINING,
        _S.LOST: _S.JOINING,
    },
    MemberEvent.JOINED: {_S.JOINING: _S.SYNCING},
    MemberEvent.SYNCED: {_S.SYNCING: _S.ARRIVED},
    MemberEvent.ASSIGNED: dict.fromkeys((_S.JOINING, _S.ARRIVED, _S.STABLE), _S.ARRIVED),
    MemberEvent.TAKEN: {_S.ARRIVED: _S.STABLE},
    MemberEvent.REBALANCE: {
        # While it joins, nothing is to be done for the program before it joins again.
        _S.JOINING: _S.JOINING,
        _S.SYNCING: _S.JOINING,
        # An assignment that no poll has taken is dropped: it is out of date.
        _S.ARRIVED: _S.DUE,
        _S.STABLE: _S.DUE,
        _S.DUE: _S.DUE,
        _S.OUT: _S.OUT,
        _S.LOST: _S.LOST,
        _S.FAILED: _S.FAILED,
    },
    MemberEvent.EXPELLED: {
        _S.JOINING: _S.LOST,
        _S.SYNCING: _S.LOST,
        _S.ARRIVED: _S.LOST,
        _S.STABLE: _S.LOST,
        _S.DUE: _S.LOST,
        _S.OUT: _S.OUT,
        _S.LOST: _S.LOST,
        _S.FAILED: _S.FAILED,
    },
    MemberEvent.FAIL: {state: _S.FAILED for state in _S if state is not _S.OUT},
    MemberEvent.LEAVE: dict.fromkeys(_S, _S.OUT),
}
"""The next state. A pair that is not in it cannot happen."""

MEMBERS: Final = frozenset({_S.ARRIVED, _S.STABLE})
"""The states in which the coordinator counts it as a member, and has given it an assignment."""
BEATING: Final = frozenset({_S.SYNCING, _S.ARRIVED, _S.STABLE, _S.DUE})
WAITS_FOR_POLL: Final = frozenset({_S.OUT, _S.ARRIVED, _S.DUE, _S.LOST, _S.FAILED})
"""The states in which the next poll has something to do."""


def state_after(state: MemberState, event: MemberEvent) -> MemberState:
    """Return the next state."""
    following = TABLE[event].get(state)
    assert following is not None, (state, event)
    return following
