"""What the demo kills beside its processors: the broker, or brokers of a cluster."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol

from odradek.broker.testing import BrokerDidNotStart
from scripts.refunds.processes import KILLED, RunningBroker

BETWEEN_MARKERS: Final = "between-markers"
Say = Callable[[str], None]


class Besieged(Protocol):
    """A broker or a cluster. Killed brokers are started again."""

    counts: Counter[str]

    @property
    def address(self) -> str: ...

    def look_after(self) -> None:
        """Start again what has died by itself."""

    def strike(self, kind: str, after: int) -> None:
        """Kill a broker."""


class OneBroker:
    """A broker that has no others beside it."""

    def __init__(self, broker: RunningBroker, say: Say) -> None:
        self.counts: Counter[str] = Counter()
        self._broker = broker
        self._say = say

    @property
    def address(self) -> str:
        return self._broker.address

    def look_after(self) -> None:
        if self._broker.process.poll() == KILLED:
            self.counts["kills of the broker"] += 1
            self._say("the broker died between two markers; it is started again")
            self._restart({})

    def strike(self, kind: str, after: int) -> None:
        """Kill the broker. After `kill between markers` the next one dies at the Nth pause."""
        self.counts["kills of the broker"] += 1
        if kind == "kill between markers":
            self._say(f"kill -9 of the broker; the next one will die between two markers ({after})")
            self._broker.kill()
            self._restart({"ODRADEK_KILL_AT": f"{BETWEEN_MARKERS}:{after}"})
        else:
            self._say("kill -9 of the broker")
            self._broker.kill()
            self._restart({})

    def _restart(self, environment: dict[str, str]) -> None:
        self._broker.environment = environment
        try:
            self._broker.restart()
        except BrokerDidNotStart:
            # An armed broker may die before it serves, between two markers of a transaction that
            # it finds decided. `look_after` starts it again.
            if not environment:
                raise


class BrokersOutside:
    """The brokers of a cluster, seen from inside its network: a process outside kills them.

    A role is written to `orders`; the name of the broker that was killed is read from `answers`
    when it is in sync again.
    """

    def __init__(self, address: str, orders: IO[str], answers: IO[str], say: Say) -> None:
        self.counts: Counter[str] = Counter()
        self.address = address
        self._orders = orders
        self._answers = answers
        self._say = say

    def look_after(self) -> None:
        """No broker dies by itself."""

    def strike(self, kind: str, after: int) -> None:
        del after
        print(kind, file=self._orders, flush=True)
        name = self._answers.readline().strip()
        self._say(f"kill -9 of the {kind}, {name}; it was started again")
        self.counts[f"kills of the {kind}"] += 1


class SparedBrokers:
    """Brokers that somebody else looks after, and that are not killed."""

    def __init__(self, address: str) -> None:
        self.counts: Counter[str] = Counter()
        self.address = address

    def look_after(self) -> None:
        """Somebody else does."""

    def strike(self, kind: str, after: int) -> None:
        raise AssertionError(f"no {kind} ({after}) is planned for brokers that are spared")


@contextmanager
def restarted(broker: RunningBroker, pid_file: Path) -> Iterator[None]:
    """Start the broker again whenever it is killed, in a thread. Its process id is in the file."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            pid_file.write_text(str(broker.process.pid))
            while broker.process.poll() is None and not is_over.is_set():
                is_over.wait(0.05)
            if not is_over.is_set():
                broker.start()

    thread = threading.Thread(target=watch, name="restarts the broker")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
