"""The common parts of the serializers, and of the deserializers, of all kinds of schemas.

A serializer asks the registry once for each subject, a deserializer once for each schema. What they
have learned is used without waiting: then a call returns bytes, or a value. Otherwise it returns a
coroutine, which the client awaits (`odradek.client.serialization`). If many tasks of an event loop
need the same at once, one of them asks.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple
from uuid import UUID

import anyio
import anyio.lowlevel

from odradek.client.errors import Retriable
from odradek.client.schemas.registered import Schema, SchemaRefused, SchemaType
from odradek.client.schemas.registry import SchemaRegistry
from odradek.client.schemas.subjects import SubjectOf, topic_subject
from odradek.client.schemas.wire import Framed, NotFramed, frame, unframe
from odradek.client.serialization import SerializationContext

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Given = TypeVar("Given", default=Any)
    Decoded = TypeVar("Decoded", default=Any)
else:
    from typing import TypeVar

    Given, Decoded = TypeVar("Given"), TypeVar("Decoded")

GivenSchema = str | dict[str, Any] | list[Any] | Schema
"""A schema as a program may give it: its text, or its JSON objects, or with references."""
Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


class Known(NamedTuple):
    """The id of a subject's schema, and the function that encodes values by it."""

    schema_id: int
    encode: Encode


