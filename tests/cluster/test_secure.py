"""`scripts/cluster --secure`: the services with TLS everywhere, by the commands of the page."""

import subprocess
from pathlib import Path

import pytest

from odradek.broker.config.addresses import listeners_of
from odradek.broker.config.properties import Given
from odradek.broker.config.settling import settle
from tests.cluster.compose import parsed, services, words
from tests.cluster.running import ODRADEK, TemporaryCluster
from tests.cluster.secure import with_tls
from tests.cluster.test_compose_file import check_command
from tests.test_security_page import MUTUAL, TLS, blocks

pytestmark = pytest.mark.slow


def test_every_listener_of_a_broker_has_tls_and_its_own_certificate(tmp_path: Path) -> None:
    for service in with_tls(services(), tmp_path):
        if service.is_broker:
            assert "listener.security.protocol.map=INSIDE:SSL,HOST:SSL" in service.command
            assert f"ssl.keystore.location={tmp_path}/{service.name}.pem" in service.command


def test_the_profile_secure_makes_the_certificates_of_the_page() -> None:
    bash, options, escaped = parsed()["services"]["certificates"]["command"]
    assert (bash, options) == ("bash", "-ec")
    script = escaped.replace("$$", "$")
    assert "$" not in escaped.replace("$$", ""), "compose would replace it"
    for section in (TLS, MUTUAL, "Three brokers"):
        block = blocks(section, "sh")[0]
        assert block.replace("DNS:broker$id", "DNS:secure$id") in script, section


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_command_of_a_broker_of_the_profile_secure_parses(number: int, tmp_path: Path) -> None:
    service = parsed()["services"][f"secure{number}"]
    assert service["profiles"] == ["secure"]
    context = check_command(words(service["command"]))
    given = [
        Given(name=name, text=text, source="--set")
        for name, text in (word.split("=", 1) for word in context.params["assignments"])
    ]
    config = settle(given).config
    assert config.node_id == number
    assert config.ssl_keystore_location == f"/certificates/broker{number}.pem"
    inside, outside = listeners_of(config)
    assert inside.has_tls
    assert outside.has_tls
    assert inside.advertised_host == f"secure{number}"
    assert service["ports"] == [f"127.0.0.1:{outside.advertised_port}:{outside.port}"]
    file = tmp_path / "client.properties"
    file.touch()
    _, *ping = service["healthcheck"]["test"]
    check_command([str(file) if word.startswith("/certificates/") else word for word in ping])


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
