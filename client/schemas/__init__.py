"""Serializers and deserializers with a schema registry: Avro, JSON Schema and Protobuf.

    from odradek.client.schemas import AvroDeserializer, AvroSerializer, SchemaRegistry

    registry = SchemaRegistry("http://127.0.0.1:8081")
    async with Producer(address, value_serializer=AvroSerializer(registry, ORDER)) as producer:
        await producer.send("orders", {"item": "spool", "count": 1})
    async with Consumer(address, value_deserializer=AvroDeserializer(registry)) as consumer:
        ...

The same objects serve all three clients. The bytes are those of Confluent's serializers, and the
registry is any that has the REST API of Confluent's. This needs the extra `schemas`.
"""

from odradek.extras import imports_of

with imports_of("schemas", "odradek.client.schemas"):
    from odradek.client.schemas.avro import AvroDeserializer, AvroSerializer
    from odradek.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from odradek.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from odradek.client.schemas.registered import (
        Reference,
        RegisteredSchema,
        RegistryAway,
        Schema,
        SchemaRefused,
    )
    from odradek.client.schemas.registry import Compatibility, SchemaRegistry
    from odradek.client.schemas.subjects import (
        SubjectOf,
        record_subject,
        topic_record_subject,
        topic_subject,
    )

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "Compatibility",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegisteredSchema",
    "RegistryAway",
    "Schema",
    "SchemaRefused",
    "SchemaRegistry",
    "SubjectOf",
    "record_subject",
    "topic_record_subject",
    "topic_subject",
]
