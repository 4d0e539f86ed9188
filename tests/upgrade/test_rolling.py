"""A rolling upgrade of three processes from an earlier version, under load, and back again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.cluster.store import METADATA_FORMAT
from tests.broker.metrics.clerks import wait_until
from tests.cluster.compose import Service, services
from tests.cluster.network import NoNamespaces
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.test_kills import RunningWriter, odradek
from tests.conftest import MUST_NOT_SKIP
from tests.soak.beside import Talking

pytestmark = [pytest.mark.peers, pytest.mark.slow, pytest.mark.minutes]

TOPIC: Final = "written"
MORE: Final = 20
ETCD_SECONDS: Final = 60.0
ENDED_SECONDS: Final = 60.0


@pytest.fixture
def cluster(earlier: Path, tmp_path: Path) -> Iterator[TemporaryCluster]:
    """Three brokers of the earlier version."""
    with running(tmp_path, earlier) as made:
        yield made


@contextmanager
def running(directory: Path, program: Path = ODRADEK) -> Iterator[TemporaryCluster]:
    """Run three brokers of a version while the block runs."""
    made = TemporaryCluster(directory, map(known_to_both, services()))
    made.programs.update(dict.fromkeys(made.brokers, program))
    try:
        with made as cluster:
            yield cluster
    except NoNamespaces as error:
        if os.environ.get(MUST_NOT_SKIP) == "1":
            raise
        pytest.skip(str(error))


def output_of(cluster: TemporaryCluster, broker: str) -> str:
    return (cluster.directory / f"{broker}.out").read_text()


def set_format(cluster: TemporaryCluster, number: int) -> None:
    """Have the metadata in etcd say that they are of a format."""
    words = ["-m", "tests.upgrade.raise_format", "http://etcd:2379", str(number)]
    subprocess.run(cluster.client([sys.executable, *words]), check=True, timeout=ETCD_SECONDS)


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
        bank.wait_for_a_row()  # all three brokers take its topic
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


def test_a_version_that_does_not_know_a_raised_format_is_refused_in_words(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        odradek(cluster, "topic", "create", TOPIC, "--partitions", "1", "--replication-factor", "3")
        cluster.wait_until_whole()
        first = cluster.brokers[0]
        exchange(cluster, first, ODRADEK)  # nothing is raised: any version comes and goes
        set_format(cluster, METADATA_FORMAT + 1)
        writer = RunningWriter(cluster, "kafka-python", TOPIC)
        try:
            cluster.end(first, signal.SIGTERM)
            before = len(output_of(cluster, first))
            cluster.start(first)
            deadline = time.monotonic() + ENDED_SECONDS
            while cluster.state(first) != "down":
                assert time.monotonic() < deadline, cluster.said()
                time.sleep(0.1)
            (sentence,) = [
                line
                for line in output_of(cluster, first)[before:].splitlines()
                if line.startswith("Error: ")
            ]
            writer.wait_for_more(MORE)  # the others go on
        finally:
            writer.stop()
        assert sentence == (
            f"Error: The metadata of the cluster have format {METADATA_FORMAT + 1}, and this "
            f"version of Odradek reads formats up to {METADATA_FORMAT}: use the version that wrote "
            "them, or a newer one."
        )
        assert "Traceback" not in output_of(cluster, first)
        set_format(cluster, METADATA_FORMAT)
        cluster.start(first)
        cluster.wait_until_whole()
        assert odradek(cluster, "consume", TOPIC, "--from-beginning").split() == writer.acknowledged


def test_an_earlier_version_that_comes_back_is_named_where_it_would_enforce_nothing(
    earlier: Path, tmp_path: Path
) -> None:
    with running(tmp_path) as cluster:
        cluster.wait_until_whole()
        odradek(cluster, "quota", "set", "producer_byte_rate=1MiB", "--default-client-id")
        first, *others = cluster.brokers
        exchange(cluster, first, earlier)
        said = "broker 1 is of a version that does not enforce quotas"
        wait_until(
            lambda: all(said in output_of(cluster, other) for other in others),
            "the others do not name the broker",
        )
