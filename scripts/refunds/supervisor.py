"""The supervisor of the processors: it starts, kills and stops them, and feeds them.

Flights arrive while the processors run, and never many more than up to the share of the next strike
at a processor. That strike waits until the group has come to rest after the one before it, so that
one sees how long partitions take to move. Brokers are killed without waiting, in the middle of it.
"""

import math
import queue
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from odradek.client import OdradekError
from odradek.client.blocking import Consumer
from odradek.client.types import TopicPartition
from scripts.refunds.access import LOADER, OPEN, PROCESSOR, SUPERVISOR, Access
from scripts.refunds.besieged import Besieged
from scripts.refunds.chaos import INSIDE, PARTITIONS, SCALE, ZOMBIE, Strike
from scripts.refunds.load import Feeder
from scripts.refunds.owners import Owners
from scripts.refunds.processes import KILLED, TERMINATED, Worker, wait_for
from scripts.refunds.processor import FENCED_STATUS, GROUP, TOPIC_IN

MARGIN: Final = 0.05
"""The share of the work that is there beyond the next strike, so that it hits somebody at work."""
MORE: Final = 0.01
LOOK_S: Final = 2.0
"""A processor may die after a commit that it has not reported. Then the group's offsets tell."""
STUCK_S: Final = 180.0
ZOMBIES_REFUSED: Final = "zombies refused"
Say = Callable[[str], None]
PLACES: Final = [TopicPartition(TOPIC_IN, number) for number in range(PARTITIONS)]


