"""The second part of the demo: one Spark query on a cluster of two workers, all of it killed.

The brokers are killed too: the one of one node, or in a cluster the broker with a certain role.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from scripts.refunds.access import AUDITOR, OPEN, SPARK, Access
from scripts.refunds.besieged import Say
from scripts.refunds.doomed import STRIKES, STRUCK
from scripts.refunds.query import TOPIC_AUDIT, TOPIC_REFUNDS
from scripts.refunds.standalone import SparkCluster
from scripts.refunds.verify import read_all, wait_until_decided
from scripts.refunds.witness import Witness

TOPICS: Final = (TOPIC_REFUNDS, TOPIC_AUDIT)
TRANSACTIONAL_IDS: Final = "{odradek-spark."
QUICK_KINDS: Final = ("sending executor", "inside jvm", "decided worker")
KINDS: Final = (
    *QUICK_KINDS,
    *("sending task", "sending broker", "written executor", "inside worker", "inside broker"),
    *("between worker", "between jvm", "decided both"),
)
QUICK_CLUSTER_KINDS: Final = ("sending executor", "written leader", "inside coordinator")
CLUSTER_KINDS: Final = (
    *QUICK_CLUSTER_KINDS,
    *("sending leader", "sending coordinator", "inside leader", "decided coordinator"),
    *("decided worker", "inside jvm", "decided both"),
)
Kinds = tuple[tuple[str, ...], tuple[str, ...]]
"""The kinds of strikes, and those of a short run."""
ON_ONE_NODE: Final[Kinds] = (KINDS, QUICK_KINDS)
ON_CLUSTER: Final[Kinds] = (CLUSTER_KINDS, QUICK_CLUSTER_KINDS)
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
    "leader": "the leader of a partition",
    "coordinator": "the coordinator",
    "jvm": "the JVM",
    "worker": "the commit worker",
    "both": "the JVM and the commit worker",
}
SPARE_STARTS: Final = 3
"""A kill from outside may end a query once more than planned."""


def plan(seed: int, folder: Path, *, batches: int, kinds_of: Kinds) -> list[str]:
    """Plan which batches are struck and how. The first and the last batch are spared."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)
    many, few = kinds_of
    kinds = list(many if batches > len(many) + 1 else few)
    dice.shuffle(kinds)
    struck = sorted(dice.sample(range(1, batches - 1), len(kinds)))
    for batch_id, kind in zip(struck, kinds, strict=True):
        (folder / str(batch_id)).write_text(kind)
    return kinds


def run(
    bootstrap: str,
    restarting: Callable[[Path], AbstractContextManager[None]],
    *,
    seed: int,
    flights: int,
    per_batch: int,
    place: Path,
    say: Say,
    kinds: Kinds = ON_ONE_NODE,
    access: Access = OPEN,
) -> tuple[Counter[str], list[str]]:
    """Run the query to its end, after every kill. Return the kills, counted, and what is wrong.

    The query is the user spark, and its readers are the auditor.
    `restarting` is given the folder of the strikes, and starts killed brokers again.
    """
    folder = place / "strikes"
    planned = plan(seed, folder, batches=-(-flights // per_batch), kinds_of=kinds)
    reporter = Reporter(folder / STRUCK, say)
    environment = {
        STRIKES: str(folder),
        "PYSPARK_PYTHON": sys.executable,  # Spark would use the first python3 of the PATH
        "PYTHONPATH": os.pathsep.join([str(Path.cwd() / ".ns"), str(Path.cwd())]),
    }
    say("starting Spark: a master and two workers")
    with (
        SparkCluster(place, environment) as cluster,
        restarting(folder),
        Witness(bootstrap, TOPIC_AUDIT, access.options(AUDITOR)) as witness,
    ):
        for _ in range(len(planned) + SPARE_STARTS):
            words = ("--bootstrap", bootstrap, *access.words(SPARK))
            if run_once(words, cluster, environment, place, per_batch, reporter) == 0:
                break
        else:
            raise SystemExit(f"demo: the query does not get through: see {place / 'spark.log'}")
        wait_until_decided(bootstrap, TOPIC_AUDIT, options=access.options(AUDITOR))
    if len(reporter.struck) < len(planned):
        raise SystemExit(f"demo: planned {planned}, struck only {reporter.struck}")
    counts = counted(reporter.struck)
    counts["looks of a reader at what is visible"] = witness.looks
    records = read_all(bootstrap, TOPIC_AUDIT, "read_committed", access.options(AUDITOR))
    return counts, witness.torn(records, place / "checkpoint")


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
    words: Sequence[str],
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
                *(*words, "--per-batch", str(per_batch)),
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
        for name in ("task", "executor", "broker", "leader", "coordinator"):
            counts[f"kills of {VICTIMS[name]}"] += victim == name
        counts["kills of the JVM"] += victim in ("jvm", "both")
        counts["kills of the commit worker"] += victim in ("worker", "both")
    return counts
