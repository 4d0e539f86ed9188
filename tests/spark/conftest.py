"""What the tests of Spark share: one local Spark for the whole run, and topics of their own."""

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

from odradek.client.blocking import Admin, Consumer, Producer
from odradek.client.config import Isolation
from odradek.client.spark.java import find_java_home
from odradek.client.types import ConsumerRecord, TopicPartition
from tests.spark.kill_job import small_spark
from tests.spark.killing import KILL_PLAN

READ_TIMEOUT_S = 60.0
ROOT = Path(__file__).parent.parent.parent


class CreateTopic(Protocol):
    def __call__(self, *, partitions: int = 1) -> str:
        """Create a topic of a new name and return the name."""


class ReadTopic(Protocol):
    def __call__(
        self, topic: str, isolation_level: Isolation = "read_committed"
    ) -> list[ConsumerRecord]:
        """All records that there are now, by partition and offset, when all is decided."""


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that starts as given and that no other test has."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def create_topic(bootstrap: str, unique: Callable[[str], str]) -> CreateTopic:
    def create(*, partitions: int = 1) -> str:
        topic = unique("topic")
        with Admin(bootstrap) as admin:
            admin.create_topic(topic, partitions=partitions)
        return topic

    return create


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap) as producer:
        yield producer


@pytest.fixture
def read_topic(bootstrap: str) -> ReadTopic:
    def read(topic: str, isolation_level: Isolation = "read_committed") -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        give_up_at = time.monotonic() + READ_TIMEOUT_S
        with (
            Consumer(bootstrap, isolation_level="read_uncommitted") as stored,
            Consumer(bootstrap, isolation_level=isolation_level) as consumer,
        ):
            partitions = [TopicPartition(topic, n) for n in consumer.partitions_for(topic)]
            # A commit is answered when it is decided; its markers may come a moment later.
            ends = stored.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                assert time.monotonic() < give_up_at, f"{topic} has an open transaction"
                records += consumer.poll(timeout_ms=100)
        return sorted(records, key=lambda record: (record.partition, record.offset))

    return read


def spark_environment(kill_plan: Path) -> dict[str, str]:
    """What the environment of Spark's driver must have, so that workers are of our kind too."""
    return {
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / ".ns"), str(ROOT)]),
        KILL_PLAN: str(kill_plan),
    }


@pytest.fixture(scope="session")
def kill_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `tests.spark.killing` looks into, of the session's Spark."""
    return tmp_path_factory.mktemp("kill-plan")


@pytest.fixture(scope="session")
def spark(kill_plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark that runs a failed task again up to 3 times."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment(kill_plan).items():
            patch.setenv(name, value)
        handler = signal.getsignal(signal.SIGINT)
        session = small_spark("local[2,4]", tmp_path_factory.mktemp("warehouse"))
        signal.signal(signal.SIGINT, handler)  # Spark's own would stay, for all tests after these
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
