"""Records with schemas on a real broker: all three faces, and confluent-kafka."""

import asyncio
import json
from typing import Any, Final

import confluent_kafka
import pytest
import trio
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from odradek.client import Consumer, NewTopic, Producer, aio
from odradek.client import blocking as plain
from odradek.client.schemas import AvroDeserializer, AvroSerializer, RegistryAway, SchemaRegistry
from tests.client.live import WAIT_MS, name_of
from tests.fakes.schema_registry import FakeSchemaRegistry

ORDER: Final = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
)


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = name_of("schemas")
    with plain.Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    return name


def test_all_clients_and_confluent_kafka_read_each_others_records(
    bootstrap: str, topic: str, fake: FakeSchemaRegistry
) -> None:
    registry = SchemaRegistry(fake.url)
    writing: Any = {"value_serializer": AvroSerializer(registry, ORDER)}
    reading: Any = {"value_deserializer": AvroDeserializer(registry)}
    context = SerializationContext(topic, MessageField.VALUE)

    async def with_trio() -> list[Any]:
        async with Producer(bootstrap, **writing) as producer:
            await (await producer.send(topic, {"n": 1}))
        async with Consumer(bootstrap, **reading) as consumer:
            consumer.assign([(topic, 0)])
            return [(await anext(consumer)).value for _ in range(2)]

    async def with_asyncio() -> list[Any]:
        async with aio.Producer(bootstrap, **writing) as producer:
            await (await producer.send(topic, {"n": 2}))
        async with aio.Consumer(bootstrap, **reading) as consumer:
            consumer.assign([(topic, 0)])
            return [(await anext(consumer)).value for _ in range(3)]

    with SchemaRegistryClient({"url": fake.url}) as theirs:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, TheirSerializer(theirs, ORDER)({"n": 0}, context))
        producer.flush()
        wanted = [{"n": number} for number in range(4)]
        assert trio.run(with_trio) == wanted[:2]
        assert asyncio.run(with_asyncio()) == wanted[:3]
        with plain.Producer(bootstrap, **writing) as last_producer:
            last_producer.send(topic, {"n": 3})
        with plain.Consumer(bootstrap, **reading) as consumer:
            consumer.assign([(topic, 0)])
            read = [record.value for _, record in zip(range(4), consumer, strict=False)]
        assert read == wanted
        decode = TheirDeserializer(theirs)
        with plain.Consumer(bootstrap) as consumer:
            consumer.assign([(topic, 0)])
            raw = [record.value for _, record in zip(range(4), consumer, strict=False)]
        assert [decode(value, context) for value in raw] == wanted


def test_a_registry_that_is_away_makes_no_poison_records(
    bootstrap: str, topic: str, fake: FakeSchemaRegistry
) -> None:
    with plain.Producer(
        bootstrap, value_serializer=AvroSerializer(SchemaRegistry(fake.url), ORDER)
    ) as producer:
        producer.send(topic, {"n": 1})
    registry = SchemaRegistry(fake.url, retries=0)
    with plain.Consumer(bootstrap, value_deserializer=AvroDeserializer(registry)) as consumer:
        consumer.assign([(topic, 0)])
        fake.fails = 1
        with pytest.raises(RegistryAway, match="reading schema 1: no server"):
            consumer.poll(WAIT_MS)
        assert [record.value for record in consumer.poll(WAIT_MS)] == [{"n": 1}]
