"""Transactions one after another with Kafka's own client, which uses transaction version 2.

The JDK runs the program from its source file, so nothing is built. The Java machine compiles the
code during the first few hundred transactions, so these are left out. Its second compiler works
much longer, and on few cores it causes most of the slowest transactions, so the rows are also
measured without it.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from scripts.benchmarks.figures import Figure
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target
from scripts.benchmarks.transactions import COUNT, QUICK_COUNT, WARM_UP, latencies
from tests.peers.jars import kafka_jars

FAMILY: Final = "java"
COMPILED_AFTER: Final = 500
CLIENTS: Final[dict[str, tuple[str, ...]]] = {
    "Java client": (),
    "Java client, first compiler only": ("-XX:TieredStopAtLevel=1",),
}
"""The options of the Java machine, by name of the row."""
PROGRAM: Final = Path(__file__).parent / "Transactions.java"
TIMEOUT_SECONDS: Final = 600


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    count = (QUICK_COUNT if quick else COUNT) + COMPILED_AFTER
    with target.running() as address:
        topic = new_topic(address, "ledger", partitions=2)
        for client, options in CLIENTS.items():
            times_ms = run(address, topic, count, options)
            yield from latencies(FAMILY, client, times_ms[COMPILED_AFTER - WARM_UP :])


def run(address: str, topic: str, count: int, options: Sequence[str]) -> list[float]:
    """Return the milliseconds of each transaction."""
    classes = f"{kafka_jars()}/*"
    finished = subprocess.run(
        ["java", "-Xmx256m", *options, "-cp", classes, str(PROGRAM), address, topic, str(count)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"{PROGRAM.name} failed:\n{finished.stderr[-4000:]}")
    return taken_ms(finished.stdout)


def taken_ms(printed: str) -> list[float]:
    """Return the times in milliseconds that the program printed."""
    return [int(line) / 1000 for line in printed.split()]
