"""Kafka Streams with exactly_once_v2, unmodified, while the application and the broker are killed.

The application counts the records of each key in a state store with a changelog. If a record were
counted twice or lost, a count would be missing or come twice.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.testing import RunningBroker, run_broker
from tests.compat.agents import JAVA
from tests.compat.confluent import deliver, producer, read
from tests.compat.conftest import DEADLINE_SECONDS
from tests.peers.jars import streams_jars

pytestmark = [pytest.mark.peers, pytest.mark.minutes]

SOURCE: Final = Path(__file__).parent / "java" / "CountingStreams.java"
PARTITIONS: Final = 2
KEYS: Final = 5
ROUNDS: Final = 60
"""The number of records of each key."""
KILLS: Final = ("application", "broker", "application", "broker", "application")


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with run_broker(config=settings) as started:
        yield started


@contextmanager
def application(address: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The application; killed when the block ends."""
    said = directory.with_suffix(".txt").open("ab")
    process = subprocess.Popen(
        [
            *(*JAVA, "-cp", f"{streams_jars()}/*", str(SOURCE)),
            *(address, "counts", "source", "target", str(directory)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        said.close()


def fill(address: str, rounds: range) -> None:
    sender = producer(address)
    for number in rounds:
        for key in range(KEYS):
            deliver(sender, "source", [b"%d" % number], key=b"k%d" % key)


def test_each_record_is_counted_once_over_kills(broker: RunningBroker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = [NewTopic(topic, PARTITIONS, 1) for topic in ("source", "target")]
    for created in admin.create_topics(topics).values():
        created.result(DEADLINE_SECONDS)
    in_each = ROUNDS // (len(KILLS) + 1)
    counted = 0

    def until_counted(rounds: range) -> None:
        nonlocal counted
        fill(broker.address, rounds)
        counted += KEYS * (len(rounds) // 2)  # in the middle of its work
        read(broker.address, "target", count=counted, partitions=PARTITIONS)
        counted += KEYS * (len(rounds) - len(rounds) // 2)

    first = 0
    for victim in KILLS:
        with application(broker.address, tmp_path / "state"):
            rounds = range(first, first + in_each)
            first += in_each
            until_counted(rounds)
            if victim == "broker":
                broker.kill()
                broker.start()
                read(broker.address, "target", count=counted, partitions=PARTITIONS)
    with application(broker.address, tmp_path / "state"):
        fill(broker.address, range(first, ROUNDS))
        found = read(broker.address, "target", count=KEYS * ROUNDS, partitions=PARTITIONS)

    for key in range(KEYS):
        counts = [int(record.value or b"0") for record in found if record.key == b"k%d" % key]
        assert counts == list(range(1, ROUNDS + 1))
