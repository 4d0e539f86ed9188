"""A real fault of three brokers and an etcd for each alert that needs them.

They are generators as those of `faults.py`.
"""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from odradek.client.blocking import Admin, Producer
from odradek.client.errors import OdradekError
from odradek.client.types import TopicPartition
from tests.broker.metrics.clerks import wait_until
from tests.cluster.compose import services, with_settings
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.deploy.faults import Fault, Scenes

METRICS_PORT: Final = 9100
TOPIC: Final = "t"
PLACE: Final = TopicPartition(TOPIC, 0)
SETTINGS: Final = {"broker.session.timeout.ms": "3000"}


@contextlib.contextmanager
def running(folder: Path, *, replicas: int, min_in_sync: int = 1) -> Iterator[TemporaryCluster]:
    """Run a cluster with a topic that has so many replicas in each of three partitions."""
    described = with_settings(services(), SETTINGS)
    with TemporaryCluster(folder / "cluster", described, is_loopback=True) as cluster:
        with admin_of(cluster) as admin:
            configs = {"min.insync.replicas": str(min_in_sync)}
            admin.create_topic(TOPIC, partitions=3, replication_factor=replicas, configs=configs)
        cluster.wait_until_whole()
        yield cluster


def addresses(cluster: TemporaryCluster, port: int) -> list[str]:
    return cluster.client([f"{name}:{port}" for name in cluster.brokers])


def bootstrap_of(cluster: TemporaryCluster) -> str:
    (found,) = cluster.client([cluster.bootstrap])
    return found


def admin_of(cluster: TemporaryCluster) -> Admin:
    return Admin(bootstrap_of(cluster))


def described(cluster: TemporaryCluster) -> Any:
    """Return what `odradek topic describe --json` prints of the topic."""
    words = ["topic", "describe", TOPIC, "--json", "--bootstrap", cluster.bootstrap]
    command = cluster.client([str(ODRADEK), *words])
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def replicas_of(cluster: TemporaryCluster, partition: int = 0) -> list[str]:
    """Return the brokers that have a replica, the leader first."""
    leader = cluster.leader(TOPIC, partition)
    found = described(cluster)["partitions"][partition]["replicas"]
    return sorted((f"broker{each}" for each in found), key=lambda name: name != leader)


def kill(cluster: TemporaryCluster, *names: str) -> None:
    for name in names:
        cluster.end(name, signal.SIGKILL)


def start(cluster: TemporaryCluster, *names: str) -> None:
    for name in names:
        cluster.start(name)
    cluster.wait_until_whole()


def no_controller(folder: Path) -> Scenes:
    """The controller dies, and without etcd there is no election."""
    with running(folder, replicas=3) as cluster:
        yield addresses(cluster, METRICS_PORT)
        controller = cluster.controller()
        kill(cluster, "etcd", controller)
        yield []
        start(cluster, "etcd", controller)
        yield []


def no_leader(folder: Path) -> Scenes:
    """A partition has one replica, whose broker dies."""
    with running(folder, replicas=1) as cluster:
        yield addresses(cluster, METRICS_PORT)
        (broker,) = replicas_of(cluster)
        kill(cluster, broker)
        yield []
        start(cluster, broker)
        yield []


def too_few_replicas(folder: Path) -> Scenes:
    with running(folder, replicas=3, min_in_sync=2) as cluster:
        yield addresses(cluster, METRICS_PORT)
        _, *followers = replicas_of(cluster)
        kill(cluster, *followers)
        yield []
        start(cluster, *followers)
        yield []


def under_replicated(folder: Path) -> Scenes:
    with running(folder, replicas=3) as cluster:
        yield addresses(cluster, METRICS_PORT)
        _, follower, _ = replicas_of(cluster)
        kill(cluster, follower)
        yield []
        start(cluster, follower)
        yield []


def unclean_election(folder: Path) -> Scenes:
    """The last replica in sync is gone, and an administrator elects one that was not in sync."""
    with running(folder, replicas=2) as cluster:
        yield addresses(cluster, METRICS_PORT)
        leader, follower = replicas_of(cluster)
        kill(cluster, follower)
        wait_until(lambda: in_sync(cluster) == [leader], "the follower stays in sync")
        with Producer(bootstrap_of(cluster)) as producer:  # what the follower will not have
            producer.send(TOPIC, b"1", partition=0).result()
        kill(cluster, leader)
        cluster.start(follower)
        wait_until(lambda: is_elected(cluster), "there is no unclean election")
        yield []
        start(cluster, leader)
        yield []


def in_sync(cluster: TemporaryCluster) -> list[str]:
    return [f"broker{each}" for each in described(cluster)["partitions"][0]["in_sync"]]


def is_elected(cluster: TemporaryCluster) -> bool:
    """Return True if an unclean election was possible: the partition had no leader any more."""
    with contextlib.suppress(OdradekError), admin_of(cluster) as admin:
        admin.elect_leader(PLACE, unclean=True)
        return True
    return False


def markers_owed(folder: Path) -> Scenes:
    """The only broker with a partition stands still when a transaction in it is decided."""
    with (
        running(folder, replicas=1) as cluster,
        Producer(bootstrap_of(cluster), transactional_id="teller") as producer,
    ):
        yield addresses(cluster, METRICS_PORT)
        with producer.transaction():
            for partition in range(3):
                producer.send(TOPIC, b"1", partition=partition).result()
            coordinator = cluster.coordinator("teller")
            leaders = [cluster.leader(TOPIC, partition) for partition in range(3)]
            stopped = next(each for each in leaders if each != coordinator)
            cluster.send(stopped, signal.SIGSTOP)
        yield []
        cluster.send(stopped, signal.SIGCONT)
        cluster.wait_until_whole()
        yield []


OF_A_CLUSTER: Final[dict[str, Fault]] = {
    "OdradekNoController": no_controller,
    "OdradekPartitionsWithoutLeader": no_leader,
    "OdradekTooFewReplicas": too_few_replicas,
    "OdradekUnderReplicated": under_replicated,
    "OdradekUncleanElection": unclean_election,
    "OdradekMarkersOwed": markers_owed,
}
