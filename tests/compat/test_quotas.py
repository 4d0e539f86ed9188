"""Quotas with foreign clients: librdkafka waits and says so, and kafka-configs.sh sets them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, Quotas
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.kafka_tool import KafkaTools

CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with run_broker(data_dir=Path(tmp_path_factory.mktemp("quotas"))) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


def test_librdkafka_produces_and_consumes_over_a_quota_and_shows_the_throttle(
    broker: RunningBroker,
) -> None:
    throttled_ms: dict[str, float] = {}

    def note(name: str, text: str) -> None:
        for each in json.loads(text)["brokers"].values():
            longest = max(throttled_ms.get(name, 0), each["throttle"]["max"])
            throttled_ms[name] = longest

    def client(name: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.address,
            "client.id": name,
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: note(name, text),
            **more,
        }

    values = [b"%05d" % number + bytes(1_000) for number in range(60)]
    with Admin(broker.address) as admin:
        # 60 KB are over the 50 KB of 10 s: producer and consumer wait for 2 s or so.
        admin.alter_quotas({"producer_byte_rate": 5_000}, client_id="quick-producer")
        admin.alter_quotas({"consumer_byte_rate": 5_000}, client_id="quick-consumer")
        producer = Producer(client("quick-producer", **{"batch.size": 5_000, "linger.ms": 0}))
        for value in values:
            producer.produce("throttled", value, partition=0)
            producer.flush(DEADLINE_SECONDS)
        while not throttled_ms.get("quick-producer"):
            producer.poll(0.05)
        consumer = Consumer(
            client(
                "quick-consumer",
                **{
                    "group.id": "throttled",
                    "auto.offset.reset": "earliest",
                    "fetch.message.max.bytes": 5_000,
                },
            )
        )
        consumer.subscribe(["throttled"])
        found: list[bytes | None] = []
        while len(found) < len(values) or not throttled_ms.get("quick-consumer"):
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message.value())
        consumer.close()
    assert found == values


@pytest.mark.peers
def test_kafka_configs_sets_shows_and_removes_quotas(
    broker: RunningBroker, kafka_tools: KafkaTools
) -> None:
    def configs(*words: str) -> str:
        printed = kafka_tools.run(CONFIGS, "--bootstrap-server", broker.address, *words)
        assert printed.status == 0, printed.text
        return printed.text

    users, ids = ("--entity-type", "users"), ("--entity-type", "clients")
    ada = (*users, "--entity-name", "ada")
    configs("--alter", *ada, "--add-config", "producer_byte_rate=1048576,request_percentage=150")
    configs("--alter", *ada, *ids, "--entity-default", "--add-config", "consumer_byte_rate=2097152")
    configs(
        *("--alter", "--entity-type", "ips", "--entity-name", "203.0.113.9"),
        *("--add-config", "connection_creation_rate=100"),
    )
    shown = configs("--describe", *ada)
    assert "producer_byte_rate=1048576.0" in shown
    assert "request_percentage=150.0" in shown
    shown = configs("--describe", *ada, *ids, "--entity-default")
    assert "consumer_byte_rate=2097152.0" in shown
    with Admin(broker.address) as admin:
        assert admin.describe_quotas(user="ada") == [
            Quotas("ada", None, None, {"producer_byte_rate": 2**20, "request_percentage": 150.0}),
            Quotas("ada", "", None, {"consumer_byte_rate": 2**21}),
        ]
        configs("--alter", *ada, "--delete-config", "producer_byte_rate,request_percentage")
        assert [each.client_id for each in admin.describe_quotas(user="ada")] == [""]
        refused = kafka_tools.run(
            CONFIGS,
            *("--bootstrap-server", broker.address, "--alter", *ada),
            *("--add-config", "producer_byte_rate=-1"),
        )
        assert refused.status != 0
        assert "Quota producer_byte_rate must be greater than 0" in refused.text
