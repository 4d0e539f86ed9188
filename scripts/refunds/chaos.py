"""The kill schedule of the application part of the demo, and the supervisor that carries it out.

A seed decides at which share of the work each kill happens, which processor it hits, and how.
Shares and not seconds, so that the same kills happen on fast and slow machines.
"""

import queue
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scripts.refunds.besieged import Besieged
from scripts.refunds.processes import KILLED, Worker, wait_for
from scripts.refunds.processor import FENCED_STATUS

PARTITIONS: Final = 4
ROLES: Final = ("leader", "coordinator", "controller")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Strike:
    """A kill at `share` of the work (0 to 1), of a kind, after a number of refunds.

    `partition` is that of the processor that is struck; None: a broker is.
    """

    share: float
    kind: str
    partition: int | None = None
    after: int = 0


def schedule(seed: int, *, rounds: int, is_cluster: bool = False) -> list[Strike]:
    """Draw the kills: in each round every processor twice and the broker twice, and one zombie.

    Of a cluster the leader, the coordinator and the controller are killed in each round.
    """
    dice = random.Random(seed)
    strikes = [Strike(dice.uniform(0.10, 0.30), "zombie", dice.randrange(PARTITIONS), 3)]
    for number in range(rounds):
        low, high = 0.02 + 0.9 * number / rounds, 0.02 + 0.9 * (number + 1) / rounds
        for partition in range(PARTITIONS):
            strikes.append(Strike(dice.uniform(low, high), "kill processor", partition))
            after = dice.randint(1, 12)
            strikes.append(Strike(dice.uniform(low, high), "kill inside a slice", partition, after))
        if is_cluster:
            strikes += [Strike(dice.uniform(low, high), role) for role in ROLES]
            continue
        strikes.append(Strike(dice.uniform(low, (low + high) / 2), "kill broker"))
        after = dice.randint(1, 6)
        strikes.append(
            Strike(dice.uniform(low, (low + high) / 2), "kill between markers", None, after)
        )
    return sorted(strikes, key=lambda strike: strike.share)


@dataclass(slots=True)
class Supervisor:
    """The supervisor of the workers, one per partition. It restarts them until the end."""

    besieged: Besieged
    ends: dict[int, int]
    slice_records: int
    log: Path
    say: Say
    progress: Callable[[int], None]
    strikes: list[Strike]
    events: "queue.SimpleQueue[tuple[Worker, dict[str, Any]]]" = field(
        default_factory=queue.SimpleQueue
    )
    workers: dict[int, Worker] = field(default_factory=dict)
    zombie: Worker | None = None
    positions: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    all_workers: list[Worker] = field(default_factory=list)

    def run(self) -> Counter[str]:
        try:
            for partition in self.ends:
                self.start(partition)
            while len(self.done()) < len(self.ends) or self.zombie is not None:
                self.besieged.look_after()
                self.strike()
                self.take_event()
        finally:
            for worker in self.all_workers:
                worker.end()
        return self.counts + self.besieged.counts

    def done(self) -> list[int]:
        return [p for p, end in self.ends.items() if self.positions.get(p, 0) >= end]

    def share(self) -> float:
        return sum(self.positions.values()) / sum(self.ends.values())

    def start(self, partition: int, *options: str) -> None:
        worker = Worker(
            self.events,
            self.log,
            *("--bootstrap", self.besieged.address, "--partition", str(partition)),
            *("--until", str(self.ends[partition]), "--slice", str(self.slice_records)),
            *options,
        )
        self.workers[partition] = worker
        self.all_workers.append(worker)

    def strike(self) -> None:
        if not self.strikes or self.strikes[0].share > self.share():
            return
        strike = self.strikes.pop(0)
        if strike.partition is None:
            self.besieged.strike(strike.kind, strike.after)
        else:
            self.strike_processor(strike, strike.partition)

    def strike_processor(self, strike: Strike, chosen: int) -> None:
        alive = [p for p in self.ends if p not in self.done()]
        if not alive:
            return
        partition = chosen if chosen in alive else alive[0]
        self.say(f"kill -9 of the processor of partition {partition}")
        self.workers[partition].kill()
        wait_for(
            "a killed process to end", lambda: self.workers[partition].process.poll() is not None
        )
        if strike.kind == "kill inside a slice":
            self.start(partition, "--die-after", str(strike.after))
        elif strike.kind == "zombie":
            self.start(partition, "--pause-after", str(strike.after))
        else:
            self.start(partition)

    def take_event(self) -> None:
        try:
            worker, event = self.events.get(timeout=0.02)
        except queue.Empty:
            return
        if "committed" in event:
            self.note_progress(worker, event["committed"])
        elif "paused" in event:
            self.say(
                f"the processor of partition {worker.partition} is now a zombie; another starts"
            )
            self.zombie = worker
            self.start(worker.partition)
        elif "fenced" in event:
            self.counts["fenced"] += 1
            self.say(f"fenced: {event['fenced']}")
        elif "ended" in event:
            self.hear_of_end(worker, event["ended"])

    def note_progress(self, worker: Worker, offset: int) -> None:
        self.positions[worker.partition] = max(self.positions.get(worker.partition, 0), offset)
        self.counts["slices"] += 1
        self.progress(sum(self.positions.values()))
        zombie = self.zombie
        if zombie is not None and zombie.partition == worker.partition and worker is not zombie:
            self.zombie = None
            self.say("the zombie wakes up in the middle of its old slice")
            zombie.wake()

    def hear_of_end(self, worker: Worker, status: int) -> None:
        if status == KILLED:
            self.counts["kills of processors"] += 1
        elif status not in (0, FENCED_STATUS):
            raise SystemExit(f"demo: a processor ended with status {status}: see {self.log}")
        is_current = self.workers[worker.partition] is worker
        if is_current and status != 0 and worker.partition not in self.done():
            self.start(worker.partition)
