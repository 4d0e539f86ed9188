"""A real broker process for tests: a context manager, and pytest fixtures.

    from odradek.broker.testing import run_broker

    def test_mine():
        with run_broker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})

With `pytest_plugins = ["odradek.broker.testing"]` in the conftest of the root, pytest has these
fixtures:

- `odradek_session_broker`: one broker for all tests of a session; with pytest-xdist, one for each
  worker. It is started when the first test asks for it.
- `odradek_new_topic`: a function that creates a topic there which no other test has, and returns
  its name: `odradek_new_topic("orders", partitions=3)`.
- `odradek_broker`: a broker of the test's own, which it may stop, kill and restart.
- `odradek_secured_broker`: a broker with TLS, passwords and access control, as of
  `run_secured_broker`, which all tests of a session share.
- `odradek_broker_config`: the settings of all; a fixture of this name in the conftest replaces it.
"""

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

try:
    import pytest
except ImportError:  # the context manager works without pytest
    pytest = None  # type: ignore[assignment]

PLAIN: Final = "PLAIN"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
}
"""The mechanisms by which users may authenticate at a secured broker, and Java's names for them."""
MAKER: Final = "odradek-testing"
"""The user that makes those of SCRAM, and is gone before the tests begin."""
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0
"""A start takes a second, but a disk may stall and a machine may be busy."""
ADDRESS: Final = re.compile(r"serves \[?([^\s\]]+)\]?:(\d+),")


class BrokerDidNotStart(Exception):
    """The process ended, or printed no start-up line in time; the message has its output."""


class RunningBroker:
    """A broker process. `address` is what a client's `bootstrap.servers` takes."""

    command: ClassVar[Sequence[str]] = (sys.executable, "-m", "odradek.broker", "serve")
    listener: ClassVar[str] = "PLAINTEXT"
    """The name of its listener, which says whether it has TLS."""

    def __init__(
        self, data_dir: Path, config: Mapping[str, str], environment: Mapping[str, str], port: int
    ) -> None:
        self.data_dir = data_dir
        self.config = dict(config)
        self.environment = dict(environment)
        self.host = "127.0.0.1"
        self.port = port
        self.topics_created = 0
        self.process: subprocess.Popen[bytes]  # since `start`
        self._written = tempfile.NamedTemporaryFile(prefix="odradek-log-")  # noqa: SIM115

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """Return what the process has written to its standard error since it was started."""
        return Path(self._written.name).read_text()

    @property
    def listening(self) -> Sequence[str]:
        """The options that say where it listens; a subclass may have several listeners."""
        return ("--listen", f"{self.listener}://{self.host}:{self.port}")

    def start(self) -> None:
        """Start the process and return when it serves. A port once picked stays the same."""
        arguments = [*self.listening, "--data-dir", str(self.data_dir), *self._settings()]
        self._written.seek(0)
        self._written.truncate()
        self.process = subprocess.Popen(
            [*self.command, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._written,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **self.environment},
        )
        said = ADDRESS.search(self._first_line())
        if said is None:
            self.kill()
            raise BrokerDidNotStart(self.log or "it printed nothing")
        self.port = int(said[2])

    def _settings(self) -> list[str]:
        """Return the arguments that give the process its settings."""
        given: list[str] = []
        for name, value in self.config.items():
            given += ["--set", f"{name}={value}"]
        return given

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        return self.process.stdout.readline().decode() if readable else ""

    def stop(self) -> int:
        """Stop the process with SIGTERM, wait for its end, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self._reap()

    def kill(self) -> None:
        """End the process with SIGKILL: nothing is tidied up."""
        self.process.kill()
        self._reap()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for a process that ends by itself, and return its exit status."""
        self.process.wait(seconds)
        return self._reap()

    def restart(self) -> None:
        """Stop, and start again on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the process and delete its log."""
        self.stop()
        self._written.close()

    def _reap(self) -> int:
        status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextlib.contextmanager
