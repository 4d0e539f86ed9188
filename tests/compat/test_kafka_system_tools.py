"""The programs of Kafka's own system tests: a verifiable producer, and copiers that are killed."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.testing import run_broker
from tests.compat.agents import JAVA
from tests.compat.confluent import read, values
from tests.compat.conftest import DEADLINE_SECONDS
from tests.peers.jars import kafka_jars
from tests.peers.kafka import run_tool

pytestmark = pytest.mark.peers

TOOLS: Final = "org.apache.kafka.tools"
RECORDS: Final = 2_000
PARTITIONS: Final = 2
PER_TRANSACTION: Final = 40


def test_copiers_that_are_killed_copy_each_record_once() -> None:
    with run_broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in ("input", "output")]
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_SECONDS)
        acknowledged = produced(broker.address)

        with copier(broker.address, partition=0) as steady:
            with copier(broker.address, partition=1) as victim:
                copied_before = until_copied(victim, RECORDS // 10)
            with copier(broker.address, partition=1) as successor:
                copied_after = until_done(successor)
            assert until_done(steady) == len(acknowledged[0])

        # Nothing is left for it if the victim was quicker than its killer.
        assert copied_after <= len(acknowledged[1]) - copied_before
        copied = values(read(broker.address, "output", count=RECORDS, partitions=PARTITIONS))
        assert sorted(copied) == sorted(acknowledged[0] + acknowledged[1])


def produced(address: str) -> list[list[bytes]]:
    """The values that VerifiableProducer has sent and got acknowledged, by partition."""
    said = run_tool(
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", address, "--topic", "input"),
        *("--max-messages", str(RECORDS), "--repeating-keys", "100"),
    )
    acknowledged: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for event in map(json.loads, said.splitlines()):
        if event["name"] == "producer_send_success":
            acknowledged[event["partition"]].append(event["value"].encode())
    assert sum(map(len, acknowledged)) == RECORDS
    return acknowledged


@contextmanager
def copier(address: str, *, partition: int) -> Iterator[subprocess.Popen[str]]:
    """TransactionalMessageCopier with random aborts; killed when the block ends."""
    process = subprocess.Popen(
        [
            *(*JAVA, "-cp", f"{kafka_jars()}/*", f"{TOOLS}.TransactionalMessageCopier"),
            *("--broker-list", address, "--input-topic", "input", "--output-topic", "output"),
            *("--input-partition", str(partition), "--consumer-group", "copiers"),
            *("--transactional-id", f"copier-{partition}", "--enable-random-aborts"),
            *("--transaction-size", str(PER_TRANSACTION), "--use-group-metadata"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def events_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def until_copied(process: subprocess.Popen[str], count: int) -> int:
    """Return when it has said that it has copied so many, and how many it said."""
    for event in events_of(process):
        if event["consumed"] >= count:
            return int(event["consumed"])
    raise AssertionError("it ended before")


def until_done(process: subprocess.Popen[str]) -> int:
    """Wait for its end in good order; how many records it has copied."""
    *_, last = events_of(process)
    assert process.wait(DEADLINE_SECONDS) == 0
    assert last["remaining"] == 0, last
    return int(last["consumed"])
