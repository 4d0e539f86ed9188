"""Bulk produce with Kafka's own client: its ProducerPerformance, with the client's defaults.

The client's default batches have 16 KiB, so a batch of it has about 15 records of 1 KiB. The first
records do not count for the rate, because the client's Java machine still compiles its code; the
broker's processor time is that of all records.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Final

from scripts.benchmarks.figures import Figure
from scripts.benchmarks.idle import processor_seconds
from scripts.benchmarks.load import PLAIN, new_topic
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
        run(broker.address, _topic(broker), count)  # does not count: it may still be compiled
        before = 0.0 if broker.pid is None else processor_seconds(broker.pid)
        records_per_second = run(broker.address, _topic(broker), count)
        yield _figure("produce", records_per_second * RECORD_BYTES / 1e6, "MB/s")
        if broker.pid is not None:
            taken = processor_seconds(broker.pid) - before
            yield _figure("CPU per record, produce", 1e6 * taken / count, "us")


def _topic(broker: Served) -> str:
    return new_topic(broker.address, "java-bulk")


def run(address: str, topic: str, count: int, settings: Mapping[str, str] = PLAIN) -> float:
    """Send `count` records and return the rate of those after the warm-up."""
    command = ["java", "-Xmx512m", "-cp", f"{kafka_jars()}/*", PROGRAM]
    command += ["--bootstrap-server", address, "--topic", topic, "--throughput", "-1"]
    command += ["--record-size", f"{RECORD_BYTES}", "--num-records", f"{count}"]
    command += ["--warmup-records", f"{count * WARM_UP_PART:.0f}"]
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as properties:
        lines = {"acks": "all", **settings}.items()
        properties.write("".join(f"{name}={value}\n" for name, value in lines))
        properties.flush()
        command += ["--command-config", properties.name]
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
