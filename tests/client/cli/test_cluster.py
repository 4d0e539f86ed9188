"""`odradek cluster status`: what it makes of the metadata, and against a running broker."""

import json
from uuid import UUID

from click.testing import CliRunner

from odradek.client.cli.cluster import cluster, facts
from odradek.client.types import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)


def with_partitions(*partitions: PartitionDescription) -> dict[str, object]:
    """Return the facts of a cluster of which brokers 1 and 2 are there, and broker 3 is not."""
    brokers = tuple(BrokerDescription(number, f"broker{number}", 9092, None) for number in (2, 1))
    topic = TopicDescription("ledger", UUID(int=1), False, partitions)
    return facts(ClusterDescription("the-cluster", 2, brokers), [topic])


def test_each_broker_has_its_leads_and_replicas() -> None:
    found = with_partitions(
        PartitionDescription(0, 1, 0, (1, 2), (1, 2)),
        PartitionDescription(1, 1, 0, (2, 1), (2, 1)),
        PartitionDescription(2, 2, 0, (2,), (2,)),
    )
    assert found["brokers"] == [
        {"id": 1, "address": "broker1:9092", "leads": 2, "replicas": 2},
        {"id": 2, "address": "broker2:9092", "leads": 1, "replicas": 3},
    ]
    assert found["not_in_sync"] == []


def test_a_replica_is_behind_or_its_broker_is_away() -> None:
    found = with_partitions(
        PartitionDescription(0, 1, 4, (1, 2, 3), (1,)),
        PartitionDescription(1, -1, 4, (3,), (3,)),
    )
    assert found["not_in_sync"] == [
        {
            "topic": "ledger",
            "partition": 0,
            "leader": 1,
            "replicas": [1, 2, 3],
            "in_sync": [1],
            "why": ["broker 2 is behind", "broker 3 is away"],
        },
        {
            "topic": "ledger",
            "partition": 1,
            "leader": -1,
            "replicas": [3],
            "in_sync": [3],
            "why": ["no leader", "broker 3 is away"],
        },
    ]


def test_the_status_of_a_running_broker(odradek_address: str) -> None:
    shown = CliRunner().invoke(cluster, ["status", "-b", odradek_address])
    assert shown.exit_code == 0, shown.output
    assert odradek_address in shown.output
    printed = CliRunner().invoke(cluster, ["status", "--json", "-b", odradek_address])
    (broker,) = json.loads(printed.output)["brokers"]
    assert broker["address"] == odradek_address


def test_the_status_of_no_broker_is_an_error_in_one_sentence() -> None:
    shown = CliRunner().invoke(cluster, ["status", "-b", "127.0.0.1:1", "--timeout", "0.2"])
    assert shown.exit_code == 1
    assert shown.output.startswith("Error: ")
    assert shown.output.count("\n") == 1
