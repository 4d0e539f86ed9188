"""The second part of the demo: one Spark query on a cluster of two workers, all of it killed."""

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scripts.refunds.doomed import BROKER_PID, STRIKES, STRUCK
from scripts.refunds.processes import RunningBroker
from scripts.refunds.query import TOPIC_AUDIT, TOPIC_REFUNDS
from scripts.refunds.standalone import SparkCluster

TOPICS: Final = (TOPIC_REFUNDS, TOPIC_AUDIT)
TRANSACTIONAL_IDS: Final = "{odradek-spark."
QUICK_KINDS: Final = ("sending executor", "inside jvm", "decided worker")
KINDS: Final = (
    *QUICK_KINDS,
    *("sending task", "sending broker", "written executor", "inside worker", "inside broker"),
    *("between worker", "between jvm", "decided both"),
)
POINTS: Final = {
    "sending": "inside write() of",
    "written": "between write() and commit() of",
    "inside": "inside commit() of",
    "decided": "between the decision and Spark's note of it, in",
    "between": "after",
}
VICTIMS: Final = {
    "task": "a task",
    "executor": "an executor",
    "broker": "the broker",
    "jvm": "the JVM",
    "worker": "the commit worker",
    "both": "the JVM and the commit worker",
}
SPARE_STARTS: Final = 3
"""A kill from outside may end a query once more than planned."""


def plan(seed: int, folder: Path, *, batches: int) -> list[str]:
    """Plan which batches are struck and how. The first and the last batch are spared."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)
    kinds = list(KINDS if batches > len(KINDS) + 1 else QUICK_KINDS)
    dice.shuffle(kinds)
    struck = sorted(dice.sample(range(1, batches - 1), len(kinds)))
    for batch_id, kind in zip(struck, kinds, strict=True):
        (folder / str(batch_id)).write_text(kind)
    return kinds


def run(
    broker: RunningBroker,
    *,
    seed: int,
    flights: int,
    per_batch: int,
    place: Path,
    say: Callable[[str], None],
) -> Counter[str]:
    """Run the query to its end, after every kill. Return the kills, counted."""
    folder = place / "strikes"
    planned = plan(seed, folder, batches=-(-flights // per_batch))
    reporter = Reporter(folder / STRUCK, say)
    environment = {
        STRIKES: str(folder),
        "PYSPARK_PYTHON": sys.executable,  # Spark would use the first python3 of the PATH
        "PYTHONPATH": os.pathsep.join([str(Path.cwd() / ".ns"), str(Path.cwd())]),
    }
    say("starting Spark: a master and two workers")
    with SparkCluster(place, environment) as cluster, restarted(broker, folder):
        for _ in range(len(planned) + SPARE_STARTS):
            if run_once(broker, cluster, environment, place, per_batch, reporter) == 0:
                break
        else:
            raise SystemExit(f"demo: the query does not get through: see {place / 'spark.log'}")
    if len(reporter.struck) < len(planned):
        raise SystemExit(f"demo: planned {planned}, struck only {reporter.struck}")
    return counted(reporter.struck)


class Reporter:
    """The reporter of the demo: it prints the committed batches and the kills in order."""

    def __init__(self, notes: Path, say: Callable[[str], None]) -> None:
        self._notes, self._say = notes, say
        self.struck: list[str] = []

    def report(self, committed: int | None = None) -> None:
        """Print the new kills, and the batch that is committed now, if there is one."""
        struck = self._notes.read_text().splitlines() if self._notes.exists() else []
        for blow in struck[len(self.struck) :]:
            batch_id, point, victim = blow.split()
            when = (int(batch_id), point == "between")
            if committed is not None and when >= (committed, True):  # behind this commit
                self._say(f"batch {committed} is committed")
                committed = None
            self._say(f"kill -9 of {VICTIMS[victim]} {POINTS[point]} batch {batch_id}")
        self.struck = struck
        if committed is not None:
            self._say(f"batch {committed} is committed")


@contextmanager
def restarted(broker: RunningBroker, folder: Path) -> Iterator[None]:
    """Start the broker again whenever it is killed, in a thread."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            (folder / BROKER_PID).write_text(str(broker.process.pid))
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


def run_once(
    broker: RunningBroker,
    cluster: SparkCluster,
    environment: dict[str, str],
    place: Path,
    per_batch: int,
    reporter: "Reporter",
) -> int:
    with (place / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "scripts.refunds.doomed"),
                *("--bootstrap", broker.address, "--per-batch", str(per_batch)),
                *("--checkpoint", str(place / "checkpoint"), "--master", cluster.url),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | environment,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                reporter.report(int(line))
            return process.wait()
        finally:
            reporter.report()
            process.kill()
            process.wait()
            process.stdout.close()


def counted(struck: list[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in struck:
        victim = line.split()[2]
        for name in ("task", "executor", "broker"):
            counts[f"kills of {VICTIMS[name]}"] += victim == name
        counts["kills of the JVM"] += victim in ("jvm", "both")
        counts["kills of the commit worker"] += victim in ("worker", "both")
    return counts
