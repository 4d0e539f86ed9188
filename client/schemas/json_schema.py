"""JSON Schema, by jsonschema."""

import json
from collections.abc import Callable
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

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


class JsonSchemaSerializer(SchemaSerializer[Given]):
    """A serializer of what JSON can have, or of what `to_dict` makes that of."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema,
        *,
        to_dict: Callable[[Given], Any] | None = None,
        validate: bool = True,
        subject_of: SubjectOf = topic_subject,
        auto_register: bool | None = None,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        """Make a serializer for `schema`: text, JSON objects, or a `Schema` with references.

        `validate=False` writes values without comparing them with the schema. The other options are
        those of `AvroSerializer`. The name of a record is the title of its schema.
        """
        super().__init__(
            registry,
            subject_of=subject_of,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
        )
        self._schema = checked(schema)
        text = _parsed(self._schema)
        self._name = text.get("title") if isinstance(text, dict) else None
        self._to_dict = to_dict
        self._validate = validate

    def _record_name(self, value: Any) -> str | None:
        return self._name

    async def _own_schema(self, value: Any) -> Schema:
        return self._schema

    async def _encoder(self, schema: Schema) -> Encode:
        validate = None
        if self._validate:
            validate = _validator(schema, await self._registry.references(schema))
        to_dict = self._to_dict

        def encode(value: Any) -> bytes:
            given = value if to_dict is None else to_dict(value)
            if validate is not None:
                validate(given)
            return json.dumps(given).encode()

        return encode


class JsonSchemaDeserializer(SchemaDeserializer[Decoded]):
    """A deserializer that returns what JSON has, or what `from_dict` makes of it."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema | None = None,
        *,
        from_dict: Callable[[Any], Decoded] | None = None,
        validate: bool = True,
    ) -> None:
        """Make a deserializer that compares values with `schema`, or else with the writer's.

        With `validate=False` nothing is compared, and the registry is not asked.
        """
        super().__init__(registry)
        self._schema = None if schema is None else checked(schema)
        self._from_dict = from_dict
        self._validate = validate

    async def _decoder(self, framed: Framed) -> Decode:
        validate = None
        if self._validate:
            schema = self._schema or await self._registry.schema(framed.schema)
            if schema.type != "JSON":
                raise ValueError(f"its type is {schema.type}, and not JSON")
            validate = _validator(schema, await self._registry.references(schema))
        from_dict = self._from_dict

        def decode(payload: bytes) -> Any:
            decoded = json.loads(payload)
            if validate is not None:
                validate(decoded)
            return decoded if from_dict is None else from_dict(decoded)

        return decode


def checked(given: GivenSchema) -> Schema:
    """Return a schema of the program. Raises ValueError if it makes no sense."""
    schema = to_schema(given, "JSON")
    text = _parsed(schema)
    try:
        validator_for(text, default=Draft7Validator).check_schema(text)
    except SchemaError as error:
        where = f"{error.message} (at {error.json_path})"
        raise ValueError(f"the JSON Schema makes no sense: {where}") from error
    return schema


def _parsed(schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except ValueError as error:
        raise ValueError(f"a JSON Schema is JSON, and this one is not: {error}") from error


def _validator(schema: Schema, references: dict[str, Schema]) -> Callable[[Any], None]:
    """Return a function that raises ValueError, with the place, for a value that does not fit."""
    known: Registry[Any] = Registry().with_resources(
        (name, Resource.from_contents(_parsed(each), default_specification=DRAFT7))
        for name, each in references.items()
    )
    text = _parsed(schema)
    validator = validator_for(text, default=Draft7Validator)(text, registry=known)

    def validate(value: Any) -> None:
        for error in validator.iter_errors(value):
            raise ValueError(f"{error.message} (at {error.json_path})")

    return validate
