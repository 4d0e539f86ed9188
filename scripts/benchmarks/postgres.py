"""One commit with PostgreSQL, beside both sides alone: one row and one record. Only Odradek has it.

The three alternate, so that they meet the same load of the machine.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

from odradek.client.blocking import Producer
from odradek.client.postgres.blocking import PostgresProducer
from scripts.benchmarks.figures import OURS, Figure, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import OurProcess, Target, wait_until_serving
from tests.peers.postgres import run_postgres

FAMILY: Final = "postgres"
COUNT: Final = 500
QUICK_COUNT: Final = 100
WARM_UP: Final = 20
VALUE: Final = b"x" * 100
INSERT: Final = "INSERT INTO bench VALUES (%s)"
SETTINGS: Final = {"transaction.two.phase.commit.enable": "true"}
SUM_MAX: Final = 1.3


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    if target.name != OURS:
        return
    with run_postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.ask("CREATE TABLE bench (value bytea)")
        process = OurProcess(Path(directory), SETTINGS)
        process.launch()
        try:
            wait_until_serving(process)
            address = f"{process.host}:{process.port}"
            topic = new_topic(address, "postgres", partitions=1)
            with psycopg.connect(server.conninfo) as connection:
                times = _times(
                    address, topic, server.conninfo, connection, QUICK_COUNT if quick else COUNT
                )
        finally:
            process.kill()
    median = {name: statistics.median(found) for name, found in times.items()}
    for name, value in median.items():
        yield Figure(family=FAMILY, name=f"{name}, p50", value=value, unit="ms")
    yield Figure(
        family=FAMILY,
        name="one commit, of the sum of both alone",
        value=median["one commit"] / (median["the broker alone"] + median["PostgreSQL alone"]),
        unit="×",
        floor=below(SUM_MAX),
    )


def _times(
    address: str, topic: str, conninfo: str, connection: psycopg.Connection[Any], count: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each transaction, without the first `WARM_UP`."""
    with (
        Producer(address, transactional_id="bench-alone") as alone,
        PostgresProducer(address, conninfo, transactional_id="bench-both") as both,
    ):

        def of_the_broker() -> None:
            with alone.transaction() as txn:
                txn.send(topic, VALUE, partition=0)

        def of_postgres() -> None:
            with connection.transaction():
                connection.execute(INSERT, [VALUE])

        def of_both() -> None:
            with both.transaction(connection) as txn:
                connection.execute(INSERT, [VALUE])
                txn.send(topic, VALUE, partition=0)

        sides: dict[str, Callable[[], None]] = {
            "the broker alone": of_the_broker,
            "PostgreSQL alone": of_postgres,
            "one commit": of_both,
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(count + WARM_UP):
            for name, transaction in sides.items():
                started = time.perf_counter()
                transaction()
                times[name].append((time.perf_counter() - started) * 1000)
    return {name: found[WARM_UP:] for name, found in times.items()}
