"""The three clients at a broker of ours with TLS, by each mechanism, whose sessions last 3 s."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.testing import RunningBroker, SecuredBroker, run_broker, run_secured_broker
from odradek.client import AuthenticationFailed, OAuthToken
from odradek.client.blocking import Admin, Consumer
from tests.broker.oauth.signing import AUDIENCE, ISSUER
from tests.client.sasl.loads import LOADS
from tests.client.three_clients import CLIENTS
from tests.cluster.test_network import wait_until
from tests.token_server import RunningTokenServer, run_token_server

pytestmark = pytest.mark.slow

SESSION_S: Final = 3.0
RENEWED: Final = 3
"""How often a session is renewed at least, in three times its length."""
TOKEN_S: Final = 5
VALUES: Final = [b"%d" % number for number in range(500)]
USERS: Final = {"admin": "of,ad=min", "alice": "of alice é"}
BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS: Final = "OAUTHBEARER"
MECHANISMS: Final = (*BY_PASSWORD, TOKENS)


@dataclass(frozen=True, slots=True)
class Setting:
    """A broker that takes passwords, and the tokens of a server."""

    broker: SecuredBroker
    server: RunningTokenServer
    fetched: list[str] = field(default_factory=list)
    """The users whose tokens were fetched: one for each renewal of a client."""

    @property
    def address(self) -> str:
        return self.broker.address

    def options(self, mechanism: str, user: str = "admin") -> dict[str, Any]:
        if mechanism != TOKENS:
            return self.broker.options(user, mechanism)

        def fetch() -> OAuthToken:
            self.fetched.append(user)
            value = self.server.token(sub=user, exp=int(time.time()) + TOKEN_S)
            return OAuthToken(value=value, lifetime_s=SESSION_S)

        given = self.broker.options(user, TOKENS)
        del given["sasl_username"], given["sasl_password"]
        return {**given, "sasl_token": fetch}


@contextmanager
def run_setting(directory: Path, mechanisms: tuple[str, ...]) -> Iterator[Setting]:
    with run_token_server(directory) as server:
        config = {
            "connections.max.reauth.ms": f"{SESSION_S * 1000:.0f}",
            "num.partitions": "1",
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
            "sasl.oauthbearer.jwks.endpoint.tls.ca": server.authorities,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        with run_secured_broker(
            USERS, super_users=["admin"], mechanisms=BY_PASSWORD, config=config
        ) as broker:
            yield Setting(broker, server)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with run_setting(tmp_path_factory.mktemp("tokens"), MECHANISMS) as found:
        yield found


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    """A broker with PLAIN alone."""
    with run_secured_broker(USERS, super_users=["admin"]) as broker:
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


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_is_let_in_by_each_mechanism(
    setting: Setting, name: str, mechanism: str
) -> None:
    topic = f"{name}-{mechanism.lower()}"
    given = setting.options(mechanism)
    assert CLIENTS[name](setting.address, topic, VALUES, given) == VALUES


def read(address: str, topic: str, given: dict[str, Any], end: float) -> list[bytes | None]:
    """Return all values of a topic, read while they are written, until a time and then the rest."""
    found: list[bytes | None] = []
    with Consumer(address, group_id=topic, **given) as consumer:
        consumer.subscribe([topic])
        while (records := consumer.poll(1_000)) or time.monotonic() < end:
            found += [record.value for record in records]
    return found


def test_sessions_of_three_seconds_end_under_load_without_a_failed_request(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Twelve producers, three by each mechanism, and a consumer beside each: all at once."""
    cases = [(name, mechanism) for name in LOADS for mechanism in MECHANISMS]
    address = setting.address
    topics = [f"load-{name}-{mechanism.lower()}" for name, mechanism in cases]
    with Admin(address, **setting.options("PLAIN")) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=1)
    before = len(setting.fetched)
    end = time.monotonic() + 3 * SESSION_S
    with ThreadPoolExecutor(2 * len(cases)) as pool:
        counts = [
            pool.submit(LOADS[name], address, topic, end, setting.options(mechanism))
            for (name, mechanism), topic in zip(cases, topics, strict=True)
        ]
        reads = [
            pool.submit(read, address, topic, setting.options(mechanism), end)
            for (_, mechanism), topic in zip(cases, topics, strict=True)
        ]
        for count, found in zip(counts, reads, strict=True):
            assert count.result() > 100
            assert found.result() == [b"%d" % number for number in range(count.result())]
    assert [line for line in caplog.messages if "lost" in line or "session" in line] == []
    assert "its session is over" not in setting.broker.log
    assert len(setting.fetched) - before >= 2 * len(LOADS) * RENEWED


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_a_wrong_password_is_one_sentence(setting: Setting, mechanism: str) -> None:
    given = {**setting.options(mechanism, "alice"), "sasl_password": "wrong word"}
    said = refusal(setting.address, given)
    assert said.startswith(
        f"authenticating at {setting.address} by {mechanism}: the broker answered SASL_AUTHENT"
    )
    assert "Authentication failed" in said
    assert "wrong word" not in said
    assert "wrong word" not in setting.broker.log
    # The broker closes the connection, and logs why, a tenth of a second after its answer.
    wait_until(lambda: f"its authentication by {mechanism} failed: " in setting.broker.log)


def test_an_unknown_user_of_scram_reads_the_same_as_with_a_wrong_password(setting: Setting) -> None:
    given = setting.options("SCRAM-SHA-256")
    said = [
        refusal(setting.address, {**given, **changed})
        for changed in ({"sasl_username": "nobody"}, {"sasl_password": "wrong word"})
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("claims", "cause"),
    [
        ({"aud": "hotels"}, "it is for another audience"),
        ({"iss": "https://attacker.test"}, "it is of another issuer"),
        ({"iat": 1_000_000_000, "exp": 1_000_000_300}, "it has expired"),
    ],
)
def test_a_wrong_token_is_one_sentence_and_its_reason_is_in_the_log(
    setting: Setting, claims: dict[str, Any], cause: str
) -> None:
    token = setting.server.token(**claims)
    said = refusal(setting.address, {**setting.options(TOKENS), "sasl_token": token})
    assert said.startswith(f"authenticating at {setting.address} by OAUTHBEARER: the broker answe")
    assert "invalid_token" in said
    wait_until(lambda: f"its token was refused: {cause}" in setting.broker.log)
    assert token not in said + setting.broker.log


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
