"""The kill schedule of the application part of the demo.

A seed decides at which share of the work each kill happens, which processor it hits, and how.
Shares and not seconds, so that the same kills happen on fast and slow machines.
"""

import random
from dataclasses import dataclass
from typing import Final

PARTITIONS: Final = 4
ROLES: Final = ("leader", "coordinator", "controller")

SCALE: Final = "scale"
KILL: Final = "kill processor"
INSIDE: Final = "kill inside a slice"
ZOMBIE: Final = "zombie"
OF_PROCESSORS: Final = frozenset({SCALE, KILL, INSIDE, ZOMBIE})

FOUR_FROM: Final = 0.15
TWO_FROM: Final = 0.70
PHASES: Final = (
    (0.02, 0.12, (KILL,), (KILL, INSIDE)),
    (0.18, 0.66, (KILL, INSIDE), (KILL, INSIDE, KILL, INSIDE)),
    (0.73, 0.92, (INSIDE,), (KILL, INSIDE)),
)
"""While one, four and two processors run: from, to, what is struck in a short run and in each round
of a long one."""


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens at `share` of the work (0 to 1).

    A processor is chosen by `number`; for `SCALE` that is how many shall run. `after` is the number
    of refunds, or of pauses between markers, after which the next process dies.
    """

    share: float
    kind: str
    number: int = 0
    after: int = 0

    @property
    def is_of_processors(self) -> bool:
        return self.kind in OF_PROCESSORS


def schedule(seed: int, *, rounds: int, is_cluster: bool = False) -> list[Strike]:
    """Draw the strikes: processors go from 1 to 4 to 2, and are killed meanwhile, as are brokers.

    A broker is killed twice in each round, or in a cluster the leader, the coordinator and the
    controller. One processor becomes a zombie, early while there are four.
    """
    dice = random.Random(seed)
    strikes = [
        Strike(FOUR_FROM, SCALE, 4),
        Strike(dice.uniform(0.16, 0.30), ZOMBIE, dice.randrange(PARTITIONS), 3),
        Strike(TWO_FROM, SCALE, 2),
    ]
    for number in range(rounds):
        for low, high, few, many in PHASES:
            for kind in few if rounds == 1 else many:
                share, chosen = dice.uniform(low, high), dice.randrange(PARTITIONS)
                strikes.append(Strike(share, kind, chosen, dice.randint(1, 12)))
        low, high = 0.02 + 0.9 * number / rounds, 0.02 + 0.9 * (number + 1) / rounds
        if is_cluster:
            strikes += [Strike(dice.uniform(low, high), role) for role in ROLES]
            continue
        strikes.append(Strike(dice.uniform(low, high), "kill broker"))
        after = dice.randint(1, 6)
        strikes.append(Strike(dice.uniform(low, high), "kill between markers", after=after))
    return sorted(strikes, key=lambda strike: strike.share)
