"""What users may do at which times, and the judge of what brokers let them do.

A permit is one use of one resource by one user. Its entries change while it is used. Each change is
a phase: it counts at the earliest when it is asked for. Its end is the acknowledgement of the next
change, after which no broker may go by the old entries for long:

- the broker that has acknowledged the change, not at all;
- another one, for a second while nothing holds up its watch of the metadata store;
- otherwise for as long as `docs/acls.md` says: until its session has run out, or, when it follows
  late, until it has lacked a change that it knows of for two times two seconds.

So an answer is right if it is that of some phase that may have counted between the moment at which
the request was sent, or its newest record was, and the answer. A change whose answer was lost may
be made at any time later, so it is the last phase of its permit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from math import inf
from typing import Final

import trio

from odradek.broker.cluster.metadata import BEHIND_SECONDS
from odradek.broker.security.principal import Principal
from odradek.broker.security.rights import Right
from odradek.protocol.errors import ErrorCode
from tests.simulation.world import World

SECOND: Final = 1.0
"""The time after which every broker that is not held up goes by a change."""
NO_NODE: Final = -1
REFUSED: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
}


class Deed(Enum):
    """What a user does to a resource."""

    USE = auto()
    """Read or write, which the entries are about."""
    LOOK = auto()
    """Describe it, which is allowed with that, and not denied with that."""


@dataclass(slots=True, kw_only=True)
class Phase:
    """The entries after one change."""

    allowed: frozenset[Deed]
    begun: float
    node: int = NO_NODE
    """The broker that has acknowledged the change."""
    acknowledged: float = inf

    def acknowledge(self, node: int) -> None:
        self.node, self.acknowledged = node, trio.current_time()


@dataclass(slots=True, kw_only=True)
class Permit:
    """One use of a resource by a user, at a host of the same name."""

    world: World
    violations: list[str]
    name: str
    """The resource; of a login, the user."""
    user: str
    right: Right | None
    """None for a login."""
    phases: list[Phase] = field(default_factory=list)
    _was_used: bool = False

    def __post_init__(self) -> None:
        self.phases.append(Phase(allowed=frozenset(), begun=-inf, acknowledged=-inf))

    @property
    def is_known(self) -> bool:
        """Return True if the last change was acknowledged."""
        return self.phases[-1].acknowledged < inf

    @property
    def allows(self) -> bool:
        return Deed.USE in self.phases[-1].allowed

    def change(self, allowed: frozenset[Deed]) -> Phase:
        """Begin the next phase, and return it."""
        self.phases.append(Phase(allowed=allowed, begun=trio.current_time()))
        return self.phases[-1]

    def note(self, node: int, deed: Deed, code: int, *, since: float) -> None:
        """Judge an answer of a broker that it has decided after `since`, as its code shows."""
        if code in REFUSED:
            is_granted = False
        elif code == ErrorCode.NONE:
            is_granted = True
        else:
            return
        self.world.trace("deed", self.user, deed.name, self.name, node, is_granted)
        if deed is Deed.USE:
            if self._was_used and not is_granted:
                self.world.reached("a right was taken away while it was used")
            self._was_used = is_granted
        possible = list(self._possible(node, since))
        if not any((deed in phase.allowed) is is_granted for phase in possible):
            what = "was granted" if is_granted else "was refused"
            self.violations.append(
                f"access: {self.user} {what} {deed.name} of {self.name} by broker {node} at "
                f"{trio.current_time():.3f}, decided after {since:.3f}, and the entries are other "
                f"ones since {possible[0].acknowledged:.3f} (broker {possible[0].node})"
            )

    def _possible(self, node: int, since: float) -> Iterator[Phase]:
        """Yield the phases that may have counted at a broker between a moment and now."""
        for phase, following in pairwise(self.phases):
            if following.acknowledged + self._lag(node, following) >= since:
                yield phase
        yield self.phases[-1]

    def _lag(self, node: int, change: Phase) -> float:
        """Return how long a broker may go by what was before a change."""
        if node == change.node:
            return 0.0
        longest = longest_lag(self.world)
        return SECOND if self.world.calm_since + longest <= change.acknowledged else longest

    def judge_at_rest(self) -> Iterator[str]:
        """Yield what brokers decide otherwise when all is at rest."""
        if not self.is_known or self.right is None:
            return
        for machine in self.world.machines.values():
            if machine.core is None or not machine.is_up:
                continue
            access = machine.core.authorizer.access_of(Principal("User", self.user), self.user)
            if access.shows(self.right, self.name) is not self.allows:
                yield (
                    f"access: broker {machine.node_id} decides {not self.allows} for {self.user} "
                    f"and {self.right} {self.name} at rest"
                )


def longest_lag(world: World) -> float:
    """Return for how long a broker may go by old entries, whatever holds it up."""
    if world.is_alone:
        return 0.0
    sessions = [each.config.broker_session_timeout_ms for each in world.machines.values()]
    return max(sessions) / 1000 + 2 * BEHIND_SECONDS
