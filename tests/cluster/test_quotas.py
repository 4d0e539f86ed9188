"""Three real brokers and an etcd: each enforces a quota that one of them was given."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from odradek.client import OdradekError
from odradek.client.blocking import Admin
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from tests.broker.raw import RawClient
from tests.cluster.running import TemporaryCluster
from tests.cluster.test_network import wait_until

pytestmark = pytest.mark.peers

CLIENT_ID: Final = "nightly"
LEAST: Final = 1e-6
"""A percentage of the loop's time that the first request of a client uses up."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TemporaryCluster]:
    with TemporaryCluster(tmp_path, is_loopback=True) as running:
        yield running


def address(cluster: TemporaryCluster, broker: str) -> str:
    (found,) = cluster.client([f"{broker}:9092"])  # of loopback, so that the test can connect
    return found


def quotas(cluster: TemporaryCluster, broker: str) -> dict[str | None, dict[str, float]] | None:
    """Return the quotas of client ids that a broker knows; None while it starts."""
    try:
        with Admin(address(cluster, broker)) as admin:
            return {each.client_id: dict(each.values) for each in admin.describe_quotas()}
    except OdradekError:
        return None


def throttles(cluster: TemporaryCluster, broker: str, client_id: str) -> bool:
    """Return True if a broker asks a client to wait after its first request."""
    host, _, port = address(cluster, broker).rpartition(":")
    with RawClient(SimpleNamespace(host=host, port=int(port)), client_id) as client:
        answers = [client.ask(API_VERSIONS, 3, ApiVersionsRequest()) for _ in range(2)]
    return bool(answers[1].throttle_time_ms)


def test_every_broker_enforces_a_quota_also_after_it_was_killed(cluster: TemporaryCluster) -> None:
    set_quota = {CLIENT_ID: {"request_percentage": LEAST}}
    with Admin(address(cluster, "broker1")) as admin:
        admin.alter_quotas(set_quota[CLIENT_ID], client_id=CLIENT_ID)
    for broker in cluster.brokers:
        wait_until(lambda broker=broker: quotas(cluster, broker) == set_quota)  # type: ignore[misc]
        assert throttles(cluster, broker, CLIENT_ID)
        assert not throttles(cluster, broker, "another")
    for broker in cluster.brokers:
        cluster.end(broker, signal.SIGKILL)
        cluster.start(broker)
    cluster.wait_until_whole()
    for broker in cluster.brokers:
        wait_until(lambda broker=broker: quotas(cluster, broker) == set_quota)  # type: ignore[misc]
        assert throttles(cluster, broker, CLIENT_ID)
    with Admin(address(cluster, "broker2")) as admin:
        admin.alter_quotas({"request_percentage": None}, client_id=CLIENT_ID)
    for broker in cluster.brokers:
        wait_until(lambda broker=broker: quotas(cluster, broker) == {})  # type: ignore[misc]
        assert not throttles(cluster, broker, CLIENT_ID)
