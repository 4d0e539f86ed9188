"""Kafka's own tools, unmodified, with groups of the new protocol: the Java consumer, and describe.

The same on a real Kafka: what differs is ours.
"""

from collections.abc import Callable
from typing import Final

import pytest

from tests.compat.confluent import consumer, deliver, poll_until, producer
from tests.compat.conftest import CreateTopic
from tests.compat.kafka_tool import KafkaTools

pytestmark = pytest.mark.peers

GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def test_a_group_is_described_with_its_members(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], kafka_tools: KafkaTools
) -> None:
    topic, group = create_topic(partitions=2), unique("group")
    with consumer(bootstrap, group, group_protocol="consumer", client_id="reader") as member:
        member.subscribe([topic])
        poll_until(lambda: len(member.assignment()) == 2, member)
        server = ("--bootstrap-server", bootstrap)
        listed = kafka_tools.run(GROUPS, *server, "--list", "--state", "--type")
        (line,) = (line.split() for line in listed.lines if line.startswith(group))
        assert line[1:] == ["Consumer", "Stable"]
        described = kafka_tools.run(GROUPS, *server, "--describe", "--group", group, "--state")
        assert "uniform" in described.text
        members = kafka_tools.run(
            GROUPS, *server, "--describe", "--group", group, "--members", "--verbose"
        )
        assert f"{topic}:0,1" in members.text.replace(f"{topic}(0,1)", f"{topic}:0,1")
        assert "reader" in members.text
        offsets = kafka_tools.run(GROUPS, *server, "--describe", "--group", group)
        assert offsets.text.count(topic) == 2


def test_the_java_consumer_reads_by_the_new_protocol_and_goes_on(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str], kafka_tools: KafkaTools
) -> None:
    topic, group = create_topic(), unique("group")
    sender = producer(bootstrap)
    for first in (0, 3):
        deliver(sender, topic, [b"value-%d" % number for number in range(first, first + 3)])
        read = kafka_tools.run(
            CONSOLE,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
            *("--command-property", "group.protocol=consumer"),
            *("--command-property", "auto.offset.reset=earliest"),
            *("--max-messages", "3", "--timeout-ms", "60000"),
        )
        lines = [line for line in read.lines if line.startswith("value-")]
        assert lines == [f"value-{number}" for number in range(first, first + 3)], read.text
