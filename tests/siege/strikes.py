"""What a siege does to the services, drawn from its seed, and how it is done and healed."""

import heapq
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from tests.cluster.running import Cluster

FIRST_SECONDS: Final = 8.0
LAST_SECONDS: Final = 12.0
"""No strike begins so soon before the end."""
BETWEEN_SECONDS: Final = (2.0, 5.0)
RECOVERY_SECONDS: Final = 3.0
"""A target is not struck again so soon after it was healed."""
AT_ONCE: Final = 2
STOP_AGAIN_SECONDS: Final = 0.2
KINDS: Final = {  # how long each lasts, in seconds
    "kill -9": (0.5, 5.0),
    "SIGSTOP": (1.0, 10.0),
    "SIGTERM": (0.5, 5.0),
    "cut": (2.0, 10.0),
    "cut one-way": (2.0, 10.0),
    "kill -9 of etcd's leader": (1.0, 5.0),
}
LEADER_OF_ETCD: Final = """
import json, sys, urllib.request
for name in sys.argv[1:]:
    request = urllib.request.Request(f"http://{name}:2379/v3/maintenance/status", b"{}")
    try:
        found = json.load(urllib.request.urlopen(request, timeout=1))
    except OSError:
        continue
    if found.get("leader") == found["header"]["member_id"]:
        print(name)
        break
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault: when it begins, what it is, what it hits, and after how many seconds it is healed.

    `targets` are one service, or the two ends of a link; empty for the leader of etcd, which is
    found when the time has come.
    """

    at: float
    kind: str
    targets: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.kind} {' to '.join(self.targets)} for {self.seconds:.1f} s"


def draw(
    seed: int,
    seconds: float,
    brokers: Sequence[str],
    etcd: Sequence[str],
    between_seconds: tuple[float, float] = BETWEEN_SECONDS,
) -> list[Strike]:
    """Return the strikes of a siege in the order of their times."""
    dice = random.Random(seed)
    strikes: list[Strike] = []
    at = FIRST_SECONDS
    while at < seconds - LAST_SECONDS:
        running = [each for each in strikes if each.at + each.seconds + RECOVERY_SECONDS > at]
        kind = dice.choice(list(KINDS))
        lasts = dice.uniform(*KINDS[kind])
        targets = _targets(dice, kind, brokers, etcd)
        is_free = all(
            set(each.targets) != set(targets) and not _both_hit_processes(each, targets)
            for each in running
        )
        if len(running) < AT_ONCE and is_free:
            strikes.append(Strike(at=at, kind=kind, targets=targets, seconds=lasts))
        at += dice.uniform(*between_seconds)
    return strikes


def _targets(
    dice: random.Random, kind: str, brokers: Sequence[str], etcd: Sequence[str]
) -> tuple[str, ...]:
    if kind == "kill -9 of etcd's leader":
        return ()
    if not kind.startswith("cut"):
        return (dice.choice(brokers),)
    name = dice.choice(brokers)
    other = dice.choice([*(each for each in brokers if each != name), *etcd])
    return (name, other) if dice.random() < 0.5 else (other, name)


def _both_hit_processes(strike: Strike, targets: tuple[str, ...]) -> bool:
    """Return True if two brokers would be away at once: nothing could be written meanwhile."""
    return len(strike.targets) == 1 and len(targets) == 1


def carry_out(cluster: Cluster, strikes: Sequence[Strike], say: Callable[[str], None]) -> int:
    """Do what was drawn at its times, heal each, and return how many were done."""
    started = time.monotonic()
    numbers = count()  # two events at one time stand in the order in which they were planned
    events: list[tuple[float, int, Strike, bool]] = [
        (strike.at, next(numbers), strike, False) for strike in strikes
    ]
    done = 0
    while events:
        at, _, strike, is_struck = heapq.heappop(events)
        time.sleep(max(0.0, started + at - time.monotonic()))
        if not is_struck:
            struck = _strike(cluster, strike)
            done += 1
            say(str(struck))
            heapq.heappush(events, (at + strike.seconds, next(numbers), struck, True))
        elif not _heal(cluster, strike):
            heapq.heappush(events, (at + STOP_AGAIN_SECONDS, next(numbers), strike, True))
    return done


def _strike(cluster: Cluster, strike: Strike) -> Strike:
    """Begin a strike; return it with its targets."""
    match strike.kind:
        case "kill -9":
            cluster.end(strike.targets[0], signal.SIGKILL)
        case "SIGSTOP":
            cluster.send(strike.targets[0], signal.SIGSTOP)
        case "SIGTERM":
            cluster.send(strike.targets[0], signal.SIGTERM)
        case "kill -9 of etcd's leader":
            leader = leader_of_etcd(cluster)
            cluster.end(leader, signal.SIGKILL)
            return replace(strike, targets=(leader,))
        case _:
            cluster.cut(*strike.targets, one_way=strike.kind == "cut one-way")
    return strike


def _heal(cluster: Cluster, strike: Strike) -> bool:
    """End a strike; return False if the service that was stopped still runs."""
    if strike.kind.startswith("cut"):
        name, other = strike.targets
        cluster.mend(name, other)
    elif strike.kind == "SIGSTOP":
        cluster.send(strike.targets[0], signal.SIGCONT)
    elif cluster.state(strike.targets[0]) != "down":
        return False
    else:
        cluster.start(strike.targets[0])
    return True


def leader_of_etcd(cluster: Cluster) -> str:
    """Return the name of the node that leads; wait for an election."""
    nodes = [name for name in cluster.services if name not in cluster.brokers]
    command = cluster.client([sys.executable, "-c", LEADER_OF_ETCD, *nodes])
    for _ in range(100):
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
        if finished.stdout:
            return finished.stdout.strip()
        time.sleep(0.1)
    raise AssertionError("etcd has no leader")
