"""Kafka's reassignment tool, and ours, on three broker processes and a real etcd."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition
from tests.client.live import Run, name_of
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.kafka_tool import KafkaTools
from tests.peers.etcd_server import RealEtcd

pytestmark = pytest.mark.peers

REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def bootstrap(real_etcd: RealEtcd) -> Iterator[str]:  # instead of a single broker
    prefix = name_of("reassign")
    with ExitStack() as stack:
        addresses = []
        for node in (1, 2, 3):
            config = {
                "node.id": str(node),
                "inter.broker.listener.port": "0",
                "etcd.endpoints": ",".join(real_etcd.endpoints),
                "etcd.key.prefix": f"/{prefix}",
            }
            addresses.append(stack.enter_context(run_broker(config=config)).address)
        yield ",".join(addresses)


@pytest.fixture
def place(bootstrap: str) -> TopicPartition:
    """A partition with two replicas."""
    topic = name_of("moved")
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=2)
    return TopicPartition(topic, 0)


def replicas_of(bootstrap: str, place: TopicPartition) -> list[int]:
    with Admin(bootstrap) as admin:
        (topic,) = admin.describe_topics(place.topic)
        return list(topic.partitions[0].replicas)


@contextmanager
def writing(bootstrap: str, place: TopicPartition) -> Iterator[list[int]]:
    """Write on in another thread; yield the values that are acknowledged. They are all there."""
    written: list[int] = []
    is_over = threading.Event()

    def write() -> None:
        with Producer(bootstrap) as producer:
            while not is_over.is_set():
                value = len(written)
                producer.send(place.topic, b"%d" % value, partition=0).result()
                written.append(value)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield written
    finally:
        is_over.set()
        writer.join()
    with Consumer(bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning()
        found: list[int] = []
        while len(found) < len(written):
            found += [int(record.value or b"-1") for record in consumer.poll(500)]
    assert found == written


def until_more(written: list[int], count: int = 20) -> None:
    goal, deadline = len(written) + count, time.monotonic() + DEADLINE_SECONDS
    while len(written) < goal:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between two looks, not for luck


def test_kafka_reassign_partitions_moves_what_is_written_to(
    bootstrap: str, kafka_tools: KafkaTools, place: TopicPartition, tmp_path: Path
) -> None:
    before = replicas_of(bootstrap, place)
    (comes,) = {1, 2, 3} - set(before)
    target = [comes, before[0]]
    file = tmp_path / "moves.json"
    wanted = {"topic": place.topic, "partition": 0, "replicas": target}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    words = (REASSIGN, "--bootstrap-server", bootstrap, "--reassignment-json-file", file)
    with writing(bootstrap, place) as written:
        until_more(written)
        executed = kafka_tools.run(*words, "--execute")
        assert executed.status == 0, executed.text
        assert f"Successfully started partition reassignment for {place}" in executed.text
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            verified = kafka_tools.run(*words, "--verify", "--preserve-throttles").text
            if f"Reassignment of partition {place} is completed." in verified:
                break
            assert "still in progress" in verified, verified
            assert time.monotonic() < deadline
        until_more(written)
    assert replicas_of(bootstrap, place) == target
    described = kafka_tools.run(
        TOPICS, "--bootstrap-server", bootstrap, "--describe", "--topic", place.topic
    ).text
    assert f"Replicas: {comes},{before[0]}" in described
    listed = kafka_tools.run(REASSIGN, "--bootstrap-server", bootstrap, "--list").text
    assert "No partition reassignments found." in listed


def test_kafka_reassign_partitions_proposes_moves(
    bootstrap: str, kafka_tools: KafkaTools, place: TopicPartition, tmp_path: Path
) -> None:
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": place.topic}]}))
    said = kafka_tools.run(
        *(REASSIGN, "--bootstrap-server", bootstrap, "--generate", "--broker-list", "2,3"),
        *("--topics-to-move-json-file", file),
    ).text
    current, proposed = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (now,), (then,) = current["partitions"], proposed["partitions"]
    assert now["replicas"] == replicas_of(bootstrap, place)
    assert sorted(then["replicas"]) == [2, 3]


def test_a_broker_is_drained_while_its_partitions_are_written_to(
    bootstrap: str, place: TopicPartition
) -> None:
    run = Run(bootstrap)
    drained = replicas_of(bootstrap, place)[0]
    with writing(bootstrap, place) as written:
        until_more(written)
        planned = run.said("cluster", "drain", str(drained), "--dry-run")
        assert place.topic in planned
        said = run.said("cluster", "drain", str(drained), "--yes", "--wait")
        assert said.splitlines()[-1] == f"Broker {drained} has no replicas any more."
        until_more(written)
    assert drained not in replicas_of(bootstrap, place)
    assert run.said("cluster", "drain", str(drained)) == f"Broker {drained} has no replicas.\n"
    moved = replicas_of(bootstrap, place)
    back = run.said("cluster", "move", str(place), "--to", f"{drained},{moved[0]}", "--wait")
    assert back == f"{place} is on brokers {drained}, {moved[0]} now.\n"
    assert replicas_of(bootstrap, place) == [drained, moved[0]]
