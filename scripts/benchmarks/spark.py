"""Spark write and read: Odradek's data source on Odradek, Spark's connector on the other broker.

Each side is a separate Spark in a separate process (`spark_job.py`), because the jars differ.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from odradek.client.spark.java import find_java_home
from scripts.benchmarks.figures import Figure, Floor, at_least_of_theirs, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target
from tests.peers.jars import spark_connector_jars

FAMILY: Final = "spark"
ROWS: Final = 1_500_000
QUICK_ROWS: Final = 300_000
MANY_ROWS: Final = 20_000_000
QUICK_MANY_ROWS: Final = 600_000
FLOORS: Final = {
    "write, 8 tasks": 1.2,
    "write, as many tasks as cores": 1.2,
    "write with headers": 1.0,
    "write with zstd": 1.0,
    "read": 2.0,
}
"""The rows, and the least share of the connector's figure. The connector promises at least once."""
MANY_FLOOR: Final = 1.2
MICRO_BATCH_FLOOR_MS: Final = 60
JOB_TIMEOUT_SECONDS: Final = 1_800
ROOT: Final = Path(__file__).parent.parent.parent


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    rows, many = (QUICK_ROWS, QUICK_MANY_ROWS) if quick else (ROWS, MANY_ROWS)
    with target.running() as address:
        topics = [new_topic(address, f"spark-{n}") for n in range(3 + len(FLOORS))]
        seconds = _run_job(target.speaks_spark_format, address, topics, rows, many)
    for name, ratio in FLOORS.items():
        yield _rate(f"{name}, {rows / 1e6:g} M rows of 116 B", rows / seconds[name], ratio)
    yield _rate(f"write, 8 tasks, {many / 1e6:g} M rows", many / seconds["write, many"], MANY_FLOOR)
    if "micro-batch" in seconds:
        more = seconds["micro-batch"] - seconds["micro-batch of nothing"]
        yield _price("more than one that writes nothing", more, below(MICRO_BATCH_FLOOR_MS))
        in_java = seconds["micro-batch in Java"]
        yield _price("a sink in Python for noop", seconds["micro-batch of nothing"] - in_java)
        yield _price("our source for rate", seconds["micro-batch of a topic"] - in_java)


def _price(name: str, seconds: float, floor: Floor | None = None) -> Figure:
    return Figure(
        family=FAMILY,
        name=f"Spark micro-batch of 1,000 rows, {name}, p50",
        value=seconds * 1000,
        unit="ms",
        floor=floor,
    )


def _rate(name: str, rows_each_second: float, ratio: float) -> Figure:
    return Figure(
        family=FAMILY,
        name=f"Spark {name}",
        value=rows_each_second,
        unit="rows/s",
        floor=at_least_of_theirs(ratio),
    )


def _run_job(
    spark_format: str, address: str, topics: list[str], rows: int, many: int
) -> dict[str, float]:
    jars = spark_connector_jars() if spark_format == "kafka" else []
    arguments = [spark_format, address, ",".join(topics), f"{rows}", f"{many}", *map(str, jars)]
    finished = subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks.spark_job", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / ".ns"), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"the Spark job failed:\n{finished.stderr[-4000:]}")
    seconds: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return seconds