def run_broker(
    *,
    data_dir: Path | None = None,
    config: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
    kind: type[RunningBroker] = RunningBroker,
) -> Iterator[RunningBroker]:
    """Run a broker process while the block runs.

    Without a `data_dir` its directory is temporary. `config` has Kafka's property names. Port 0
    picks a free one. A subclass given as `kind` may start another command. Raises
    `BrokerDidNotStart`.
    """
    directory = data_dir or Path(tempfile.mkdtemp(prefix="odradek-test-"))
    try:
        broker = kind(directory, config or {}, environment or {}, port)
        try:
            broker.start()
            yield broker
        finally:
            broker.close()
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


class SecuredBroker(RunningBroker):
    """A broker process with TLS, passwords and access control, and what its users need."""

    listener: ClassVar[str] = "SASL_SSL"
    users: Mapping[str, str] = MappingProxyType({})
    """The passwords by the names of users."""
    mechanisms: Sequence[str] = (PLAIN,)
    """The mechanisms by which they may authenticate."""
    certificate: Path
    """The file with the certificate that clients trust."""
    _directory: Path
    """Where its certificate and its settings are, which have the passwords."""

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def options(self, user: str, mechanism: str | None = None) -> dict[str, Any]:
        """Return the options of Odradek's clients for a user.

        `mechanism` is one of `mechanisms`; None is the first of them. So in the other methods.
        """
        return {
            "security_protocol": "SASL_SSL",
            "ssl_ca_location": str(self.certificate),
            "sasl_mechanism": mechanism or self.mechanisms[0],
            "sasl_username": user,
            "sasl_password": self.users[user],
        }

    def librdkafka(self, user: str, mechanism: str | None = None) -> dict[str, Any]:
        """Return the settings of confluent-kafka, and of other programs with librdkafka."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificate),
            "sasl.mechanism": mechanism or self.mechanisms[0],
            "sasl.username": user,
            "sasl.password": self.users[user],
        }

    def properties(self, user: str, mechanism: str | None = None) -> dict[str, str]:
        """Return the settings of Java's clients and of commands, as in `client.properties`."""
        chosen = mechanism or self.mechanisms[0]
        given = {"username": user, "password": self.users[user]}
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
            "sasl.mechanism": chosen,
            "sasl.jaas.config": _jaas(given, MODULES[chosen]),
        }

    def _settings(self) -> list[str]:
        """Keep the settings in a file: arguments are seen by every user of the machine."""
        file = self._directory / "server.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{_line(*each)}\n" for each in self.config.items()))
        return ["--config", str(file)]


@contextlib.contextmanager
def run_secured_broker(
    users: Mapping[str, str],
    *,
    super_users: Sequence[str] = (),
    mechanisms: Sequence[str] = (PLAIN,),
    config: Mapping[str, str] | None = None,
    data_dir: Path | None = None,
) -> Iterator[SecuredBroker]:
    """Run a broker with TLS and access control, at which users authenticate by passwords.

        with run_secured_broker({"alice": "secret"}, super_users=["alice"]) as broker:
            producer = Producer(broker.address, **broker.options("alice"))

    `users` are the passwords by name. A super user may do everything, and gives the others their
    rights, by `Admin.create_acls` or `odradek acl add`. `mechanisms` are PLAIN, SCRAM-SHA-256 and
    SCRAM-SHA-512, or some of them; with SCRAM the start takes a second more. Otherwise as
    `run_broker`.
    """
    unknown = [each for each in mechanisms if each not in MODULES]
    if unknown or not mechanisms:
        raise ValueError(f"mechanisms are some of {', '.join(MODULES)}: {mechanisms!r} was given")
    from odradek.broker.testing_certificate import make_certificate

    with tempfile.TemporaryDirectory(prefix="odradek-secured-") as own:
        both, certificate = make_certificate(Path(own))

        class Broker(SecuredBroker):
            """The broker of this call."""

        Broker.users, Broker.certificate, Broker._directory = dict(users), certificate, Path(own)
        Broker.mechanisms = tuple(mechanisms)
        given = dict(config or {})
        shared = {
            "ssl.keystore.location": str(both),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }
        of_plain = users if PLAIN in mechanisms else {}
        settings = {**shared, **_who(of_plain, super_users, mechanisms), **given}
        by_scram = [each for each in mechanisms if each != PLAIN]
        maker = {MAKER: secrets.token_urlsafe(16)}
        first = {**shared, **given, **_who(maker, [MAKER], (PLAIN,))} if by_scram else settings
        with run_broker(data_dir=data_dir, config=first, kind=Broker) as broker:
            assert isinstance(broker, SecuredBroker)
            if by_scram:
                _make_users(broker, maker[MAKER], by_scram)
                broker.config = settings
                broker.restart()
            yield broker


