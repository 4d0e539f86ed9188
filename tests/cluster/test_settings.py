"""Three real brokers and an etcd: settings that are changed while one of the brokers is down."""

import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.storage.identity import IDENTITY, decode_identity
from odradek.client import ConfigEntry, OdradekError
from odradek.client.blocking import Admin
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.test_network import wait_until

pytestmark = pytest.mark.peers

TOPIC: Final = {"retention.ms": "777000000", "max.message.bytes": "300"}
GROUP: Final = {"consumer.session.timeout.ms": "50000"}
ALL: Final = {"log.cleaner.backoff.ms": "9000"}
OWN: Final = {"log.roll.ms": "888000000"}
"""The settings of broker 1 only."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TemporaryCluster]:
    with TemporaryCluster(tmp_path, is_loopback=True) as running:
        yield running


def odradek(
    cluster: TemporaryCluster, broker: str, *words: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    command = cluster.client([str(ODRADEK), *words, "--bootstrap", f"{broker}:9092"])
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def changed(cluster: TemporaryCluster, settings: Mapping[str, str], *whose: str) -> None:
    words = [f"{name}={value}" for name, value in settings.items()]
    done = odradek(cluster, "broker1", "config", "set", *whose, *words)
    assert done.returncode == 0, done.stderr


def has(settings: Mapping[str, str], described: Mapping[str, ConfigEntry]) -> bool:
    """Return True if a topic, a group or a broker has settings."""
    return {name: described[name].value for name in settings} == settings


def has_all(cluster: TemporaryCluster, broker: str) -> bool:
    number = int(broker.removeprefix("broker"))
    (address,) = cluster.client([f"{broker}:9092"])  # of loopback, so that the test can connect
    try:
        with Admin(address) as admin:
            of_topic = admin.describe_topic_configs("t")["t"]
            of_group = admin.describe_group_configs("g")["g"]
            of_broker = admin.describe_broker_configs(number)[number]
    except OdradekError:  # a broker that has just been started
        return False
    return (
        has(TOPIC, of_topic)
        and has(GROUP, of_group)
        and has(ALL, of_broker)
        and has(OWN, of_broker) == (broker == "broker1")
        and all(notes(cluster, broker, index) == TOPIC for index in range(3))
    )


def notes(cluster: TemporaryCluster, broker: str, index: int) -> Mapping[str, str] | None:
    """Return the settings in `topic.meta` of a replica."""
    (file,) = (cluster.directory / "volumes" / broker).rglob(f"t-{index}/{IDENTITY}")
    found = decode_identity(file.read_bytes())
    return None if found is None else found.configs


def test_changed_settings_count_on_each_broker_also_after_it_was_down(
    cluster: TemporaryCluster,
) -> None:
    made = odradek(cluster, "broker1", "topic", "create", "t", "--partitions", "3")
    assert made.returncode == 0, made.stderr
    cluster.wait_until_whole()
    cluster.end("broker3", signal.SIGTERM)
    changed(cluster, TOPIC, "--topic", "t")
    changed(cluster, GROUP, "--group", "g")
    changed(cluster, ALL, "--all-brokers")
    changed(cluster, OWN, "--broker", "1")
    wait_until(lambda: has_all(cluster, "broker1") and has_all(cluster, "broker2"))
    cluster.start("broker3")
    wait_until(lambda: has_all(cluster, "broker3"))
    for broker in cluster.brokers:
        cluster.end(broker, signal.SIGKILL)
        cluster.start(broker)
    cluster.wait_until_whole()
    for broker in cluster.brokers:
        wait_until(lambda broker=broker: has_all(cluster, broker))  # type: ignore[misc]
    for partition in range(3):  # each of the brokers leads one, or takes it over
        words = ("produce", "t", "--partition", str(partition))
        assert odradek(cluster, "broker1", *words, given="small").returncode == 0
        refused = odradek(cluster, "broker1", *words, given="x" * 400)
        assert refused.returncode != 0
        assert "300" in refused.stderr or "large" in refused.stderr, refused.stderr
