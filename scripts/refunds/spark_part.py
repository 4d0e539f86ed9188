"""The second part of the demo: one Spark query, killed inside commit() and between batches."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts.refunds.doomed import STRIKES, STRUCK
from scripts.refunds.processes import RunningBroker
from scripts.refunds.query import TOPIC_AUDIT, TOPIC_REFUNDS

TOPICS: Final = (TOPIC_REFUNDS, TOPIC_AUDIT)
TRANSACTIONAL_IDS: Final = "odradek-spark."
KINDS: Final = ("inside worker", "inside jvm", "between worker", "between jvm", "decided both")
QUICK_KINDS: Final = KINDS[:3]
POINTS: Final = {
    "inside": "inside commit() of",
    "decided": "between the decision and Spark's note of it, in",
    "between": "after",
}
VICTIMS: Final = {
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
    for _ in range(len(planned) + SPARE_STARTS):
        if run_once(broker, folder, place, per_batch, reporter) == 0:
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


def run_once(
    broker: RunningBroker, folder: Path, place: Path, per_batch: int, reporter: Reporter
) -> int:
    with (place / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "scripts.refunds.doomed"),
                *("--bootstrap", broker.address, "--per-batch", str(per_batch)),
                *("--checkpoint", str(place / "checkpoint")),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ
            | {
                STRIKES: str(folder),
                "PYSPARK_PYTHON": sys.executable,  # Spark would use the first python3 of the PATH
                "PYTHONPATH": str(Path.cwd()),
            },
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
        counts["kills of the JVM"] += victim in ("jvm", "both")
        counts["kills of the commit worker"] += victim in ("worker", "both")
    return counts
