"""Changed settings with foreign tools: kafka-configs.sh as it is, and confluent-kafka."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from odradek.protocol.errors import ErrorCode
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic
from tests.compat.kafka_tool import KafkaTools, Printed

CONFIGS = "kafka.admin.ConfigCommand"


def resource(
    name: str, *entries: ConfigEntry, kind: ResourceType = ResourceType.TOPIC
) -> ConfigResource:
    return ConfigResource(kind, name, incremental_configs=list(entries) or None)


def entry(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def altered(admin: AdminClient, wanted: ConfigResource) -> None:
    for answer in admin.incremental_alter_configs([wanted]).values():
        answer.result(DEADLINE_SECONDS)


def becomes(look: Callable[[], object], expected: object) -> None:
    """A real Kafka answers before a change counts."""
    give_up = time.monotonic() + DEADLINE_SECONDS
    while (found := look()) != expected:
        assert time.monotonic() < give_up, found
        time.sleep(0.01)  # between two looks, not for luck


def value_of(admin: AdminClient, wanted: ConfigResource, name: str) -> str | None:
    (answer,) = admin.describe_configs([wanted]).values()
    value: str | None = answer.result(DEADLINE_SECONDS)[name].value
    return value


def test_confluent_changes_a_topic(admin: AdminClient, create_topic: CreateTopic) -> None:
    topic, name = create_topic(), "retention.ms"
    default = value_of(admin, resource(topic), name)
    altered(admin, resource(topic, entry(name, "5000", AlterConfigOpType.SET)))
    becomes(lambda: value_of(admin, resource(topic), name), "5000")
    append = entry("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    altered(admin, resource(topic, append))
    becomes(lambda: value_of(admin, resource(topic), "cleanup.policy"), "delete,compact")
    altered(admin, resource(topic, entry(name, None, AlterConfigOpType.DELETE)))
    becomes(lambda: value_of(admin, resource(topic), name), default)


def test_confluent_changes_a_broker(admin: AdminClient) -> None:
    name = "log.cleaner.backoff.ms"
    broker = ResourceType.BROKER
    altered(admin, resource("1", entry(name, "9000", AlterConfigOpType.SET), kind=broker))
    becomes(lambda: value_of(admin, resource("1", kind=broker), name), "9000")
    altered(admin, resource("1", entry(name, None, AlterConfigOpType.DELETE), kind=broker))
    becomes(lambda: value_of(admin, resource("1", kind=broker), name), "15000")


def test_confluent_is_told_what_is_wrong(admin: AdminClient, create_topic: CreateTopic) -> None:
    wrong = entry("retention.ms", "soon", AlterConfigOpType.SET)
    with pytest.raises(KafkaException) as refused:
        altered(admin, resource(create_topic(), wrong))
    assert refused.value.args[0].code() == ErrorCode.INVALID_CONFIG
    assert "Invalid value soon for configuration retention.ms" in refused.value.args[0].str()


# Kafka's own tool


Configs = Callable[..., Printed]


@pytest.fixture
def configs(bootstrap: str, kafka_tools: KafkaTools) -> Configs:
    return lambda *words: kafka_tools.run(CONFIGS, "--bootstrap-server", bootstrap, *words)


def shown(configs: Configs, *words: str) -> list[str]:
    """The changed settings that the tool shows, without their other sources."""
    printed = configs(*words, "--describe")
    assert printed.status == 0, printed.text
    return [line.split()[0] for line in printed.lines[1:]]


@pytest.mark.peers
def test_the_tool_changes_a_topic(configs: Configs, create_topic: CreateTopic) -> None:
    where = ("--entity-type", "topics", "--entity-name", create_topic())
    values = "retention.ms=5000,cleanup.policy=[delete,compact]"
    said = configs(*where, "--alter", "--add-config", values)
    assert (said.status, said.lines[0][:9]) == (0, "Completed"), said.text
    expected = ["cleanup.policy=delete,compact", "retention.ms=5000"]
    becomes(lambda: sorted(shown(configs, *where)), expected)
    said = configs(*where, "--alter", "--delete-config", "retention.ms")
    assert said.status == 0, said.text
    becomes(lambda: shown(configs, *where), expected[:1])
    wrong = configs(*where, "--alter", "--add-config", "retention.ms=soon")
    assert wrong.status != 0
    assert "Invalid value soon for configuration retention.ms" in wrong.text


@pytest.mark.peers
@pytest.mark.parametrize("which", [("--entity-name", "1"), ("--entity-default",)])
def test_the_tool_changes_brokers(configs: Configs, which: tuple[str, ...]) -> None:
    name = "log.index.interval.bytes"
    where = ("--entity-type", "brokers", *which)
    said = configs(*where, "--alter", "--add-config", f"{name}=5000")
    assert said.status == 0, said.text
    becomes(lambda: f"{name}=5000" in shown(configs, *where), True)
    said = configs(*where, "--alter", "--delete-config", name)
    assert said.status == 0, said.text
    becomes(lambda: f"{name}=5000" in shown(configs, *where), False)
    everything = configs(*where, "--describe", "--all")
    assert everything.status == 0, everything.text


@pytest.mark.peers
def test_the_tool_is_refused_what_a_broker_reads_at_its_start(configs: Configs) -> None:
    where = ("--entity-type", "brokers", "--entity-name", "1")
    refused = configs(*where, "--alter", "--add-config", "num.partitions=9")
    assert refused.status != 0
    assert "Cannot update these configs dynamically" in refused.text


@pytest.mark.peers
def test_the_tool_changes_a_group(configs: Configs, unique: Callable[[str], str]) -> None:
    where = ("--entity-type", "groups", "--entity-name", unique("group"))
    setting = "consumer.session.timeout.ms"
    said = configs(*where, "--alter", "--add-config", f"{setting}=20000")
    assert (said.status, said.lines[0][:9]) == (0, "Completed"), said.text
    becomes(lambda: shown(configs, *where), [f"{setting}=20000"])
    wrong = configs(*where, "--alter", "--add-config", f"{setting}=1")
    assert wrong.status != 0
    assert f"{setting} must be greater than or equal to" in wrong.text
    said = configs(*where, "--alter", "--delete-config", setting)
    assert said.status == 0, said.text
    becomes(lambda: shown(configs, *where), [])