class OneAsks:
    """The locks under which one task of an event loop asks, while others wait for what it learns.

    A lock belongs to one event loop, so other threads ask for themselves.
    """

    def __init__(self) -> None:
        self._locks: dict[tuple[object, Hashable], anyio.Lock] = {}

    @asynccontextmanager
    async def __call__(self, key: Hashable) -> AsyncIterator[None]:
        here = (anyio.lowlevel.current_token(), key)
        lock = self._locks.setdefault(here, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(here, None)


class SchemaSerializer(ABC, Generic[Given]):
    """A serializer that registers its schema, or finds it, and writes its id before each value."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        subject_of: SubjectOf = topic_subject,
        auto_register: bool | None = None,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        if auto_register and use_latest:
            raise ValueError(
                "auto_register registers the schema of the program, and use_latest writes with "
                "that of the registry: give one of them"
            )
        self._registry = to_registry(registry)
        self._subject_of = subject_of
        self._auto_register = not use_latest if auto_register is None else auto_register
        self._use_latest = use_latest
        self._normalize = normalize
        self._known: dict[tuple[str, str], Known] = {}
        """By subject and `_schema_name`."""
        self._one_asks = OneAsks()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._registry.address}>"

    def __call__(self, value: Given, context: SerializationContext) -> bytes | Awaitable[bytes]:
        """Return the bytes of a value, or an awaitable of them."""
        subject = self._subject_of(context, self._record_name(value)) or topic_subject(context, "")
        known = self._known.get((subject, self._schema_name(value)))
        if known is None:
            return self._learn(value, context, subject)
        return self._encode(known, value, context, subject)

    @abstractmethod
    def _record_name(self, value: Any) -> str | None:
        """Return the name of the record, for strategies that ask for it."""

    @abstractmethod
    async def _own_schema(self, value: Any) -> Schema:
        """Return the schema of the program, when what it refers to is registered."""

    @abstractmethod
    async def _encoder(self, schema: Schema) -> Encode:
        """Return a function that encodes values by a schema."""

    def _schema_name(self, value: Any) -> str:
        """Return which schema of the serializer a value has, if it has several."""
        return ""

    def _indexes(self, value: Any) -> tuple[int, ...] | None:
        return None

    async def _learn(self, value: Given, context: SerializationContext, subject: str) -> bytes:
        """Register or find the schema of a subject, and encode a value."""
        key = (subject, self._schema_name(value))
        try:
            async with self._one_asks(key):
                known = self._known.get(key)
                if known is None:
                    known = self._known[key] = await self._found(value, subject)
        except SchemaRefused as error:
            hint = "" if self._auto_register or self._use_latest else "; auto_register is False"
            message = (
                f"the {context.field} for topic {context.topic!r} has no schema: {error}{hint}"
            )
            raise SchemaRefused(message, registry_code=error.registry_code) from error
        return self._encode(known, value, context, subject)

    async def _found(self, value: Given, subject: str) -> Known:
        registry = self._registry
        if self._use_latest:
            latest = await registry.latest(subject)
            return Known(latest.id, await self._encoder(latest.schema))
        schema = await self._own_schema(value)
        if self._auto_register:
            schema_id = await registry.register(subject, schema, normalize=self._normalize)
        else:
            schema_id = (await registry.lookup(subject, schema, normalize=self._normalize)).id
        return Known(schema_id, await self._encoder(schema))

    def _encode(
        self, known: Known, value: Given, context: SerializationContext, subject: str
    ) -> bytes:
        try:
            return frame(known.schema_id, known.encode(value), self._indexes(value))
        except Exception as error:
            raise SchemaRefused(
                f"the {context.field} for topic {context.topic!r} does not fit schema "
                f"{known.schema_id} of subject {subject!r} at {self._registry.address}: "
                f"{error or type(error).__name__}"
            ) from error


class SchemaDeserializer(ABC, Generic[Decoded]):
    """A deserializer that reads the schema of each value from the registry."""

    has_indexes: ClassVar[bool] = False

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = to_registry(registry)
        self._known: dict[tuple[int | UUID, tuple[int, ...] | None], Decode] = {}
        self._one_asks = OneAsks()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._registry.address}>"

    def __call__(self, given: bytes, context: SerializationContext) -> Decoded:
        """Return the value of some bytes, or an awaitable of it, which the client awaits."""
        try:
            framed = unframe(given, context, has_indexes=self.has_indexes)
        except NotFramed as error:
            raise SchemaRefused(
                f"the {context.field} of topic {context.topic!r} names no schema: {error}"
            ) from error
        decode = self._known.get((framed.schema, framed.indexes))
        if decode is None:
            return self._learn(framed, context)  # type: ignore[return-value] # the client awaits it
        return self._decode(decode, framed, context)

    @abstractmethod
    async def _decoder(self, framed: Framed) -> Decode:
        """Return a function that decodes what was written by a schema."""

    async def _learn(self, framed: Framed, context: SerializationContext) -> Decoded:
        key = (framed.schema, framed.indexes)
        try:
            async with self._one_asks(key):
                decode = self._known.get(key)
                if decode is None:
                    decode = self._known[key] = await self._decoder(framed)
        except Retriable:
            raise
        except Exception as error:
            raise SchemaRefused(
                f"the {context.field} of topic {context.topic!r} has schema {framed.schema}, which "
                f"cannot be used: {error}"
            ) from error
        return self._decode(decode, framed, context)

    def _decode(self, decode: Decode, framed: Framed, context: SerializationContext) -> Decoded:
        try:
            decoded: Decoded = decode(framed.payload)
        except Exception as error:
            raise SchemaRefused(
                f"the {context.field} of topic {context.topic!r} cannot be read by its schema "
                f"{framed.schema} at {self._registry.address}: {error or type(error).__name__}"
            ) from error
        return decoded


def to_registry(given: SchemaRegistry) -> SchemaRegistry:
    """Return the registry that a program has given. Raises ValueError if it is none."""
    if not isinstance(given, SchemaRegistry):
        raise ValueError(f"a SchemaRegistry is needed, and {given!r} was given")
    return given


def to_schema(given: GivenSchema, kind: SchemaType) -> Schema:
    """Return the schema that a program has given: as text, as JSON objects or with references."""
    if isinstance(given, Schema):
        if given.type != kind:
            raise ValueError(f"a schema of type {kind} is needed, and {given.type} was given")
        return given
    if isinstance(given, str):
        return Schema(given, kind)
    if isinstance(given, dict | list):
        return Schema(json.dumps(given), kind)
    raise ValueError(f"a schema is a str, a dict or a Schema, and {given!r} was given")
