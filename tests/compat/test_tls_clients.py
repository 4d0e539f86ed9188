"""Foreign clients over TLS, with certificates of their own: records, transactions, groups."""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kafka import TopicPartition

from tests.cluster.test_network import wait_until
from tests.compat import aio, confluent, kafka_python
from tests.secured import Secured, run_secured

VALUES = [b"%d" % number * 100 for number in range(300)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["TLSv1.2", "TLSv1.3"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("certificates")
    with run_secured(directory, ssl_enabled_protocols=request.param) as found:
        yield found


def test_confluent_kafka_writes_and_reads_in_transactions(secured: Secured) -> None:
    settings = secured.librdkafka
    producer = confluent.transactional(secured.address, "confluent", **settings)
    producer.begin_transaction()
    confluent.deliver(producer, "confluent", VALUES)
    producer.commit_transaction()
    found = confluent.read(secured.address, "confluent", count=len(VALUES), **settings)
    assert confluent.values(found) == VALUES


def test_kafka_python_writes_and_reads_in_transactions(secured: Secured) -> None:
    settings = secured.kafka_python
    with kafka_python.transactional(secured.address, "kafka-python", **settings) as producer:
        producer.begin_transaction()
        kafka_python.deliver(producer, "kafka-python", VALUES)
        producer.commit_transaction()
    with kafka_python.consumer(secured.address, **settings) as consumer:
        consumer.partitions_for_topic("kafka-python")  # it asks for a topic that it has not seen
        consumer.assign([TopicPartition("kafka-python", 0)])
        found: list[Any] = []
        kafka_python.poll_until(lambda: len(found) == len(VALUES), consumer, collect=found)
    assert [record.value for record in found] == VALUES


def test_aiokafka_writes_and_reads_in_transactions(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.authority.file)
    context.load_cert_chain(secured.alice.certificate_file, secured.alice.key_file)
    settings = {"security_protocol": "SSL", "ssl_context": context}

    async def story() -> list[Any]:
        async with (
            aio.producer(secured.address, transactional_id="aiokafka", **settings) as producer,
            producer.transaction(),
        ):
            await aio.deliver(producer, "aiokafka", VALUES)
        async with aio.consumer(
            secured.address, "aiokafka", group="aiokafka", **settings
        ) as consumer:
            found: list[Any] = []
            while len(found) < len(VALUES):
                found += await aio.polled(consumer)
        return found

    assert [record.value for record in asyncio.run(story())] == VALUES


def test_large_records_come_back_whole(secured: Secured) -> None:
    """Many records of TLS in each direction, and frames that end in the middle of one."""
    values = [bytes([number]) * 900_000 for number in range(20)]
    settings = {**secured.librdkafka, "linger.ms": 0}
    producer = confluent.transactional(secured.address, "large", **settings)
    producer.begin_transaction()
    confluent.deliver(producer, "large", values)
    producer.commit_transaction()
    found = confluent.read(secured.address, "large", count=len(values), **secured.librdkafka)
    assert confluent.values(found) == values


def errors_of(address: str, **settings: Any) -> list[str]:
    """What librdkafka says of a broker that it cannot use."""
    from confluent_kafka import Producer

    said: list[str] = []

    def note(error: KafkaError) -> None:
        said.append(error.str())

    producer = Producer({"bootstrap.servers": address, "error_cb": note, **settings})
    for _ in range(600):
        if said:
            break
        producer.poll(0.1)
    return said


def test_a_client_without_a_certificate_is_told_that_it_needs_one(secured: Secured) -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": secured.authority.file}
    said = errors_of(secured.address, **settings)
    assert "alert" in said[0], said
    why = "it shows no certificate, and ssl.client.auth=required"
    wait_until(lambda: why in secured.broker.log)


def test_a_client_without_tls_is_named_in_the_log(secured: Secured) -> None:
    assert errors_of(secured.address) != []
    why = "to listener SSL closed: it does not speak TLS, as this listener"
    wait_until(lambda: why in secured.broker.log)


def test_a_client_of_tls_on_a_plain_port_is_named_in_the_log(secured: Secured) -> None:
    from odradek.broker.testing import run_broker

    with run_broker() as plain:
        settings = {"security.protocol": "SSL", "ssl.ca.location": secured.authority.file}
        assert errors_of(plain.address, **settings) != []
        why = "closed: it begins a TLS handshake, and this port has no TLS"
        wait_until(lambda: why in plain.log)
