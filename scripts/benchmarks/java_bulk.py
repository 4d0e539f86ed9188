"""Bulk produce with Kafka's own client: its ProducerPerformance, with the client's defaults.

The client's default batches have 16 KiB, so a batch of it has about 15 records of 1 KiB. The first
records do not count for the rate, because the client's Java machine still compiles its code; the
broker's processor time is that of all records.
"""

import re
import subprocess
from collections.abc import Iterator
from typing import Final

from scripts.benchmarks.figures import Figure
from scripts.benchmarks.idle import processor_seconds
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Served, Target
from tests.peers.jars import kafka_jars

FAMILY: Final = "java-bulk"
RECORD_BYTES: Final = 1024
COUNT: Final = 400_000
QUICK_COUNT: Final = 100_000
WARM_UP_PART: Final = 0.25
PROGRAM: Final = "org.apache.kafka.tools.ProducerPerformance"
STEADY: Final = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")
TIMEOUT_SECONDS: Final = 600


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    count = QUICK_COUNT if quick else COUNT
    with target.served() as broker:
        run(broker, count)  # does not count: the broker may still be compiled
        before = 0.0 if broker.pid is None else processor_seconds(broker.pid)
        records_per_second = run(broker, count)
        yield _figure("produce", records_per_second * RECORD_BYTES / 1e6, "MB/s")
        if broker.pid is not None:
            taken = processor_seconds(broker.pid) - before
            yield _figure("CPU per record, produce", 1e6 * taken / count, "us")


def run(broker: Served, count: int) -> float:
    """Send `count` records and return the rate of those after the warm-up."""
    command = ["java", "-Xmx512m", "-cp", f"{kafka_jars()}/*", PROGRAM]
    command += ["--bootstrap-server", broker.address]
    command += ["--topic", new_topic(broker.address, "java-bulk"), "--throughput", "-1"]
    command += ["--record-size", f"{RECORD_BYTES}", "--num-records", f"{count}"]
    command += ["--warmup-records", f"{count * WARM_UP_PART:.0f}"]
    command += ["--command-property", "acks=all"]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    found = STEADY.findall(finished.stdout)
    if finished.returncode != 0 or not found:
        said = finished.stdout[-2000:] + finished.stderr[-2000:]
        raise RuntimeError(f"{PROGRAM} failed:\n{said}")
    return float(found[-1][1])


def _figure(what: str, value: float, unit: str) -> Figure:
    name = f"{what} {RECORD_BYTES} B, Java ProducerPerformance"
    return Figure(family=FAMILY, name=name, value=value, unit=unit)