@dataclass(slots=True)
class Supervisor:
    """The processors by their names. `run` returns when all flights are processed."""

    besieged: Besieged
    flights: int
    worker_options: tuple[str, ...]
    log: Path
    say: Say
    progress: Callable[[int], None]
    strikes: list[Strike]
    access: Access = OPEN
    events: "queue.SimpleQueue[tuple[Worker, dict[str, Any]]]" = field(
        default_factory=queue.SimpleQueue
    )
    workers: dict[str, Worker] = field(default_factory=dict)
    all_workers: list[Worker] = field(default_factory=list)
    doomed: set[Worker] = field(default_factory=set)
    """Those that will die or stop by themselves."""
    stopped: set[Worker] = field(default_factory=set)
    zombie: Worker | None = None
    left_behind: set[int] = field(default_factory=set)
    """The partitions that the zombie owned."""
    woken: Worker | None = None
    """The zombie after its awakening, until its slice has ended."""
    owners: Owners = field(default_factory=lambda: Owners(range(PARTITIONS)))
    fed: int = 0
    """The flights that may be there."""
    positions: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    moved_at: float = field(default_factory=time.monotonic)
    looked_at: float = 0.0

    def run(self) -> Counter[str]:
        with Feeder(self.besieged.address, self.flights, self.access.options(LOADER)) as feeder:
            try:
                self.start("1")
                while not self.is_finished():
                    self.besieged.look_after()
                    self.feed(feeder)
                    self.strike()
                    self.take_event()
                    self.look_if_still()
                self.stop(sorted(self.workers))
            finally:
                for worker in self.all_workers:
                    worker.end()
        return self.counts + self.besieged.counts

    # How far it is

    def is_finished(self) -> bool:
        if self.done() < self.flights:
            return False
        self.doomed.clear()  # there is nothing left that they could die of
        return not self.strikes and not (self.zombie or self.woken)

    def done(self) -> int:
        return sum(self.positions.values())

    def share(self) -> float:
        return self.done() / self.flights

    def feed(self, feeder: Feeder) -> None:
        """Let flights arrive up to a bit beyond the next strike at a processor.

        While one is to die by itself, they arrive a few at a time, and only once it owns
        partitions: the others could process all that there are before it has any.
        """
        if self.doomed:
            if self.done() < self.fed or not all(
                self.owners.owned.get(worker.name) for worker in self.doomed
            ):
                return
            share = self.share() + MORE
        else:
            following = [strike.share for strike in self.strikes if strike.is_of_processors]
            share = (following[0] if following else 1.0) + MARGIN
        self.fed = max(self.fed, min(self.flights, math.ceil(share * self.flights)))
        feeder.allow(self.fed)

    def are_settled(self) -> bool:
        is_waiting = self.doomed or self.zombie is not None
        return not is_waiting and self.owners.are_settled(self.workers)

    def look_if_still(self) -> None:
        """Read the group's offsets if nothing was reported for a while. Raises if it is stuck."""
        now = time.monotonic()
        if now - self.moved_at > STUCK_S:
            raise SystemExit(f"demo: nothing moves: {self.owners.owned}; see {self.log}")
        if now - max(self.moved_at, self.looked_at) < LOOK_S:
            return
        self.looked_at = now
        try:
            with Consumer(
                self.besieged.address,
                group_id=GROUP,
                max_block_ms=int(LOOK_S * 1000),
                **self.access.options(SUPERVISOR),
            ) as consumer:
                stored = consumer.committed(PLACES, require_stable=False)
        except OdradekError:
            return  # the broker was killed
        self.note_positions({place.partition: at.offset for place, at in stored.items()})

    def note_positions(self, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            if offset > self.positions.get(partition, 0):
                self.positions[partition] = offset
                self.moved_at = time.monotonic()
        self.progress(self.done())

    # What is done to it

    def start(self, name: str, *options: str) -> None:
        worker = Worker(
            self.events,
            self.log,
            *("--bootstrap", self.besieged.address, "--name", name),
            *self.access.words(PROCESSOR),
            *self.worker_options,
            *options,
        )
        self.workers[name] = worker
        self.all_workers.append(worker)
        if options:
            self.doomed.add(worker)

    def stop(self, names: list[str]) -> None:
        """Ask processors to leave, and wait until they have ended."""
        for name in names:
            worker = self.workers[name]
            self.stopped.add(worker)
            worker.stop()
            self.say(f"SIGTERM to processor {name}, owner of {self.owners.ended(name, 'SIGTERM')}")
        for name in names:
            wait_for("processors to leave", partial(self._has_left, name))

    def _has_left(self, name: str) -> bool:
        self.besieged.look_after()
        self.take_event()
        return name not in self.workers

    def strike(self) -> None:
        if not self.strikes or self.strikes[0].share > self.share():
            return
        strike = self.strikes[0]
        if strike.is_of_processors and not self.are_settled():
            return
        self.strikes.pop(0)
        self.moved_at = time.monotonic()
        if not strike.is_of_processors:
            self.besieged.strike(strike.kind, strike.after)
        elif strike.kind == SCALE:
            self.scale(strike.number)
        else:
            self.strike_processor(strike)

    def scale(self, count: int) -> None:
        names = sorted(self.workers)
        self.say(f"from {len(names)} to {count} processors")
        for number in range(len(names), count):
            self.start(str(number + 1))
        self.stop(names[count:])

    def strike_processor(self, strike: Strike) -> None:
        """Kill a processor and start it again, perhaps with the order to die or to stop."""
        names = sorted(self.workers)
        name = names[strike.number % len(names)]
        worker = self.workers[name]
        worker.kill()
        wait_for("a killed process to end", lambda: worker.process.poll() is not None)
        owned = self.owners.ended(name, "kill -9")
        self.say(f"kill -9 of processor {name}, which owned {owned}; it is started again")
        if strike.kind == INSIDE:
            self.start(name, "--die-after", str(strike.after))
        elif strike.kind == ZOMBIE:
            self.start(name, "--pause-after", str(strike.after))
        else:
            self.start(name)

    # What it reports

    def take_event(self) -> None:
        try:
            worker, event = self.events.get(timeout=0.02)
        except queue.Empty:
            return
        ((kind, found),) = event.items()
        if kind == "committed":
            self.note_commit(worker, {int(number): at for number, at in found.items()})
        elif kind == "aborted":
            self.note_abort(worker, found)
        elif kind == "fenced":
            self.counts["fenced"] += 1
            self.say(f"processor {worker.name} is fenced: {found}")
        elif kind == "ended":
            self.note_end(worker, found)
        elif self.workers.get(worker.name) is worker and worker not in self.stopped:
            self.note_owner(worker, kind, found)

    def note_owner(self, worker: Worker, kind: str, found: Any) -> None:
        if kind == "assigned":
            self.say(self.owners.assigned(worker.name, found))
        elif kind == "revoked":
            self.say(self.owners.revoked(worker.name, found))
        elif kind == "lost":
            self.say(self.owners.lost(worker.name, found))
        elif kind == "paused":
            self.doomed.discard(worker)
            self.zombie = worker
            self.left_behind = set(self.owners.owned[worker.name])
            owned = self.owners.ended(worker.name, "SIGSTOP")
            self.say(f"processor {worker.name} stops inside a slice of {owned}: a zombie")

    def note_commit(self, worker: Worker, offsets: dict[int, int]) -> None:
        self.counts["slices"] += 1
        self.note_positions(offsets)
        if worker is self.woken:
            self.woken = None
            self.say(f"the slice of the zombie, processor {worker.name}, is committed")
        zombie = self.zombie
        if zombie is not None and worker is not zombie and self.left_behind & offsets.keys():
            self.zombie, self.woken = None, zombie
            self.say(f"others process what processor {zombie.name} owned; it wakes up in its slice")
            zombie.wake()

    def note_abort(self, worker: Worker, why: str) -> None:
        self.counts["slices aborted"] += 1
        self.say(f"a slice of processor {worker.name} is aborted: {why}")
        self.note_refusal(worker)

    def note_refusal(self, worker: Worker) -> None:
        """Note that a slice did not count. If it was that of the zombie, its story ends here."""
        if worker is self.woken:
            self.woken = None
            self.counts[ZOMBIES_REFUSED] += 1

    def note_end(self, worker: Worker, status: int) -> None:
        if status == KILLED:
            self.counts["kills of processors"] += 1
        elif status not in (0, FENCED_STATUS) and not self._was_stopped_early(worker, status):
            raise SystemExit(f"demo: a processor ended with status {status}: see {self.log}")
        if self.workers.get(worker.name) is not worker:
            return
        del self.workers[worker.name]
        self.doomed.discard(worker)
        self.note_refusal(worker)
        if worker in self.stopped:
            return
        cause = "kill -9" if status == KILLED else "fencing"
        owned = self.owners.ended(worker.name, cause)
        self.say(f"{cause} of processor {worker.name} inside a slice; it owned {owned}")
        self.start(worker.name)

    def _was_stopped_early(self, worker: Worker, status: int) -> bool:
        """Whether SIGTERM met a processor that had no handler yet: it has not begun anything."""
        return worker in self.stopped and status == TERMINATED
