"""Foreign clients by each way in: PLAIN, SCRAM, tokens and certificates, with TLS and without.

What each says of a wrong password or of a missing right is in `test_passwords.py`,
`test_oauth_clients.py` and `test_least_rights.py`.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.broker.testing import PLAIN_MODULE, SCRAM_MODULE, RunningBroker, run_broker
from tests.broker.oauth.signing import AUDIENCE, ISSUER
from tests.certificates import Authority, Signed
from tests.compat import confluent
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.libraries import FIXTURES, IN_PYTHON, LIBRARIES, Library
from tests.conftest import found_or_skipped
from tests.peers.kafka import free_ports
from tests.peers.kcat import kcat_command
from tests.secured_broker import AUTHORIZER
from tests.token_server import RunningTokenServer, run_token_server

TLS, SASL_PLAINTEXT, SASL_SSL = "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PLAIN, TOKEN = "PLAIN", "OAUTHBEARER"
SCRAM: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
MODULES: Final = {PLAIN: PLAIN_MODULE, **dict.fromkeys(SCRAM, SCRAM_MODULE)}
KAFKAS_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
USER, PASSWORD = "alice", "a password, with = signs"
ITERATIONS: Final = 4096
WAYS: Final = [
    *((protocol, each) for protocol in (SASL_PLAINTEXT, SASL_SSL) for each in MODULES),
    (SASL_SSL, TOKEN),
    (TLS, ""),
]
"""Protocols and mechanisms."""
BY_AGENTS: Final = [name for name in FIXTURES if name not in ("confluent", *IN_PYTHON)]
"""The other libraries have these tests without agents: in `test_passwords.py`,
`test_oauth_clients.py` and `test_tls_clients.py`."""
OF_KCAT: Final = [(SASL_PLAINTEXT, PLAIN), (SASL_SSL, PLAIN), (TLS, "")]
"""The ways of kcat as Debian builds it. Of SCRAM it has a fault: `test_kcat.py`."""
SESSION_MS: Final = 3_000
SECONDS: Final = 3 * SESSION_MS / 1000

pytestmark = pytest.mark.slow


class OpenToAll(RunningBroker):
    """A broker with a listener of each protocol that has a way in."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        protocols = (TLS, SASL_PLAINTEXT, SASL_SSL)
        self.ports = dict(zip(protocols, free_ports(len(protocols)), strict=True))

    @property
    def listening(self) -> Sequence[str]:
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items())
        return ("--set", f"listeners={listeners}")


@dataclass(frozen=True, slots=True)
class Setting:
    """The broker, and what its user has to show."""

    broker: OpenToAll
    server: RunningTokenServer
    authority: Authority
    alice: Signed

    def address(self, protocol: str) -> str:
        return f"localhost:{self.broker.ports[protocol]}"

    def of(self, library: Library, protocol: str, mechanism: str) -> Mapping[str, str]:
        ways = {"java": self.java, "python": self.python, "librdkafka": self.librdkafka}
        found: Mapping[str, str] = library.chosen(**ways)(protocol, mechanism)
        return found

    def librdkafka(self, protocol: str, mechanism: str) -> dict[str, str]:
        """Return the settings for agents in Go and JavaScript, too, which take a token."""
        found = {"security.protocol": protocol, "ssl.ca.location": self.authority.file}
        if mechanism in MODULES:
            found |= {"sasl.username": USER, "sasl.password": PASSWORD}
        if mechanism == TOKEN:
            found |= {"sasl.oauthbearer.token": self.server.token(sub=USER)}
        if mechanism:
            return {**found, "sasl.mechanism": mechanism}
        return {
            **found,
            "ssl.certificate.location": self.alice.certificate_file,
            "ssl.key.location": self.alice.key_file,
        }

    def java(self, protocol: str, mechanism: str) -> dict[str, str]:
        found = {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
        }
        if mechanism == TOKEN:
            return {**found, **self.java_token()}
        if mechanism:
            options = f'username="{USER}" password="{PASSWORD}"'
            login = f"{MODULES[mechanism]} required {options};"
            return {**found, "sasl.mechanism": mechanism, "sasl.jaas.config": login}
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.alice.both_file}
        return {**found, **own}

    def java_token(self) -> dict[str, str]:
        """Return how Kafka's own client asks the token server for a token, over https."""
        options = {
            "clientId": USER,
            "clientSecret": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.server.authorities,
        }
        given = " ".join(f'{name}="{value}"' for name, value in options.items())
        return {
            "sasl.mechanism": TOKEN,
            "sasl.jaas.config": f"{KAFKAS_OAUTH}.OAuthBearerLoginModule required {given};",
            "sasl.login.callback.handler.class": f"{KAFKAS_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.server.token_url,
        }

    def python(self, protocol: str, mechanism: str) -> dict[str, str]:
        return {
            "security_protocol": protocol,
            "ssl_cafile": self.authority.file,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }

    def values(self, topic: str, count: int) -> list[bytes | None]:
        """Return what is committed in a topic."""
        settings: dict[str, Any] = self.librdkafka(SASL_SSL, PLAIN)
        found = confluent.read(self.address(SASL_SSL), topic, count=count, **settings)
        return [each.value for each in found]

    @property
    def admin(self) -> AdminClient:
        settings = self.librdkafka(SASL_SSL, PLAIN)
        return AdminClient({"bootstrap.servers": self.address(SASL_SSL), **settings})

    def new_topic(self, *words: str) -> str:
        name = "-".join(words)
        admin = self.admin
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE_SECONDS)
        return name


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory)
    users = f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
    with run_token_server(directory) as server:
        config = {
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{USER};User:CN={USER},O=Test",
            "ssl.keystore.location": authority.signed("broker").both_file,
            "ssl.truststore.location": authority.file,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join((*MODULES, TOKEN)),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
            "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
            "sasl.oauthbearer.jwks.endpoint.tls.ca": server.authorities,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connections.max.reauth.ms": str(SESSION_MS),
        }
        with run_broker(config=config, kind=OpenToAll) as broker:
            assert isinstance(broker, OpenToAll)
            made = Setting(broker, server, authority, authority.signed(USER, hosts=()))
            admin = made.admin
            for mechanism in SCRAM.values():  # a user cannot be named twice in a request
                info = ScramCredentialInfo(mechanism, ITERATIONS)
                wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
                for answer in admin.alter_user_scram_credentials([wanted]).values():
                    answer.result(DEADLINE_SECONDS)
            yield made
            assert "Traceback" not in broker.log, broker.log


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    """A client library: one after the other."""
    return Library.of(request)


