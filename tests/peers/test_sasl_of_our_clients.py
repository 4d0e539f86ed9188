"""Our clients authenticate at a real Kafka, by each mechanism, and stay beyond their sessions."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from odradek.client import AuthenticationFailed, OAuthToken
from odradek.client.blocking import Admin, Producer
from tests.client.three_clients import CLIENTS
from tests.peers.kafka import RealKafka, free_ports, run_tool

pytestmark = pytest.mark.peers

SESSION_S: Final = 3.0
MODULES: Final = "org.apache.kafka.common.security"
PASSWORD: Final = "se:cr et"
VALUES: Final = [b"%d" % number for number in range(500)]
BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def settings(port: int, controller_port: int, sasl_port: int) -> dict[str, str]:
    jaas = "listener.name.sasl.{}.sasl.jaas.config"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl_port},"
        f"CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join((*BY_PASSWORD, "OAUTHBEARER")),
        jaas.format("plain"): f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        jaas.format("scram-sha-256"): f"{MODULES}.scram.ScramLoginModule required;",
        jaas.format("scram-sha-512"): f"{MODULES}.scram.ScramLoginModule required;",
        # Without a validator, Kafka takes tokens that nobody has signed: for tests.
        jaas.format("oauthbearer"): f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        "connections.max.reauth.ms": f"{SESSION_S * 1000:.0f}",
    }


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """The listener with SASL of a Kafka that has the user alice, and the one without."""
    port, controller_port, sasl_port = free_ports(3)
    given = settings(port, controller_port, sasl_port)
    with RealKafka(settings=given, ports=(port, controller_port)) as kafka:
        iterations = f"[iterations=8192,password={PASSWORD}]"
        for mechanism in BY_PASSWORD[1:]:
            run_tool(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", kafka.address, "--alter"),
                *("--entity-type", "users", "--entity-name", "alice"),
                *("--add-config", f"{mechanism}={iterations}"),
            )
        yield f"127.0.0.1:{sasl_port}", kafka.address


@pytest.fixture
def address(addresses: tuple[str, str]) -> str:
    return addresses[0]


def unsigned_token() -> OAuthToken:
    """Return a token without a signature, which counts for some seconds only."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 2 * SESSION_S})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    value = ".".join([*(text.rstrip("=") for text in texts), ""])
    return OAuthToken(value=value, lifetime_s=2 * SESSION_S)


def options(mechanism: str) -> dict[str, Any]:
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return {**given, "sasl_token": unsigned_token}
    return {**given, "sasl_username": "alice", "sasl_password": PASSWORD}


@pytest.mark.parametrize("mechanism", [*BY_PASSWORD, "OAUTHBEARER"])
@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_is_let_in_by_each_mechanism(address: str, name: str, mechanism: str) -> None:
    topic = f"{name}-{mechanism.lower()}"
    assert set(CLIENTS[name](address, topic, VALUES, options(mechanism))) == set(VALUES)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_session_of_three_seconds_ends_without_a_failed_send(
    address: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = time.monotonic() + 3 * SESSION_S
    count = 0
    with Producer(address, **options(mechanism)) as producer:
        while time.monotonic() < end:
            sent = [producer.send(f"long-{mechanism.lower()}", b"LH 400") for _ in range(20)]
            for each in sent:
                each.result(30_000)
            count += len(sent)
    assert count > 100
    assert [line for line in caplog.messages if "lost" in line or "session" in line] == []


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_a_wrong_password_is_one_sentence_at_once(address: str, mechanism: str) -> None:
    began = time.monotonic()
    given = {**options(mechanism), "sasl_password": "another word"}
    with Admin(address, **given) as admin, pytest.raises(AuthenticationFailed) as refused:
        admin.list_topics()
    said = str(refused.value)
    assert said.startswith(f"authenticating at {address} by {mechanism}: the broker answered SASL_")
    assert "Authentication failed" in said
    assert "another word" not in said
    assert "\n" not in said
    assert time.monotonic() - began < 5


def test_a_token_that_is_none_is_one_sentence(address: str) -> None:
    given = {**options("OAUTHBEARER"), "sasl_token": "no.token"}
    with (
        Admin(address, **given) as admin,
        pytest.raises(AuthenticationFailed, match="see the token") as refused,
    ):
        admin.list_topics()
    assert "no.token" not in str(refused.value)


def test_a_client_without_sasl_reads_that_the_listener_has_it(address: str) -> None:
    with (
        Admin(address) as admin,
        pytest.raises(AuthenticationFailed, match=f"the listener {address} asks for SASL: set"),
    ):
        admin.list_topics()


def test_a_client_with_sasl_reads_that_a_listener_has_none(addresses: tuple[str, str]) -> None:
    plain = addresses[1]
    with (
        Admin(plain, **options("PLAIN")) as admin,
        pytest.raises(AuthenticationFailed, match=f"the listener {plain} has no SASL"),
    ):
        admin.list_topics()