def _who(
    users: Mapping[str, str], super_users: Sequence[str], mechanisms: Sequence[str]
) -> dict[str, str]:
    """Return the settings that say who is let in. `users` are those of PLAIN."""
    found = {
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        "super.users": ";".join(f"User:{name}" for name in super_users),
    }
    if users:
        given = {f"user_{name}": password for name, password in users.items()}
        found["listener.name.sasl_ssl.plain.sasl.jaas.config"] = _jaas(given, PLAIN_MODULE)
    return found


def _make_users(broker: SecuredBroker, password: str, mechanisms: Sequence[str]) -> None:
    """Make the users of SCRAM, as the maker, who is a super user of PLAIN."""
    from odradek.client.blocking import Admin

    options: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": str(broker.certificate),
        "sasl_mechanism": PLAIN,
        "sasl_username": MAKER,
        "sasl_password": password,
    }
    with Admin(broker.address, **options) as admin:
        for name, words in broker.users.items():
            admin.set_password(name, words, mechanisms=mechanisms)


def _jaas(options: Mapping[str, str], module: str) -> str:
    """Return a line of JAAS."""
    given = " ".join(
        f"{name if name.isidentifier() else _quoted(name)}={_quoted(value)}"
        for name, value in options.items()
    )
    return f"{module} required {given};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _line(name: str, value: str) -> str:
    """Return a line of a file of settings."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{name}={escaped}"


TEST_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
"""A group waits for no other members: a test has few, and should be quick."""


def create_topic(
    broker: RunningBroker,
    name: str,
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic whose name begins with `name` and is not taken yet. Return its name."""
    from odradek.client.blocking import Admin, NewTopic

    broker.topics_created += 1
    full_name = f"{name}-{broker.topics_created}"
    with Admin(broker.address) as admin:
        admin.create_topics([NewTopic(full_name, partitions, 1, tuple((config or {}).items()))])
    return full_name


if pytest is not None:

    @pytest.fixture(scope="session")
    def odradek_broker_config() -> Mapping[str, str]:
        """Kafka's properties for the brokers of tests."""
        return TEST_SETTINGS

    @pytest.fixture
    def odradek_broker(odradek_broker_config: Mapping[str, str]) -> Iterator[RunningBroker]:
        """A broker process of the test's own, with the settings of `odradek_broker_config`."""
        with run_broker(config=odradek_broker_config) as broker:
            yield broker

    @pytest.fixture(scope="session")
    def odradek_session_broker(
        odradek_broker_config: Mapping[str, str],
    ) -> Iterator[RunningBroker]:
        """A broker process that the tests of a session share. They do not stop it."""
        with run_broker(config=odradek_broker_config) as broker:
            yield broker

    @pytest.fixture(scope="session")
    def odradek_secured_broker(
        odradek_broker_config: Mapping[str, str],
    ) -> Iterator[SecuredBroker]:
        """A secured broker with the users admin, who may do everything, alice and bob."""
        users = {name: secrets.token_urlsafe(16) for name in ("admin", "alice", "bob")}
        with run_secured_broker(
            users, super_users=["admin"], config=odradek_broker_config
        ) as broker:
            yield broker

    @pytest.fixture
    def odradek_new_topic(odradek_session_broker: RunningBroker) -> Callable[..., str]:
        """A function that creates a topic of the test's own on the broker of the session.

        Its arguments are those of `create_topic`: a name to begin with ("topic"), `partitions` (1)
        and `config`. The name that it returns may also be the name of a group.
        """

        def new_topic(name: str = "topic", **options: Any) -> str:
            return create_topic(odradek_session_broker, name, **options)

        return new_topic
