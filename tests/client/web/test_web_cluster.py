"""`odradek web` beside three brokers and a real etcd, one of which is killed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, NewTopic, Producer
from odradek.client.types import TopicPartition
from tests.client.web.pages import served_page
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports

pytestmark = [pytest.mark.peers, pytest.mark.slow]

Rows = dict[tuple[str, str], Any]
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "3000",
}
NODE_IDS: Final = (1, 2, 3)
TOPIC: Final = "ledger"


@pytest.fixture
def brokers(real_etcd: RealEtcd, tmp_path: Path) -> Iterator[dict[int, RunningBroker]]:
    """Three brokers by their numbers."""
    peer_ports = free_ports(len(NODE_IDS))
    with ExitStack() as stack:
        found = {}
        for node_id, port in zip(NODE_IDS, peer_ports, strict=True):
            config = {
                **SETTINGS,
                "node.id": str(node_id),
                "inter.broker.listener.port": str(port),
                "etcd.endpoints": ",".join(real_etcd.endpoints),
                "etcd.key.prefix": "/page",
            }
            found[node_id] = RunningBroker(tmp_path / f"data-{node_id}", config, {}, 0)
            stack.callback(found[node_id].close)
            found[node_id].start()
        yield found


def bootstrap_of(brokers: dict[int, RunningBroker]) -> str:
    return ",".join(broker.address for broker in brokers.values())


def is_calm(rows: Rows) -> bool:
    """Return True if every section is well, and all brokers and replicas are there."""
    statuses = [row for (section, _), row in rows.items() if section == "status"]
    nodes = [row for (section, _), row in rows.items() if section == "broker"]
    return (
        len(statuses) == 5
        and all(status["is_well"] for status in statuses)
        and len(nodes) == len(NODE_IDS)
        and not any(node["is_away"] for node in nodes)
        and rows["cluster", ""]["lagging"] == 0
    )


def test_the_page_of_three_brokers_shows_that_one_was_killed_and_goes_on_with_the_others(
    brokers: dict[int, RunningBroker],
) -> None:
    bootstrap = bootstrap_of(brokers)
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions=3, replication_factor=3)])
        (topic,) = admin.describe_topics(TOPIC)
        victim = topic.partitions[0].leader
    with served_page(bootstrap) as page:
        page.rows_until(is_calm)
        with (
            Producer(bootstrap, transactional_id="teller", client_id="till") as producer,
            producer.transaction() as transaction,
        ):
            for partition in range(3):
                transaction.send(TOPIC, b"x", partition=partition).result()
            wanted = {str(TopicPartition(TOPIC, partition)) for partition in range(3)}
            page.rows_until(lambda rows: pins(rows) == wanted)
            brokers[victim].kill()
            page.rows_until(lambda rows: rows["broker", str(victim)]["is_away"])
            # Others lead now: the same transaction still holds the same readers back.
            after = page.rows_until(
                lambda rows: (
                    pins(rows) == wanted
                    and all(row["is_well"] for (of, _), row in rows.items() if of == "status")
                    and rows
                )
            )
            assert after["pin", f"{TOPIC}-0"]["name"] == "teller"
            assert after["cluster", ""]["leaderless"] == 0
            assert victim not in after["replicas", f"{TOPIC}-0"]["in_sync"]
        page.rows_until(lambda rows: not pins(rows) and how_ended(rows, "teller") == ["committed"])
        brokers[victim].start()
        page.rows_until(is_calm)


def pins(rows: Rows) -> set[str]:
    return {key for section, key in rows if section == "pin"}


def how_ended(rows: Rows, name: str) -> list[str]:
    return [
        row["how"]
        for (section, _), row in rows.items()
        if section == "span" and row["id"] == name and row["how"] is not None
    ]
