"""A single broker becomes three, over a real etcd, while an application counts exactly once."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, NewTopic
from tests.cluster.bookkeeper import (
    LEDGER,
    PARTITIONS,
    SOURCE,
    Bookkeeper,
    check_numbers,
    committed,
    read,
)
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PREFIX: Final = "/adopted"
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "3000",
}


def odradek(*words: str) -> str:
    command = [sys.executable, "-m", "odradek.broker", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_cluster(etcd: RealEtcd, node_id: int, peer_port: int) -> dict[str, str]:
    return {
        **SETTINGS,
        "node.id": str(node_id),
        "inter.broker.listener.port": str(peer_port),
        "etcd.endpoints": ",".join(etcd.endpoints),
        "etcd.key.prefix": PREFIX,
    }


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[RunningBroker]:
    with run_broker(data_dir=tmp_path / "data-1", config=SETTINGS) as broker:
        yield broker


def test_one_broker_becomes_three_and_every_number_is_counted_once(
    alone: RunningBroker, real_etcd: RealEtcd, tmp_path: Path
) -> None:
    ports = free_ports(5)
    addresses = [alone.address, *(f"127.0.0.1:{port}" for port in ports[:2])]
    with Admin(alone.address) as admin:
        admin.create_topics([NewTopic(SOURCE.topic, 1, 1), NewTopic(LEDGER, PARTITIONS, 1)])
        ids = {topic.name: topic.topic_id for topic in admin.describe_topics(LEDGER)}
    with ExitStack() as stack, Bookkeeper(",".join(addresses)) as bookkeeper:
        bookkeeper.wait_for_more(20)
        alone.stop()
        adopt = (
            "cluster", "adopt", "--etcd", ",".join(real_etcd.endpoints),
            "--data-dir", str(alone.data_dir), "--set", f"etcd.key.prefix={PREFIX}",
        )  # fmt: skip
        facts = json.loads(odradek(*adopt, "--json"))
        assert (facts["node_id"], facts["was_done"]) == (1, False)
        assert "was adopted before" in odradek(*adopt)
        alone.config = in_cluster(real_etcd, 1, ports[2])
        alone.start()
        for node_id in (2, 3):
            stack.enter_context(
                run_broker(
                    data_dir=tmp_path / f"data-{node_id}",
                    config=in_cluster(real_etcd, node_id, ports[1 + node_id]),
                    port=ports[node_id - 2],
                )
            )
        bookkeeper.wait_for_more(20)
        there = ",".join(addresses[1:])
        odradek(
            "cluster", "rebalance", "--replication-factor", "3", "--yes", "--wait",
            "--bootstrap", there,
        )  # fmt: skip
        with Admin(there) as admin:
            topics = admin.describe_topics(*admin.list_topics(internal=True))
            assert {len(p.replicas) for topic in topics for p in topic.partitions} == {3}
            assert {topic.name: topic.topic_id for topic in topics if topic.name in ids} == ids
        bookkeeper.wait_for_more(20)
        alone.kill()  # the first one is needed no more
        bookkeeper.wait_for_more(20)
        written = bookkeeper.next_number
        assert committed(there) >= written - 1  # the offset of the last one may have no marker yet
        numbers = read(there, bookkeeper.next_number)
    check_numbers(numbers)
