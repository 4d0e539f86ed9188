"""Kafka's administration tools, unmodified: the same words to ours and to a real Kafka."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition
from tests.client.live import name_of
from tests.compat.kafka_tool import KafkaTools, Printed

pytestmark = pytest.mark.peers

TOOLS: Final = "org.apache.kafka.tools"
DELETE_RECORDS: Final = f"{TOOLS}.DeleteRecordsCommand"
LOG_DIRS: Final = f"{TOOLS}.LogDirsCommand"
GROUPS: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
QUORUM: Final = f"{TOOLS}.MetadataQuorumCommand"
FEATURES: Final = f"{TOOLS}.FeatureCommand"
TOPICS: Final = f"{TOOLS}.TopicCommand"
OFFSETS: Final = f"{TOOLS}.GetOffsetShell"
CLUSTER: Final = f"{TOOLS}.ClusterTool"


@dataclass
class Tools:
    """The tools, and the broker that they are to look at."""

    address: str
    tools: KafkaTools

    def run(self, tool: str, *arguments: object) -> Printed:
        return self.tools.run(tool, "--bootstrap-server", self.address, *arguments)

    def said(self, tool: str, *arguments: object) -> str:
        printed = self.run(tool, *arguments)
        assert printed.status == 0, printed.text
        return printed.text

    def topic(self, partitions: int = 2, records: int = 3) -> str:
        """Make a topic with records in partition 0."""
        topic = name_of("tools")
        with Admin(self.address) as admin, Producer(self.address) as producer:
            admin.create_topic(topic, partitions=partitions)
            for _ in range(records):
                producer.send(topic, b"v", partition=0)
            producer.flush()
        return topic

    def group(self, topic: str, offset: int) -> str:
        group = name_of("group")
        with Consumer(self.address, group_id=group) as consumer:
            consumer.commit({TopicPartition(topic, 0): offset})
        return group


@pytest.fixture
def tools(bootstrap: str, kafka_tools: KafkaTools) -> Tools:
    return Tools(bootstrap, kafka_tools)


def rows(text: str, *columns: str) -> list[list[str]]:
    """The cells of these columns in a table whose cells have no spaces."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if columns[0] in line)
    places = [lines[start].index(column) for column in columns]
    return [[line[place] for place in places] for line in lines[start + 1 :]]


def test_kafka_delete_records(tools: Tools, tmp_path: Path) -> None:
    topic = tools.topic()
    wanted = [{"topic": topic, "partition": 0, "offset": 2}]
    wanted += [{"topic": topic, "partition": 1, "offset": -1}]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    said = tools.said(DELETE_RECORDS, "--offset-json-file", file)
    assert f"partition: {topic}-0\tlow_watermark: 2" in said
    assert f"partition: {topic}-1\tlow_watermark: 0" in said
    file.write_text(json.dumps({"partitions": [wanted[0] | {"offset": 9}], "version": 1}))
    refused = tools.run(DELETE_RECORDS, "--offset-json-file", file).text
    assert f"partition: {topic}-0\terror: " in refused
    assert "OffsetOutOfRangeException" in refused
    assert f"{topic}:0:2" in tools.said(OFFSETS, "--topic", topic, "--time", "earliest")


