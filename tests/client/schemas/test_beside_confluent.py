"""Our serializers and confluent-kafka's, with one registry: each reads what the other wrote."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import trio
from confluent_kafka.schema_registry import (
    Schema as TheirSchema,
)
from confluent_kafka.schema_registry import (
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.serialization import MessageField
from confluent_kafka.serialization import SerializationContext as TheirContext

from odradek.client import SerializationContext
from odradek.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    Schema,
    SchemaRefused,
    SchemaRegistry,
    record_subject,
    topic_record_subject,
)
from odradek.client.schemas.wire import frame
from odradek.client.serialization import is_awaitable
from tests.client.schemas.messages import classes
from tests.fakes.schema_registry import FakeSchemaRegistry

ORDER: Final = {"item": "spool", "count": 3}
AVRO: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
    }
)
JSON: Final = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
        "required": ["item"],
    }
)
NO_SCHEMA: Any = b"{}"
THEIR_CONFIG: Any = {"url": "http://127.0.0.1:8081"}
Order, Note, Customer = classes()


@pytest.fixture
def theirs(fake: FakeSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": fake.url}) as client:
        yield client


def here(headers: Any = None) -> SerializationContext:
    return SerializationContext("orders", "value", headers or [])


def there(headers: Any = None) -> TheirContext:
    return TheirContext("orders", MessageField.VALUE, headers)


async def ours(function: Callable[..., Any], given: Any, headers: Any = None) -> Any:
    """Call one of our functions as a client does. The second time nothing is awaited."""
    first = function(given, here(headers))
    if is_awaitable(first):
        first = await first
    second = function(given, here(headers))
    assert second == first
    return first


async def test_avro_is_read_by_both(registry: SchemaRegistry, theirs: SchemaRegistryClient) -> None:
    written = await ours(AvroSerializer(registry, AVRO), ORDER)
    assert written == their_avro.AvroSerializer(theirs, AVRO)(ORDER, there())
    assert their_avro.AvroDeserializer(theirs)(written, there()) == ORDER
    assert await ours(AvroDeserializer(registry), written) == ORDER


async def test_json_is_read_by_both(registry: SchemaRegistry, theirs: SchemaRegistryClient) -> None:
    written = await ours(JsonSchemaSerializer(registry, JSON), ORDER)
    assert their_json.JSONDeserializer(JSON, schema_registry_client=theirs)(written, there()) == (
        ORDER
    )
    other = their_json.JSONSerializer(JSON, theirs)(ORDER, there())
    assert other[:5] == written[:5]
    assert await ours(JsonSchemaDeserializer(registry), other) == ORDER


@pytest.mark.parametrize("kind", [Order, Note])
async def test_protobuf_is_read_by_both(
    kind: Any, registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    message = kind(item="spool", count=3) if kind is Order else kind(text="fragile")
    if kind is Order:
        message.customer.name = "ada"
        message.at.seconds = 7
    settings = {"use.deprecated.format": False}
    other = their_protobuf.ProtobufSerializer(kind, theirs, settings)(message, there())
    written = await ours(ProtobufSerializer(registry, Customer, kind), message)
    assert written == other
    assert their_protobuf.ProtobufDeserializer(kind, settings)(written, there()) == message
    assert await ours(ProtobufDeserializer(registry, Customer, kind), other) == message
    made = await ours(ProtobufDeserializer(registry), other)
    assert made.DESCRIPTOR.full_name == kind.DESCRIPTOR.full_name
    assert made.SerializeToString() == message.SerializeToString()


async def test_avro_with_references_is_read_by_both(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    """A diamond: the order names the money itself, and in its item. It is defined once."""
    money = (
        '{"type": "record", "name": "Money", "namespace": "shop", "fields": ['
        '{"name": "cents", "type": "long"}]}'
    )
    item = (
        '{"type": "record", "name": "Item", "namespace": "shop", "fields": ['
        '{"name": "name", "type": "string"}, {"name": "price", "type": "Money"}]}'
    )
    order = (
        '{"type": "record", "name": "Basket", "namespace": "shop", "fields": ['
        '{"name": "items", "type": {"type": "array", "items": "shop.Item"}}, '
        '{"name": "total", "type": ["null", "shop.Money"]}]}'
    )
    of_money = Reference("shop.Money", "money", 1)
    of_item = Reference("shop.Item", "item", 1)
    await registry.register("money", Schema(money))
    await registry.register("item", Schema(item, references=(of_money,)))
    schema = Schema(order, references=(of_item, of_money))
    basket = {"items": [{"name": "spool", "price": {"cents": 5}}] * 2, "total": {"cents": 10}}
    written = await ours(AvroSerializer(registry, schema), basket)
    assert their_avro.AvroDeserializer(theirs)(written, there()) == basket
    given = [SchemaReference(each.name, each.subject, 1) for each in (of_item, of_money)]
    other = their_avro.AvroSerializer(theirs, TheirSchema(order, "AVRO", given))(basket, there())
    assert other == written
    assert await ours(AvroDeserializer(registry), other) == basket


async def test_a_topic_may_have_records_of_several_schemas_that_a_union_refers_to(
    registry: SchemaRegistry,
) -> None:
    for name in ("Ordered", "Paid"):
        text = '{"type": "record", "name": "%s", "fields": [{"name": "%s", "type": "int"}]}'
        await registry.register(name, Schema(text % (name, name.lower())))
    union = Schema(
        '["Ordered", "Paid"]',
        references=(Reference("Ordered", "Ordered", 1), Reference("Paid", "Paid", 1)),
    )
    serializer = AvroSerializer(registry, union)
    for value in ({"ordered": 1}, {"paid": 2}):
        written = await ours(serializer, value)
        assert await ours(AvroDeserializer(registry), written) == value


async def test_json_with_a_reference_is_read_by_both(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    customer = (
        '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
    )
    order = '{"type": "object", "properties": {"customer": {"$ref": "customer.json"}}}'
    await registry.register("customer", Schema(customer, "JSON"))
    schema = Schema(order, "JSON", (Reference("customer.json", "customer", 1),))
    serializer = JsonSchemaSerializer(registry, schema)
    value = {"customer": {"name": "ada"}}
    written = await ours(serializer, value)
    their_schema = TheirSchema(order, "JSON", [SchemaReference("customer.json", "customer", 1)])
    reader = their_json.JSONDeserializer(their_schema, schema_registry_client=theirs)
    assert reader(written, there()) == value
    other = their_json.JSONSerializer(their_schema, theirs)(value, there())
    assert await ours(JsonSchemaDeserializer(registry), other) == value
    with pytest.raises(SchemaRefused, match=r"'name' is a required property \(at \$.customer\)"):
        await ours(serializer, {"customer": {}})


async def test_a_reader_with_a_newer_schema_gets_defaults(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    fields = json.loads(AVRO)
    del fields["fields"][1]
    fields["fields"].append({"name": "gift", "type": "boolean", "default": False})
    newer = json.dumps(fields)
    for written in (
        await ours(AvroSerializer(registry, AVRO), ORDER),
        their_avro.AvroSerializer(theirs, AVRO)(ORDER, there()),
    ):
        assert await ours(AvroDeserializer(registry, newer), written) == {
            "item": "spool",
            "gift": False,
        }


async def test_a_schema_that_is_named_by_a_guid_in_a_header_is_read(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    headers: list[tuple[str, bytes]] = []
    conf = {"schema.id.serializer": header_schema_id_serializer}
    written = their_avro.AvroSerializer(theirs, AVRO, conf=conf)(ORDER, there(headers))
    assert headers[0][0] == "__value_schema_id"
    assert written[0] != 0
    assert await ours(AvroDeserializer(registry), written, headers) == ORDER


async def test_the_subjects_of_all_strategies_are_theirs(
    fake: FakeSchemaRegistry, registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    for subject_of, same in (
        (record_subject, record_subject_name_strategy),
        (topic_record_subject, topic_record_subject_name_strategy),
        (topic_record_subject_name_strategy, topic_record_subject_name_strategy),
    ):
        await ours(AvroSerializer(registry, AVRO, subject_of=subject_of), ORDER)
        count = len(fake.subjects)
        conf = {"subject.name.strategy": same}
        their_avro.AvroSerializer(theirs, AVRO, conf=conf)(ORDER, there())
        assert len(fake.subjects) == count
    assert sorted(fake.subjects) == ["orders-shop.Order", "shop.Order"]


async def test_without_auto_register_a_schema_must_be_there(
    fake: FakeSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, AVRO, auto_register=False)
    with pytest.raises(
        SchemaRefused,
        match=r"the value for topic 'orders' has no schema: looking a schema up under "
        r"'orders-value': .* at http.*auto_register is False",
    ):
        await ours(serializer, ORDER)
    await registry.register("orders-value", Schema(AVRO))
    assert (await ours(serializer, ORDER))[:5] == b"\0\0\0\0\1"


async def test_the_latest_schema_of_the_registry_is_used_if_asked_for(
    registry: SchemaRegistry,
) -> None:
    serializer = AvroSerializer(registry, '"string"', use_latest=True)
    await registry.register("orders-value", Schema(AVRO))
    assert await ours(AvroDeserializer(registry), await ours(serializer, ORDER)) == ORDER
    with pytest.raises(ValueError, match="give one of them"):
        AvroSerializer(registry, AVRO, use_latest=True, auto_register=True)


async def test_a_value_that_does_not_fit_names_topic_subject_id_and_registry(
    registry: SchemaRegistry,
) -> None:
    place = r"the value for topic 'orders' does not fit schema 1 of subject 'orders-value' at http"
    with pytest.raises(SchemaRefused, match=place):
        await ours(AvroSerializer(registry, AVRO), {"item": 3, "count": 3})
    with pytest.raises(SchemaRefused, match=r"0 is less than the minimum of 1 \(at \$.count\)"):
        await ours(JsonSchemaSerializer(registry, JSON), {"item": "spool", "count": 0})
    await ours(JsonSchemaSerializer(registry, JSON, validate=False), {"count": 0})


async def test_bytes_of_another_serializer_name_topic_and_reason(registry: SchemaRegistry) -> None:
    with pytest.raises(
        SchemaRefused, match=r"the value of topic 'orders' names no schema: it begins with b'\{'"
    ):
        await ours(AvroDeserializer(registry), b"{")
    written = await ours(JsonSchemaSerializer(registry, JSON), ORDER)
    with pytest.raises(SchemaRefused, match="has schema 1, which cannot be used: its type is JSON"):
        await ours(AvroDeserializer(registry), written)
    with pytest.raises(SchemaRefused, match=r"has schema 1, which .* JSON, and not PROTOBUF"):
        await ours(ProtobufDeserializer(registry, Note), written[:5] + b"\0")


async def test_a_message_of_another_class_is_refused_by_name(registry: SchemaRegistry) -> None:
    written = await ours(ProtobufSerializer(registry, Note), Note(text="fragile"))
    with pytest.raises(SchemaRefused, match=r"its message is shop\.Parcel\.Note, .*shop\.Order"):
        await ours(ProtobufDeserializer(registry, Order), written)
    with pytest.raises(TypeError, match=r"a message of shop\.Order is needed"):
        ProtobufSerializer(registry, Order)(Note(), here())


async def test_objects_of_the_program_are_made_of_and_into_dictionaries(
    registry: SchemaRegistry,
) -> None:
    class Count(int):
        pass

    text = '{"type": "object"}'
    for serializer, deserializer in (
        (
            AvroSerializer(registry, AVRO, to_dict=lambda n: {"item": "spool", "count": int(n)}),
            AvroDeserializer(registry, from_dict=lambda found: Count(found["count"])),
        ),
        (
            JsonSchemaSerializer(registry, text, to_dict=lambda n: {"count": int(n)}),
            JsonSchemaDeserializer(registry, from_dict=lambda found: Count(found["count"])),
        ),
    ):
        read = await ours(deserializer, await ours(serializer, Count(3)))
        assert (type(read), read) == (Count, 3)


async def test_many_tasks_at_once_ask_the_registry_once(
    fake: FakeSchemaRegistry, registry: SchemaRegistry
) -> None:
    """A hundred requests of a web service registered their schema a hundred times at its start."""
    serializer, deserializer = AvroSerializer(registry, AVRO), AvroDeserializer(registry)
    read: list[Any] = []

    async def both() -> None:
        read.append(await ours(deserializer, await ours(serializer, ORDER)))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(both)
    assert read == [ORDER] * 20
    assert set(fake.requests.values()) == {1}
    assert not serializer._one_asks._locks


async def test_a_task_that_is_cancelled_while_it_asks_leaves_the_question_to_the_others(
    fake: FakeSchemaRegistry,
) -> None:
    fake.fails = 1
    serializer = AvroSerializer(SchemaRegistry(fake.url, retry_backoff_ms=200), AVRO)
    written: list[bytes] = []

    async def write() -> None:
        written.append(await ours(serializer, ORDER))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(write)
                while not fake.requests:  # noqa: ASYNC110 - it is in another thread
                    await trio.sleep(0.001)
                nursery.start_soon(write)
                scope.cancel()
    assert len(written) == 1


async def test_messages_of_two_files_have_the_schemas_of_theirs(registry: SchemaRegistry) -> None:
    """The second class got the id of the first, as both have the subject of the topic."""
    serializer = ProtobufSerializer(registry, Note, Customer)
    deserializer = ProtobufDeserializer(registry)
    await registry.set_compatibility("NONE")
    for message in (Note(text="fragile"), Customer(name="ada"), Note(text="again")):
        read = await ours(deserializer, await ours(serializer, message))
        assert read.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
        assert read.SerializeToString() == message.SerializeToString()


async def test_a_message_whose_schema_is_text_is_read_by_the_one_class_at_its_place(
    registry: SchemaRegistry,
) -> None:
    """Java registers the text of the file; a registry may not make a descriptor of it."""
    text = 'syntax = "proto3"; package shop; message Order { string item = 1; }'
    schema_id = await registry.register("orders-value", Schema(text, "PROTOBUF"))
    written = frame(schema_id, Order(item="spool").SerializeToString(), (0,))
    read = await ours(ProtobufDeserializer(registry, Order, Note), written)
    assert read == Order(item="spool")
    with pytest.raises(SchemaRefused, match=r"returned it as text, .* give .* one class"):
        await ours(ProtobufDeserializer(registry), written)


async def test_a_schema_may_be_given_as_the_objects_of_its_json(registry: SchemaRegistry) -> None:
    for kind, read, text in (
        (AvroSerializer, AvroDeserializer(registry), AVRO),
        (JsonSchemaSerializer, JsonSchemaDeserializer(registry), JSON),
    ):
        given: Any = json.loads(text)
        assert await ours(read, await ours(kind(registry, given), ORDER)) == ORDER


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda one: AvroSerializer(one, '{"type": "recrd"}'), "the Avro schema makes no sense"),
        (lambda one: AvroDeserializer(one, "{"), "an Avro schema is JSON, and '{' is not"),
        (lambda one: AvroSerializer(one, NO_SCHEMA), "a schema is a str, a dict or a Schema"),
        (lambda one: AvroSerializer(one, Schema("{}", "JSON")), "of type AVRO is needed, and JSON"),
        (lambda one: JsonSchemaSerializer(one, '{"type": 3}'), r"no sense: 3 is not .*\$\.type"),
        (
            lambda one: JsonSchemaDeserializer(one, "{"),
            "a JSON Schema is JSON, and this one is not",
        ),
        (
            lambda one: ProtobufSerializer(one, NO_SCHEMA),
            "a class of messages is needed, and b",
        ),
        (lambda one: ProtobufSerializer(one), "needs a class of messages"),
        (lambda one: ProtobufDeserializer(one, Note()), "a class of messages is needed"),
        (lambda one: AvroDeserializer(one.urls[0]), "a SchemaRegistry is needed, and 'http"),
        (lambda one: SchemaRegistry(THEIR_CONFIG), "options are keywords; not {'url'"),
    ],
)
def test_a_slip_is_a_sentence_when_the_object_is_made(
    make: Callable[[SchemaRegistry], object], sentence: str, registry: SchemaRegistry
) -> None:
    """A schema that makes no sense was registered, and the first record failed."""
    with pytest.raises(ValueError, match=sentence):
        make(registry)
