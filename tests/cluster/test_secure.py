"""`scripts/cluster --secure`: the services with TLS everywhere, by the commands of the page."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.compose import services
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.secure import with_tls

pytestmark = pytest.mark.slow


def test_every_listener_of_a_broker_has_tls_and_its_own_certificate(tmp_path: Path) -> None:
    for service in with_tls(services(), tmp_path):
        if service.is_broker:
            assert "listener.security.protocol.map=INSIDE:SSL,HOST:SSL" in service.command
            assert f"ssl.keystore.location={tmp_path}/{service.name}.pem" in service.command


@pytest.mark.peers
def test_a_secure_cluster_serves_its_super_user_and_nobody_without_a_certificate(
    tmp_path: Path,
) -> None:
    with TemporaryCluster(tmp_path, is_loopback=True, is_secure=True) as cluster:
        command = cluster.client(
            [str(ODRADEK), "topic", "create", "ledger", "--bootstrap", cluster.bootstrap]
        )
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=cluster.environment
        )
        assert done.returncode == 0, done.stderr
        cluster.wait_until_whole()
        without = subprocess.run(command, capture_output=True, text=True, check=False)
        assert without.returncode == 1
        assert "TLS" in without.stderr, without.stderr
        assert "certificates/client.properties" in cluster.for_clients()