@pytest.mark.peers
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
@pytest.mark.parametrize("library", BY_AGENTS, indirect=True)
def test_a_client_gets_in_by_each_way(
    setting: Setting,
    library: Library,
    protocol: str,
    mechanism: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = os.environ.get("JAVA_TOOL_OPTIONS", "")
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={setting.server.token_url}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{options} {allowed}")
    topic = setting.new_topic(library.name, protocol, mechanism or "certificate")
    with library.running(setting.of(library, protocol, mechanism)) as agent:
        agent.producer(setting.address(protocol), topic).write(topic, "in")
    assert setting.values(topic, 1) == [b"in"]
    if (library.name, mechanism) == ("java", TOKEN):
        assert "/token" in setting.server.asked


def run_kcat(
    command: list[str], settings: Mapping[str, str], words: Sequence[str], directory: Path
) -> subprocess.CompletedProcess[bytes]:
    """Run kcat with a line to write."""
    file = directory / "kcat.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return subprocess.run(
        [*command, "-F", str(file), *words],
        input=b"in\n",
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.peers
@pytest.mark.parametrize(("protocol", "mechanism"), OF_KCAT)
def test_kcat_gets_in_by_each_way_that_it_has(
    setting: Setting, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    command = found_or_skipped(kcat_command)
    topic = setting.new_topic("kcat", protocol, mechanism or "certificate")
    settings = {
        **setting.librdkafka(protocol, mechanism),
        "bootstrap.servers": setting.address(protocol),
    }
    written = run_kcat(command, settings, ["-P", "-t", topic], tmp_path)
    assert written.returncode == 0, written.stderr
    read = run_kcat(command, settings, ["-C", "-e", "-t", topic], tmp_path)
    assert (read.returncode, read.stdout) == (0, b"in\n"), read.stderr
    assert setting.values(topic, 1) == [b"in"]


@pytest.mark.peers
def test_the_unsigned_token_that_kcat_makes_is_refused(setting: Setting, tmp_path: Path) -> None:
    """Debian builds its librdkafka without curl: so it can ask no token server."""
    command = found_or_skipped(kcat_command)
    settings = {
        "bootstrap.servers": setting.address(SASL_SSL),
        "security.protocol": SASL_SSL,
        "ssl.ca.location": setting.authority.file,
        "sasl.mechanism": TOKEN,
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={USER}",
    }
    refused = run_kcat(command, settings, ["-L"], tmp_path)
    assert refused.returncode != 0
    assert "invalid_token" in refused.stderr.decode()
    assert (
        "its token was refused: its algorithm is 'none', which is not allowed" in setting.broker.log
    )


def test_a_client_renews_its_session_under_load_without_a_failed_send(
    setting: Setting, library: Library
) -> None:
    """KIP-368: its sessions last three seconds, and it authenticates again within each of them."""
    topic = setting.new_topic(library.name, "renewed")
    written: list[bytes] = []
    with library.running(setting.of(library, SASL_SSL, "SCRAM-SHA-512")) as agent:
        producer = agent.producer(setting.address(SASL_SSL), topic)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            value = str(len(written))
            producer.write(topic, value)
            written.append(value.encode())
    assert setting.values(topic, len(written)) == written
