"""The command `scripts/bulk`: a batch write and a micro-batch of any size, killed and exact."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Consumer
from odradek.client.spark.java import find_java_home
from odradek.client.spark.options import read_options
from odradek.client.spark.reader import PartitionOffsets, plan_tasks, read_partition
from odradek.client.types import TopicPartition
from scripts.benchmarks.spark_job import KEY_BYTES, VALUE_BYTES

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = 20_000_000
PARTITIONS: Final = 8
TIMEOUT_S: Final = 1_800.0
SOURCE, TARGET = "bulk", "bulk-copy"


@contextmanager
def job(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `scripts.bulks.job`, and end it with its JVM."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / ".ns"), str(ROOT)]),
    }
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.bulks.job", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver and its JVM with -9. Python workers of tasks end when they notice."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def written(address: str, topic: str) -> int:
    """Return the number of stored offsets, of open and of aborted transactions too."""
    with Consumer(address, isolation_level="read_uncommitted") as consumer:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(consumer.end_offsets(places).values())


def run_killed_once(address: str, topic: str, rows: int, log: Path, *arguments: str) -> float:
    """Run a job that is killed when half is written, and once more. Return the seconds of that."""
    with job(log, *arguments) as process:
        give_up_at = time.monotonic() + TIMEOUT_S
        while written(address, topic) < rows // 2:
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise SystemExit(f"bulk: the job ended before it was killed: see {log}")
            time.sleep(0.2)
        kill(process)
    began = time.monotonic()
    with job(log, *arguments) as process:
        if process.wait(TIMEOUT_S) != 0:
            raise SystemExit(f"bulk: the job failed: see {log}")
    return time.monotonic() - began


def verify(address: str, topic: str, rows: int) -> None:
    """Read the topic, and compare: each row once, with its own value."""
    options = read_options({"kafka.bootstrap.servers": address, "subscribe": topic}, "batch")
    with PartitionOffsets(options) as broker:
        partitions = broker.partitions()
        ids = broker.ids(partitions)
        known = broker.known(partitions)
        start, end = broker.starting(partitions, known), broker.ending(partitions, known)
    seen = np.zeros(rows, dtype=np.uint8)
    powers = 10 ** np.arange(KEY_BYTES - 1, -1, -1, dtype=np.int64)
    for task in plan_tasks(options, start, end, known["earliest"], ids):
        for batch in read_partition(options, task):
            digits = np.frombuffer(b"".join(batch["key"].to_pylist()), dtype=np.uint8)
            numbers = (digits.reshape(-1, KEY_BYTES) - ord("0")).astype(np.int64) @ powers
            np.add.at(seen, numbers, 1)
            text = pa.array(numbers).cast(pa.string())
            expected = pc.utf8_lpad(text, VALUE_BYTES, "x").cast(pa.binary())
            if not expected.equals(batch["value"]):
                raise SystemExit(f"bulk: a row of {topic} has the value of another")
    missing, repeated = int((seen == 0).sum()), int((seen > 1).sum())
    click.echo(f"  {topic}: {rows:,} rows, {missing:,} missing, {repeated:,} more than once")
    if missing or repeated:
        raise SystemExit("bulk: not exactly once")


@click.command()
@click.option("--rows", default=ROWS, show_default=True)
def main(rows: int) -> None:
    """Write many rows in one batch and in one micro-batch, killed once each, and count them."""
    with tempfile.TemporaryDirectory(prefix="odradek-bulk-") as place, run_broker() as broker:
        log = Path(place) / "spark.log"
        with Admin(broker.address) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, partitions=PARTITIONS)
        where = [broker.address, SOURCE]
        try:
            click.echo(f"one batch write of {rows:,} rows, killed at half and run again")
            taken = run_killed_once(broker.address, SOURCE, rows, log, "write", *where, f"{rows}")
            click.echo(f"  {taken:.0f} s ({rows / taken:,.0f} rows/s with Spark's start)")
            verify(broker.address, SOURCE, rows)
            click.echo("the same rows in one micro-batch, killed at half and run again")
            checkpoint = f"{place}/checkpoint"
            more = [TARGET, checkpoint]
            taken = run_killed_once(broker.address, TARGET, rows, log, "copy", *where, *more)
            click.echo(f"  {taken:.0f} s ({rows / taken:,.0f} rows/s with Spark's start)")
            batches = sorted(int(each.name) for each in Path(checkpoint, "commits").glob("[0-9]*"))
            click.echo(f"  micro-batches: {len(batches)}")
            verify(broker.address, TARGET, rows)
        except SystemExit:
            click.echo(log.read_text(errors="replace")[-4_000:], err=True)
            raise


if __name__ == "__main__":
    main()
