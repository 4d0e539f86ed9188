"""Foreign clients with OAUTHBEARER, against a token server: tokens, groups, refusals."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import KafkaError, Producer
from kafka import TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider

from odradek.broker.testing import RunningBroker, run_broker
from tests.broker.oauth.signing import AUDIENCE, ISSUER
from tests.cluster.test_network import wait_until
from tests.compat import aio, confluent, kafka_python
from tests.compat.kafka_tool import KafkaTools
from tests.token_server import RunningTokenServer, run_token_server

VALUES = [b"%d" % number * 100 for number in range(50)]
SHORT_SECONDS = 4
RENEWED_SECONDS = 1
"""librdkafka looks once a second for a token that ends: so it is told that it ends sooner."""
LIFE_SECONDS = 300

pytestmark = pytest.mark.slow


class SaslBroker(RunningBroker):
    """A broker whose listener asks for SASL, without TLS."""

    listener = "SASL_PLAINTEXT"


@dataclass(frozen=True)
class Setting:
    """A broker that takes the tokens of a server."""

    broker: RunningBroker
    server: RunningTokenServer

    def librdkafka(
        self,
        *,
        life_seconds: float = LIFE_SECONDS,
        told_seconds: float = LIFE_SECONDS,
        **claims: Any,
    ) -> dict[str, Any]:
        """`told_seconds` is the life of a token as the client knows it."""

        def give(_config: str) -> tuple[str, float]:
            now = time.time()
            return self.server.token(exp=now + life_seconds, **claims), now + told_seconds

        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": give,
        }

    def kafka_python(self, **claims: Any) -> dict[str, Any]:
        server = self.server

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return server.token(**claims)

        return _python_settings(Provider())

    def aiokafka(self, **claims: Any) -> dict[str, Any]:
        server = self.server

        class Provider(AsyncTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return server.token(**claims)

        return _python_settings(Provider())


def _python_settings(provider: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@contextmanager
def run_setting(directory: Path) -> Iterator[Setting]:
    with run_token_server(directory) as server:
        config = {
            "num.partitions": "1",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
            "sasl.oauthbearer.jwks.endpoint.tls.ca": server.authorities,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
        }
        with run_broker(config=config, kind=SaslBroker) as broker:
            yield Setting(broker, server)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with run_setting(tmp_path_factory.mktemp("tokens")) as found:
        yield found


def test_confluent_kafka_writes_and_reads_in_transactions(setting: Setting) -> None:
    settings = setting.librdkafka()
    producer = confluent.transactional(setting.broker.address, "confluent", **settings)
    producer.begin_transaction()
    confluent.deliver(producer, "confluent", VALUES)
    producer.commit_transaction()
    found = confluent.read(setting.broker.address, "confluent", count=len(VALUES), **settings)
    assert confluent.values(found) == VALUES


def test_kafka_python_writes_and_reads_in_transactions(setting: Setting) -> None:
    address, settings = setting.broker.address, setting.kafka_python()
    with kafka_python.transactional(address, "kafka-python", **settings) as producer:
        producer.begin_transaction()
        kafka_python.deliver(producer, "kafka-python", VALUES)
        producer.commit_transaction()
    with kafka_python.consumer(address, **settings) as consumer:
        consumer.partitions_for_topic("kafka-python")  # it asks for a topic that it has not seen
        consumer.assign([TopicPartition("kafka-python", 0)])
        found: list[Any] = []
        kafka_python.poll_until(lambda: len(found) == len(VALUES), consumer, collect=found)
    assert [record.value for record in found] == VALUES


def test_aiokafka_writes_and_reads_in_transactions(setting: Setting) -> None:
    address, settings = setting.broker.address, setting.aiokafka()

    async def story() -> list[Any]:
        async with (
            aio.producer(address, transactional_id="aiokafka", **settings) as producer,
            producer.transaction(),
        ):
            await aio.deliver(producer, "aiokafka", VALUES)
        async with aio.consumer(address, "aiokafka", group="aiokafka", **settings) as consumer:
            found: list[Any] = []
            while len(found) < len(VALUES):
                found += await aio.polled(consumer)
        return found

    assert [record.value for record in asyncio.run(story())] == VALUES


def test_confluent_kafka_says_that_its_token_is_refused(setting: Setting) -> None:
    said: list[KafkaError] = []
    settings = {**setting.librdkafka(aud="hotels"), "error_cb": said.append}
    producer = Producer({"bootstrap.servers": setting.broker.address, **settings})
    for _ in range(600):
        if any(error.code() == KafkaError._AUTHENTICATION for error in said):
            break
        producer.poll(0.1)
    assert "invalid_token" in " ".join(error.str() for error in said), said
    wait_until(lambda: "its token was refused: it is for another audience" in setting.broker.log)


@pytest.mark.usefixtures("dropped")
def test_kafka_python_ends_with_an_error_of_authentication(setting: Setting) -> None:
    settings = setting.kafka_python(iss="https://attacker.test")
    with (
        pytest.raises(Exception, match=r"."),
        kafka_python.producer(setting.broker.address, max_block_ms=5_000, **settings) as producer,
    ):
        kafka_python.deliver(producer, "refused", VALUES[:1])
    wait_until(lambda: "its token was refused: it is of another issuer" in setting.broker.log)


@pytest.mark.usefixtures("dropped")
def test_aiokafka_gets_nothing_for_a_token_that_has_expired(setting: Setting) -> None:
    settings = setting.aiokafka(exp=int(time.time()) - 60)

    async def story() -> None:
        async with aio.producer(setting.broker.address, **settings):
            pass

    with pytest.raises(Exception, match=r"."):
        asyncio.run(story())
    wait_until(lambda: "its token was refused: it has expired" in setting.broker.log)


def test_tokens_of_four_seconds_are_renewed_without_a_failed_send(setting: Setting) -> None:
    """KIP-368: the session ends with the token, and the client authenticates again before."""
    failures: list[str] = []
    settings = {
        **setting.librdkafka(life_seconds=SHORT_SECONDS, told_seconds=RENEWED_SECONDS),
        "error_cb": lambda error: failures.append(error.str()),
    }
    producer = confluent.producer(setting.broker.address, **settings)
    ends = time.monotonic() + 3 * SHORT_SECONDS
    sent = 0
    while time.monotonic() < ends:
        confluent.deliver(producer, "renewed", VALUES[:1])
        sent += 1
    address = setting.broker.address
    found = confluent.read(address, "renewed", count=sent, **setting.librdkafka())
    assert len(found) == sent
    assert failures == []


@pytest.mark.peers
def test_kafkas_own_client_reads_its_token_from_a_file(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    kafkas = "org.apache.kafka.common.security.oauthbearer"
    for allowed, value in (("files", str(token)), ("urls", token.as_uri())):
        options = os.environ.get("JAVA_TOOL_OPTIONS", "")
        option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{allowed}={value}"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{options} {option}")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={kafkas}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={kafkas}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", setting.broker.address)
    with KafkaTools() as tools:

        def run(*arguments: str) -> str:
            return tools.run(*command, "--command-config", str(properties), *arguments).text

        token.write_text(setting.server.token())
        assert "Created topic java" in run("--create", "--topic", "java", "--partitions", "1")
        assert "java" in run("--list").splitlines()
        token.write_text(setting.server.token(aud="hotels"))
        assert '{"status":"invalid_token"}' in run("--list")
