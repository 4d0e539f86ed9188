"""Transactions one after another, while fifty other producers in one process have theirs.

The rows show how much of the broker, the disk and the machine the crowd leaves to one client.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.benchmarks.figures import Figure
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target
from scripts.benchmarks.transactions import CLIENTS, COUNT, QUICK_COUNT, WARM_UP, latencies

FAMILY: Final = "crowd"
PRODUCERS: Final = 50
SECONDS_BETWEEN: Final = 1.0
CLIENT: Final = "confluent-kafka"
ROOT: Final = Path(__file__).parent.parent.parent


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    count = (QUICK_COUNT if quick else COUNT) + WARM_UP
    with target.running() as address:
        topic = new_topic(address, "ledger", partitions=2)
        with _crowd(address, new_topic(address, "crowd", partitions=2)):
            times_ms = CLIENTS[CLIENT](address, topic, count)
    yield from latencies(FAMILY, f"{CLIENT}, {PRODUCERS} others at work", times_ms)


@contextlib.contextmanager
def _crowd(address: str, topic: str) -> Iterator[None]:
    job = [sys.executable, "-m", "scripts.benchmarks.crowd_job"]
    arguments = [address, topic, str(PRODUCERS), str(SECONDS_BETWEEN)]
    process = subprocess.Popen([*job, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError("the other producers ended before they had begun")
        yield
        if process.poll() is not None:
            raise RuntimeError("the other producers ended while they were needed")
    finally:
        process.kill()
        process.wait()
