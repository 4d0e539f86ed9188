"""Kafka's tools for records, unmodified: console producer and consumer by both protocols, offsets,
versions, elections, verifiable programs; and its decoder of `__consumer_offsets`.

The same words to ours and to a real Kafka.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from tests.broker.group.wire import WireClient
from tests.compat.agents import JAVA
from tests.compat.confluent import consumer, deliver, poll_until, producer
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic
from tests.compat.kafka_tool import KafkaTools, Printed
from tests.peers.jars import kafka_jars
from tests.peers.kafka import run_tool

pytestmark = pytest.mark.peers

TOOLS: Final = "org.apache.kafka.tools"
CONSOLE_PRODUCER: Final = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER: Final = f"{TOOLS}.consumer.ConsoleConsumer"
OFFSETS: Final = f"{TOOLS}.GetOffsetShell"
VERSIONS: Final = f"{TOOLS}.BrokerApiVersionsCommand"
ELECTION: Final = f"{TOOLS}.LeaderElectionCommand"
VERIFIABLE_PRODUCER: Final = f"{TOOLS}.VerifiableProducer"
VERIFIABLE_CONSUMER: Final = f"{TOOLS}.VerifiableConsumer"
LINES: Final = [f"line {number}" for number in range(20)]


def read(
    kafka_tools: KafkaTools, bootstrap: str, topic: str, count: int, *words: str, protocol: str = ""
) -> Printed:
    """Read so many records with the console consumer; those that come in time, if fewer come."""
    by = ("--command-property", f"group.protocol={protocol}") if protocol else ()
    return kafka_tools.run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", count, "--timeout-ms", int(DEADLINE_SECONDS * 1000), *by, *words),
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_lines_go_through_the_console_tools(
    bootstrap: str, create_topic: CreateTopic, kafka_tools: KafkaTools, protocol: str
) -> None:
    topic = create_topic()
    command = [*JAVA, "-cp", f"{kafka_jars()}/*", CONSOLE_PRODUCER]
    subprocess.run(
        [*command, "--bootstrap-server", bootstrap, "--topic", topic],
        input="\n".join(LINES),
        text=True,
        check=True,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    found = read(kafka_tools, bootstrap, topic, len(LINES), protocol=protocol)
    assert [line for line in found.lines if line.startswith("line ")] == LINES


def test_kafka_get_offsets(
    bootstrap: str, create_topic: CreateTopic, kafka_tools: KafkaTools
) -> None:
    topic = create_topic(partitions=2)
    deliver(producer(bootstrap), topic, [b"1", b"2", b"3"], partition=1)
    for time, ends in {"latest": (0, 3), "earliest": (0, 0), "-1": (0, 3)}.items():
        said = kafka_tools.run(
            OFFSETS, "--bootstrap-server", bootstrap, "--topic", topic, "--time", time
        ).lines
        assert said == [f"{topic}:{index}:{end}" for index, end in enumerate(ends)]
    one = kafka_tools.run(
        OFFSETS, "--bootstrap-server", bootstrap, "--topic-partitions", f"{topic}:1"
    )
    assert one.lines == [f"{topic}:1:3"]


def test_kafka_broker_api_versions(bootstrap: str, kafka_tools: KafkaTools) -> None:
    said = kafka_tools.run(VERSIONS, "--bootstrap-server", bootstrap).text
    assert "(id: 1 rack: null isFenced: false) -> (" in said
    for api in (
        "Produce(0): 0 to 13 [usable: 13]",
        "Fetch(1): 4 to 18 [usable: 18]",
        "JoinGroup(11): 0 to 9 [usable: 9]",
        "ConsumerGroupHeartbeat(68): 0 to 1 [usable: 1]",
        "IncrementalAlterConfigs(44): 0 to 1 [usable: 1]",
    ):
        assert api in said


def test_kafka_leader_election(
    bootstrap: str, create_topic: CreateTopic, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    topic = create_topic()
    words = ("--bootstrap-server", bootstrap, "--election-type", "preferred")
    said = kafka_tools.run(ELECTION, *words, "--topic", topic, "--partition", 0).text
    assert "Valid replica already elected for partitions" in said
    assert f"{topic}-0" in said
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 9}]}))
    refused = kafka_tools.run(ELECTION, *words, "--path-to-json-file", file)
    assert refused.status != 0
    assert "UnknownTopicOrPartitionException" in refused.text
    assert kafka_tools.run(ELECTION, *words, "--all-topic-partitions").status == 0


def test_what_the_verifiable_producer_sends_the_verifiable_consumer_reads(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], kafka_tools: KafkaTools
) -> None:
    """By both protocols. The producer ends with its JVM, so it has one of its own."""
    topic = create_topic(partitions=2)
    words = ("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "200")
    summary = json.loads(run_tool(VERIFIABLE_PRODUCER, *words).splitlines()[-1])
    assert (summary["sent"], summary["acked"]) == (200, 200)
    for protocol in ("classic", "consumer"):
        group = ("--group-id", unique("group"), "--group-protocol", protocol)
        read = kafka_tools.run(VERIFIABLE_CONSUMER, *words, *group, "--reset-policy", "earliest")
        events = [json.loads(line) for line in read.lines if line.startswith("{")]
        consumed = [event for event in events if event["name"] == "records_consumed"]
        assert sum(event["count"] for event in consumed) == 200
        commits = [event for event in events if event["name"] == "offsets_committed"]
        assert commits
        assert all(event["success"] for event in commits)


def test_kafkas_formatters_read_the_state_of_groups(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], kafka_tools: KafkaTools
) -> None:
    topic, classic, modern = create_topic(), unique("classic"), unique("modern")
    deliver(producer(bootstrap), topic, [b"1"])
    with consumer(bootstrap, classic) as member:
        member.subscribe([topic])
        poll_until(lambda: bool(member.assignment()), member)
        member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    with WireClient(bootstrap) as client:
        client.coordinator_of(modern)
        client.heartbeat_of_consumer(modern, "m", topics=[topic])
    state = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", 3_000)
    for formatter, words in (
        ("OffsetsMessageFormatter", [f'"group":"{classic}"', f'"topic":"{topic}"']),
        ("GroupMetadataMessageFormatter", [f'"group":"{classic}"', '"protocolType":"consumer"']),
    ):
        said = kafka_tools.run(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", bootstrap, *state),
            *("--formatter", f"{TOOLS}.consumer.{formatter}"),
        ).text
        (line, *_) = [line for line in said.splitlines() if words[0] in line]
        assert all(word in line for word in words)
