"""A real PostgreSQL and a real broker with two-phase commit, and what a test writes to both."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.postgres import PostgresProducer
from odradek.client.postgres.blocking import PostgresProducer as BlockingPostgresProducer
from tests.client.live import name_of, read_all
from tests.client.postgres import die_inside
from tests.peers.postgres import RunningPostgres, run_postgres

SETTINGS = {"transaction.two.phase.commit.enable": "true", "num.partitions": "1"}


@dataclass(frozen=True)
class Both:
    """A table and a topic of a test's own, and a transactional id to write to both."""

    postgres: RunningPostgres
    broker: RunningBroker
    name: str

    @property
    def topic(self) -> str:
        return self.name

    @property
    def insert(self) -> str:
        return f'INSERT INTO "{self.name}" VALUES (%s)'

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.postgres.conninfo, **options)

    def options(self, **options: Any) -> dict[str, Any]:
        return {"transactional_id": self.name, **options}

    def producer(self, database: Any = None, **options: Any) -> BlockingPostgresProducer:
        """A blocking one."""
        return BlockingPostgresProducer(
            self.broker.address, database or self.postgres.conninfo, **self.options(**options)
        )

    def trio_producer(self, database: Any = None, **options: Any) -> PostgresProducer:
        return PostgresProducer(
            self.broker.address, database or self.postgres.conninfo, **self.options(**options)
        )

    def write(self, value: str, connection: Any, producer: BlockingPostgresProducer) -> None:
        """Write a row and a record in one commit."""
        with producer.transaction(connection) as txn:
            connection.execute(self.insert, [value])
            txn.send(self.topic, value.encode())

    def rows(self) -> list[str]:
        return [row[0] for row in self.postgres.ask(f'SELECT value FROM "{self.name}" ORDER BY at')]

    def records(self) -> list[str]:
        """What read_committed shows. What is still open would hide what follows it."""
        records = trio.run(read_all, self.broker.address, self.topic)
        return [(record.value or b"").decode() for record in records]

    def has(self, *values: str) -> bool:
        """Return True if both sides have exactly these, after a recovery."""
        with self.producer():
            pass
        assert self.rows() == list(values)
        assert self.records() == list(values)
        return True


def killed_at(both: Both, value: str, step: str) -> int:
    """Run a process that dies at a step of its commit. Return its exit status."""
    ended = subprocess.run(
        [
            *(sys.executable, str(Path(die_inside.__file__)), both.broker.address),
            *(both.postgres.conninfo, both.name, value, step),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=False,
    )
    return ended.returncode


@pytest.fixture(scope="module")
def postgres() -> Iterator[RunningPostgres]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def two_phase_broker() -> Iterator[RunningBroker]:
    with run_broker(config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def both(postgres: RunningPostgres, two_phase_broker: RunningBroker) -> Both:
    name = name_of("both")
    postgres.ask(f'CREATE TABLE "{name}" (value text, at serial)')
    return Both(postgres, two_phase_broker, name)