def test_kafka_log_dirs(tools: Tools) -> None:
    topic = tools.topic()
    said = tools.said(LOG_DIRS, "--describe", "--topic-list", topic, "--broker-list", "1")
    (found,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (broker,) = found["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (1, None)
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes[f"{topic}-0"] > 0 == sizes[f"{topic}-1"]
    assert {each["offsetLag"] for each in directory["partitions"]} == {0}


def test_kafka_consumer_groups_describes_and_lists(tools: Tools) -> None:
    topic = tools.topic()
    group = tools.group(topic, 1)
    assert group in tools.said(GROUPS, "--list").split()
    assert [group, "Empty"] in rows(tools.said(GROUPS, "--list", "--state"), "GROUP", "STATE")
    said = tools.said(GROUPS, "--describe", "--group", group)
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    assert rows(said, *columns) == [[group, topic, "0", "1", "3", "2"]]
    state = tools.said(GROUPS, "--describe", "--group", group, "--state")
    assert "Empty" in state
    missing = tools.run(GROUPS, "--describe", "--group", name_of("absent")).text
    assert "GroupIdNotFoundException" in missing


@pytest.mark.parametrize(
    ("words", "offset"),
    [
        (("--to-earliest",), "0"),
        (("--to-latest",), "3"),
        (("--shift-by", "1"), "2"),
        (("--to-offset", "2"), "2"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
    ],
)
def test_kafka_consumer_groups_resets(tools: Tools, words: tuple[str, ...], offset: str) -> None:
    topic = tools.topic()
    group = tools.group(topic, 1)
    scope = ("--group", group, "--topic", f"{topic}:0")
    planned = tools.said(GROUPS, "--reset-offsets", *scope, *words, "--dry-run")
    assert rows(planned, "GROUP", "PARTITION", "NEW-OFFSET") == [[group, "0", offset]]
    tools.said(GROUPS, "--reset-offsets", *scope, *words, "--execute")
    said = tools.said(GROUPS, "--describe", "--group", group)
    assert rows(said, "GROUP", "CURRENT-OFFSET") == [[group, offset]]


def test_kafka_consumer_groups_deletes_offsets_and_groups(tools: Tools) -> None:
    topic = tools.topic()
    group = tools.group(topic, 1)
    said = tools.said(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert rows(said, "TOPIC", "PARTITION", "STATUS") == [[topic, "0", "Successful"]]
    with Admin(tools.address) as admin:
        assert admin.committed(group) == {}
    assert "was successful" in tools.said(GROUPS, "--delete", "--group", group)
    assert group not in tools.said(GROUPS, "--list").split()
    again = tools.run(GROUPS, "--delete", "--group", group).text
    assert "GroupIdNotFoundException" in again


def test_kafka_metadata_quorum(tools: Tools) -> None:
    status = tools.said(QUORUM, "describe", "--status")
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert found["LeaderId"].strip() == "1"
    assert int(found["HighWatermark"]) > 0
    assert found["MaxFollowerLag"].strip() == "0"
    assert '"id": 1' in found["CurrentVoters"]
    assert found["CurrentObservers"].strip() == "[]"
    replication = tools.said(QUORUM, "describe", "--replication")
    assert rows(replication, "NodeId", "Lag", "Status") == [["1", "0", "Leader"]]


def test_kafka_features(tools: Tools) -> None:
    said = tools.said(FEATURES, "describe")
    (line,) = [
        line for line in said.splitlines() if line.startswith("Feature: transaction.version")
    ]
    assert "SupportedMinVersion: 0" in line
    assert "FinalizedVersionLevel: 2" in line
    refused = tools.run(FEATURES, "upgrade", "--feature", "transaction.version=3")
    assert refused.status == 1
    assert "only supports versions 0-2" in refused.text


def test_kafka_topics_describes_and_deletes(tools: Tools) -> None:
    topic = tools.topic(partitions=3)
    said = tools.said(TOPICS, "--describe", "--topic", topic)
    head, *partitions = [line for line in said.splitlines() if f"Topic: {topic}" in line]
    assert "PartitionCount: 3" in head
    assert "ReplicationFactor: 1" in head
    for number, line in enumerate(partitions):
        words = dict(word.split(": ", 1) for word in line.split("\t") if ": " in word)
        assert words["Partition"] == str(number)
        assert [words[name] for name in ("Leader", "Replicas", "Isr")] == ["1", "1", "1"]
    unavailable = tools.said(TOPICS, "--describe", "--topic", topic, "--unavailable-partitions")
    assert f"Topic: {topic}" not in unavailable
    tools.said(TOPICS, "--delete", "--topic", topic)
    assert topic not in tools.said(TOPICS, "--list").split()


def test_kafka_cluster_unregisters_no_broker_that_is_not_there(tools: Tools) -> None:
    where = ("--bootstrap-server", tools.address)
    refused = tools.tools.run(CLUSTER, "unregister", *where, "--id", "9")
    assert "Broker ID 9 is not currently registered" in refused.text
    listed = tools.tools.run(CLUSTER, "list-endpoints", *where, "--include-fenced-brokers")
    assert listed.status == 0, listed.text
    assert tools.address.rpartition(":")[2] in listed.text
