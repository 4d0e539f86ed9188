"""A rolling upgrade of three processes from an earlier version, under load, and back again."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.compose import Service, services
from tests.cluster.network import NoNamespaces
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.test_kills import RunningWriter, odradek
from tests.conftest import MUST_NOT_SKIP
from tests.soak.beside import Talking

pytestmark = [pytest.mark.peers, pytest.mark.slow, pytest.mark.minutes]

TOPIC: Final = "written"
MORE: Final = 20


@pytest.fixture
def cluster(earlier: Path, tmp_path: Path) -> Iterator[TemporaryCluster]:
    """Three brokers of the earlier version."""
    made = TemporaryCluster(tmp_path, map(known_to_both, services()))
    made.programs.update(dict.fromkeys(made.brokers, earlier))
    try:
        with made as running:
            yield running
    except NoNamespaces as error:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            raise
        pytest.skip(str(error))


def known_to_both(service: Service) -> Service:
    """Return a service whose command has only settings that the earlier version knows."""
    if not service.is_broker:
        return service
    number = service.name.removeprefix("broker")
    command = (
        f"odradek serve --data-dir {service.volume} --listen 0.0.0.0:9092 "
        f"--advertise {service.name}:9092 --set node.id={number} "
        "--set inter.broker.listener.port=9093 --set etcd.endpoints=http://etcd:2379"
    )
    return replace(service, command=tuple(command.split()))


def exchange(cluster: TemporaryCluster, broker: str, program: Path) -> None:
    """Stop a broker in good order, and start another version on its directory."""
    cluster.end(broker, signal.SIGTERM)
    cluster.programs[broker] = program
    cluster.start(broker)
    cluster.wait_until_whole()


def test_no_record_and_no_transaction_is_lost_on_the_way_there_and_back(
    cluster: TemporaryCluster, earlier: Path
) -> None:
    odradek(cluster, "topic", "create", TOPIC, "--partitions", "1", "--replication-factor", "3")
    cluster.wait_until_whole()
    bank = Talking(
        cluster, ["-m", "tests.soak.bank", cluster.bootstrap], cluster.directory / "bank.out"
    )
    writer = RunningWriter(cluster, "kafka-python", TOPIC)
    try:
        for broker in cluster.brokers:
            writer.wait_for_more(MORE)
            exchange(cluster, broker, ODRADEK)
        writer.wait_for_more(MORE)
        for program in (earlier, ODRADEK):  # back, as nothing of the new version is in use
            exchange(cluster, cluster.brokers[0], program)
            writer.wait_for_more(MORE)
        bank.end()
    finally:
        bank.close()
        writer.stop()
    (verdict,) = [row["verdict"] for row in bank.rows if "verdict" in row]
    assert verdict["anomalies"] == []
    assert verdict["OK"] > MORE
    found = odradek(cluster, "consume", TOPIC, "--from-beginning").split()
    assert found == writer.acknowledged, json.dumps(verdict)
