"""Avro, by fastavro."""

import io
from collections.abc import Callable
from typing import Any

import fastavro

from odradek.client.schemas.avro_text import joined, parsed, record_name
from odradek.client.schemas.registered import Schema
from odradek.client.schemas.registry import SchemaRegistry
from odradek.client.schemas.schema_serializing import (
    Decode,
    Decoded,
    Encode,
    Given,
    GivenSchema,
    SchemaDeserializer,
    SchemaSerializer,
    to_schema,
)
from odradek.client.schemas.subjects import SubjectOf, topic_subject
from odradek.client.schemas.wire import Framed


class AvroSerializer(SchemaSerializer[Given]):
    """A serializer of dictionaries, or of what `to_dict` makes dictionaries of."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema,
        *,
        to_dict: Callable[[Given], Any] | None = None,
        strict: bool = False,
        subject_of: SubjectOf = topic_subject,
        auto_register: bool | None = None,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        """Make a serializer for `schema`: text, JSON objects, or a `Schema` with references.

        - `to_dict` (None): a function that makes what Avro encodes of a value.
        - `strict` (False): refuse a dictionary with a field that the schema has not.
        - `subject_of` (`topic_subject`): a function of context and record name that returns the
          subject; `record_subject` and `topic_record_subject` are others.
        - `auto_register`: register the schema, if it is not there. By default it is, unless
          `use_latest`. If it is False, the schema must be registered already.
        - `use_latest` (False): write by the latest schema of the subject instead of `schema`.
        - `normalize` (False): the registry compares schemas regardless of how they are written.
        """
        super().__init__(
            registry,
            subject_of=subject_of,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
        )
        self._schema = checked(schema)
        self._name = record_name(parsed(self._schema.text))
        self._to_dict = to_dict
        self._strict = strict

    def _record_name(self, value: Any) -> str | None:
        return self._name

    async def _own_schema(self, value: Any) -> Schema:
        return self._schema

    async def _encoder(self, schema: Schema) -> Encode:
        avro = await parsed_with_references(schema, self._registry)
        to_dict, strict = self._to_dict, self._strict

        def encode(value: Any) -> bytes:
            written = io.BytesIO()
            given = value if to_dict is None else to_dict(value)
            fastavro.schemaless_writer(written, avro, given, strict=strict)
            return written.getvalue()

        return encode


class AvroDeserializer(SchemaDeserializer[Decoded]):
    """A deserializer that returns dictionaries, or what `from_dict` makes of them."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema | None = None,
        *,
        from_dict: Callable[[Any], Decoded] | None = None,
        return_record_name: bool = False,
    ) -> None:
        """Make a deserializer. Values are read by the schema that they were written with.

        With `schema` they are resolved to it, as Avro has it: fields that it has not are left out,
        and fields that a value has not get their defaults. `return_record_name=True` returns a
        record of a union as a pair of its name and the dictionary.
        """
        super().__init__(registry)
        self._schema = None if schema is None else checked(schema)
        self._from_dict = from_dict
        self._return_record_name = return_record_name

    async def _decoder(self, framed: Framed) -> Decode:
        written_by = await parsed_with_references(
            await self._registry.schema(framed.schema), self._registry
        )
        read_by = None
        if self._schema is not None:
            read_by = await parsed_with_references(self._schema, self._registry)
        from_dict, return_record_name = self._from_dict, self._return_record_name

        def decode(payload: bytes) -> Any:
            decoded = fastavro.schemaless_reader(
                io.BytesIO(payload),
                written_by,
                read_by,
                return_record_name=return_record_name,
            )
            return decoded if from_dict is None else from_dict(decoded)

        return decode


def checked(given: GivenSchema) -> Schema:
    """Return a schema of the program. Raises ValueError if it makes no sense by itself."""
    schema = to_schema(given, "AVRO")
    if not schema.references:
        try:
            fastavro.parse_schema(joined(schema, {}))
        except Exception as error:
            raise ValueError(f"the Avro schema makes no sense: {error!r}") from error
    return schema


async def parsed_with_references(schema: Schema, registry: SchemaRegistry) -> Any:
    """Return a schema as fastavro takes it. Raises ValueError if it is of another type."""
    if schema.type != "AVRO":
        raise ValueError(f"its type is {schema.type}, and not AVRO")
    return fastavro.parse_schema(joined(schema, await registry.references(schema)))
