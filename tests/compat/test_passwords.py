"""Foreign clients with PLAIN and SCRAM, with TLS and without: a record, and a wrong password."""

import asyncio
import io
import logging
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from odradek.broker.testing import RunningBroker, run_broker
from tests.certificates import Authority
from tests.compat import aio, confluent, kafka_python
from tests.compat.conftest import DEADLINE_SECONDS
from tests.peers.kafka import free_ports

PLAIN: Final = "PLAIN"
SCRAM: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
USER, PASSWORD, WRONG = "alice", "a pässword, with = signs", "a password"
LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ITERATIONS: Final = 4096

every_way = pytest.mark.parametrize("mechanism", [PLAIN, *SCRAM])
with_and_without_tls = pytest.mark.parametrize("protocol", PROTOCOLS)


class PasswordBroker(RunningBroker):
    """A broker with a listener of each protocol."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))

    @property
    def listening(self) -> Sequence[str]:
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items())
        return ("--set", f"listeners={listeners}")


@dataclass(frozen=True, slots=True)
class Setting:
    """The broker, and how its user reaches it."""

    broker: PasswordBroker
    authority_file: str

    def address(self, protocol: str) -> str:
        return f"localhost:{self.broker.ports[protocol]}"

    def librdkafka(self, mechanism: str, protocol: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            **({"ssl.ca.location": self.authority_file} if protocol == "SASL_SSL" else {}),
        }

    def python(self, mechanism: str, protocol: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    def kafka_python(self, *way: str) -> dict[str, Any]:
        return {**self.python(*way), "ssl_cafile": self.authority_file}

    def aiokafka(self, *way: str) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self.authority_file)
        return {**self.python(*way), "ssl_context": context}


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    users = f'{LOGIN} "user_{USER}"="{PASSWORD}";'
    config = {
        "ssl.keystore.location": authority.signed("broker").both_file,
        "sasl.enabled.mechanisms": ",".join((PLAIN, *SCRAM)),
        "connection.failed.authentication.delay.ms": "20",
        "num.partitions": "1",
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": users for each in PROTOCOLS},
    }
    with run_broker(config=config, kind=PasswordBroker) as broker:
        assert isinstance(broker, PasswordBroker)
        made = Setting(broker, authority.file)
        _make_scram_users(made)
        yield made
        assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def client_log() -> Iterator[io.StringIO]:
    """What clients in Python log, as text. Records that pytest keeps would keep connections."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    loggers = [logging.getLogger(name) for name in ("kafka", "aiokafka", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    yield written
    for logger in loggers:
        logger.removeHandler(handler)
        logger.propagate = True


def _make_scram_users(setting: Setting) -> None:
    settings = setting.librdkafka(PLAIN, "SASL_SSL")
    admin = AdminClient({"bootstrap.servers": setting.address("SASL_SSL"), **settings})
    for mechanism in SCRAM.values():  # a user cannot be named twice in a request
        info = ScramCredentialInfo(mechanism, ITERATIONS)
        wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for made in admin.alter_user_scram_credentials([wanted]).values():
            made.result(DEADLINE_SECONDS)


@every_way
@with_and_without_tls
def test_confluent_kafka_writes_and_reads(setting: Setting, mechanism: str, protocol: str) -> None:
    address, settings = setting.address(protocol), setting.librdkafka(mechanism, protocol)
    topic = f"confluent-{mechanism}-{protocol}"
    confluent.deliver(confluent.producer(address, **settings), topic, [b"v"])
    assert confluent.values(confluent.read(address, topic, count=1, **settings)) == [b"v"]


@every_way
@with_and_without_tls
def test_kafka_python_writes_and_reads(setting: Setting, mechanism: str, protocol: str) -> None:
    address, settings = setting.address(protocol), setting.kafka_python(mechanism, protocol)
    topic = f"kafka-python-{mechanism}-{protocol}"
    with kafka_python.producer(address, **settings) as producer:
        kafka_python.deliver(producer, topic, [b"v"])
    with kafka_python.consumer(address, **settings) as consumer:
        consumer.partitions_for_topic(topic)  # it asks for a topic that it has not seen
        consumer.assign([TopicPartition(topic, 0)])
        found: list[Any] = []
        kafka_python.poll_until(lambda: len(found) == 1, consumer, collect=found)
    assert [record.value for record in found] == [b"v"]


@every_way
@with_and_without_tls
def test_aiokafka_writes_and_reads(setting: Setting, mechanism: str, protocol: str) -> None:
    address, settings = setting.address(protocol), setting.aiokafka(mechanism, protocol)
    topic = f"aiokafka-{mechanism}-{protocol}"

    async def story() -> list[Any]:
        async with aio.producer(address, **settings) as producer:
            await aio.deliver(producer, topic, [b"v"])
        async with aio.consumer(address, topic, **settings) as consumer:
            found: list[Any] = []
            while not found:
                found += await aio.polled(consumer)
        return found

    assert [record.value for record in asyncio.run(story())] == [b"v"]


@every_way
@with_and_without_tls
def test_confluent_kafka_says_that_a_password_is_wrong(
    setting: Setting, mechanism: str, protocol: str
) -> None:
    said: list[KafkaError] = []
    settings = setting.librdkafka(mechanism, protocol, WRONG)
    producer = Producer(
        {"bootstrap.servers": setting.address(protocol), **settings, "error_cb": said.append}
    )
    for _ in range(600):
        if any(error.code() == KafkaError._AUTHENTICATION for error in said):
            break
        producer.poll(0.1)
    assert "Authentication failed" in " ".join(error.str() for error in said), said


@pytest.mark.usefixtures("dropped")
@every_way
@with_and_without_tls
def test_kafka_python_says_that_a_password_is_wrong(
    setting: Setting, mechanism: str, protocol: str, client_log: io.StringIO
) -> None:
    settings = setting.kafka_python(mechanism, protocol, WRONG)
    with (
        pytest.raises(KafkaTimeoutError, match="Unable to bootstrap"),
        kafka_python.producer(setting.address(protocol), bootstrap_timeout_ms=500, **settings),
    ):
        pass
    assert "SaslAuthenticationFailedError" in client_log.getvalue()


@pytest.mark.usefixtures("dropped")
@every_way
def test_aiokafka_says_that_a_password_is_wrong(
    setting: Setting, mechanism: str, client_log: io.StringIO
) -> None:
    """Without TLS: with it, the client's connections outlive its loop."""
    protocol = "SASL_PLAINTEXT"
    settings = setting.aiokafka(mechanism, protocol, WRONG)

    async def story() -> None:
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            async with aio.producer(setting.address(protocol), **settings):
                pass

    asyncio.run(story())
    assert "Authentication failed" in client_log.getvalue()
