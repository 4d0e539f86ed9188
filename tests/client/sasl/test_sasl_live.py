"""The three clients at a broker of ours with TLS and passwords, whose sessions last 3 s."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from odradek.broker.testing import RunningBroker, SecuredBroker, run_broker, run_secured_broker
from odradek.client import AuthenticationFailed
from odradek.client.blocking import Admin, Producer
from tests.client.three_clients import CLIENTS

pytestmark = pytest.mark.slow

SESSION_S: Final = 3.0
VALUES: Final = [b"%d" % number for number in range(500)]
USERS: Final = {"admin": "of,ad=min", "alice": "of alice é"}


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    config = {"connections.max.reauth.ms": f"{SESSION_S * 1000:.0f}", "num.partitions": "1"}
    with run_secured_broker(USERS, super_users=["admin"], config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        yield broker


def refusal(address: str, given: dict[str, Any]) -> str:
    """What a client says that is not let in, and that it says at once."""
    began = time.monotonic()
    with Admin(address, **given) as admin, pytest.raises(AuthenticationFailed) as refused:
        admin.list_topics()
    assert time.monotonic() - began < 10
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_is_let_in(secured: SecuredBroker, name: str) -> None:
    found = CLIENTS[name](secured.address, name, VALUES, secured.options("admin"))
    assert found == VALUES


def test_sessions_end_without_a_failed_send(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    end = time.monotonic() + 3 * SESSION_S
    count = 0
    with Producer(secured.address, **secured.options("admin")) as producer:
        while time.monotonic() < end:
            sent = [producer.send("long", b"LH 400") for _ in range(20)]
            for each in sent:
                each.result(30_000)
            count += len(sent)
    assert count > 100
    assert [line for line in caplog.messages if "lost" in line or "session" in line] == []


def test_a_wrong_password_is_one_sentence(secured: SecuredBroker) -> None:
    said = refusal(secured.address, {**secured.options("alice"), "sasl_password": "wrong word"})
    assert said.startswith(
        f"authenticating at {secured.address} by PLAIN: the broker answered SASL"
    )
    assert "Authentication failed" in said
    assert "wrong word" not in said
    assert "wrong word" not in secured.log


def test_a_mechanism_that_the_listener_lacks_is_one_sentence(secured: SecuredBroker) -> None:
    given = {**secured.options("alice"), "sasl_mechanism": "SCRAM-SHA-256"}
    assert refusal(secured.address, given) == (
        f"the listener {secured.address} has no SASL mechanism SCRAM-SHA-256: set sasl.mechanism "
        "(sasl_mechanism) to PLAIN"
    )


def test_a_client_without_sasl_reads_that_the_listener_has_it(secured: SecuredBroker) -> None:
    given = {"security_protocol": "SSL", "ssl_ca_location": str(secured.certificate)}
    said = refusal(secured.address, given)
    assert said.startswith(f"the listener {secured.address} asks for SASL: set security.protocol")
    assert said.endswith("to PLAIN")


def test_a_client_with_sasl_reads_that_a_listener_has_none(
    plain: RunningBroker, secured: SecuredBroker
) -> None:
    given = {**secured.options("alice"), "security_protocol": "SASL_PLAINTEXT"}
    del given["ssl_ca_location"]
    said = refusal(plain.address, given)
    assert said.startswith(f"the listener {plain.address} has no SASL: take another port, or set")
