"""Protobuf, by Google's library. Schemas travel as descriptors of files, in base64."""

import base64
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from odradek.client.schemas.registered import Reference, Schema
from odradek.client.schemas.registry import SchemaRegistry
from odradek.client.schemas.schema_serializing import (
    Decode,
    Encode,
    SchemaDeserializer,
    SchemaSerializer,
)
from odradek.client.schemas.subjects import SubjectOf, topic_subject
from odradek.client.schemas.wire import Framed

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    MessageType = TypeVar("MessageType", bound=Message, default=Message)
else:
    from typing import TypeVar

    MessageType = TypeVar("MessageType")

EVERYWHERE = ("google/protobuf/", "google/type/", "confluent/")
"""The files that every registry has: they are not registered as references."""


class ProtobufSerializer(SchemaSerializer[MessageType], Generic[MessageType]):
    """A serializer of messages of a generated class, or of several."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *message_types: type[MessageType],
        subject_of: SubjectOf = topic_subject,
        auto_register: bool | None = None,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        """Make a serializer of messages of these classes.

        The file of a class is registered as its schema, and the files that it imports under their
        own names. The options are those of `AvroSerializer`; with `use_latest`, messages are
        encoded by their class all the same, and get the id of the latest schema.
        """
        if not message_types:
            raise ValueError("a ProtobufSerializer needs a class of messages, or several")
        super().__init__(
            registry,
            subject_of=subject_of,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
        )
        self._types = _checked(message_types)
        self._places = {each.DESCRIPTOR: place_of(each.DESCRIPTOR) for each in message_types}

    def _schema_name(self, value: Any) -> str:
        name: str = value.DESCRIPTOR.file.name
        return name

    def _record_name(self, value: Any) -> str | None:
        if not isinstance(value, self._types):
            names = ", ".join(each.DESCRIPTOR.full_name for each in self._types)
            raise TypeError(f"a message of {names} is needed, and {value!r} was given")
        name: str = value.DESCRIPTOR.full_name
        return name

    async def _own_schema(self, value: Any) -> Schema:
        return await self._with_imports(value.DESCRIPTOR.file)

    async def _with_imports(self, file: FileDescriptor) -> Schema:
        """Register, or find, what a file imports. Return its schema, which refers to them."""
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(EVERYWHERE):
                continue
            schema = await self._with_imports(imported)
            if self._auto_register:
                await self._registry.register(imported.name, schema, normalize=self._normalize)
            found = await self._registry.lookup(imported.name, schema, normalize=self._normalize)
            references.append(Reference(imported.name, imported.name, found.version))
        text = base64.b64encode(file.serialized_pb).decode()
        return Schema(text, "PROTOBUF", tuple(references))

    async def _encoder(self, schema: Schema) -> Encode:
        return lambda message: message.SerializeToString()

    def _indexes(self, value: Any) -> tuple[int, ...]:
        return self._places[value.DESCRIPTOR]


class ProtobufDeserializer(SchemaDeserializer[MessageType], Generic[MessageType]):
    """A deserializer that returns messages of given classes, or of classes made for schemas."""

    has_indexes: ClassVar[bool] = True

    def __init__(self, registry: SchemaRegistry, *message_types: type[MessageType]) -> None:
        """Make a deserializer of messages of these classes, which are found by their full names.

        Without classes, a message has a class that is made for the schema of its writer.
        """
        super().__init__(registry)
        self._types = {each.DESCRIPTOR.full_name: each for each in _checked(message_types)}

    async def _decoder(self, framed: Framed) -> Decode:
        schema = await self._registry.schema(framed.schema, format="serialized")
        if schema.type != "PROTOBUF":
            raise ValueError(f"its type is {schema.type}, and not PROTOBUF")
        message_type = await self._class_of(schema, framed.indexes or (0,))

        def decode(payload: bytes) -> Any:
            message = message_type()
            message.ParseFromString(payload)
            return message

        return decode

    async def _class_of(self, schema: Schema, place: tuple[int, ...]) -> Any:
        """Return the class of the messages at a place of a schema's file."""
        try:
            references = await self._registry.references(schema, format="serialized")
            descriptor = _message_at(_file(schema, references), place)
        except NoDescriptor:
            same = [each for each in self._types.values() if place_of(each.DESCRIPTOR) == place]
            if len(same) != 1:
                raise
            return same[0]
        found = self._types.get(descriptor.full_name)
        if found is None and self._types:
            raise ValueError(
                f"its message is {descriptor.full_name}, and the program has given "
                f"{', '.join(self._types)}"
            )
        return found or GetMessageClass(descriptor)


def _checked(given: tuple[type[MessageType], ...]) -> tuple[type[MessageType], ...]:
    for each in given:
        if not isinstance(each, type) or not issubclass(each, Message):
            raise ValueError(f"a class of messages is needed, and {each!r} was given")
    return given


class NoDescriptor(ValueError):
    """A registry has returned the text of a file, which Google's library cannot read."""


def place_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Return the place of a message in its file: the index in each message around it."""
    outer = descriptor.containing_type
    if outer is not None:
        siblings = [each.name for each in outer.nested_types]
        return (*place_of(outer), siblings.index(descriptor.name))
    file = FileDescriptorProto.FromString(descriptor.file.serialized_pb)
    return ([each.name for each in file.message_type].index(descriptor.name),)


def _file(schema: Schema, references: dict[str, Schema]) -> FileDescriptor:
    """Return the descriptor of a schema's file, in a pool with all that it imports."""
    pool = DescriptorPool()
    for name, reference in references.items():
        pool.Add(_descriptor(reference, name, pool))
    given = _descriptor(schema, "", pool)
    pool.Add(given)
    return pool.FindFileByName(given.name)


def _descriptor(schema: Schema, name: str, pool: DescriptorPool) -> FileDescriptorProto:
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except Exception as error:
        raise NoDescriptor(
            "the registry returned it as text, and not as a descriptor in base64: it does not have "
            "format=serialized; give the deserializer one class of messages"
        ) from error
    found.name = name or found.name or "default"
    for imported in found.dependency:
        if imported.startswith(EVERYWHERE):
            _add_known(imported, pool)
    return found


def _add_known(name: str, pool: DescriptorPool) -> None:
    """Add a file that every registry has, with its imports, from the module made of it."""
    module = f"{name.removesuffix('.proto').replace('/', '.')}_pb2"
    try:
        file: FileDescriptor = importlib.import_module(module).DESCRIPTOR
    except ImportError as error:
        raise ValueError(f"its file imports {name}, and {module} is not installed") from error
    for imported in file.dependencies:
        _add_known(imported.name, pool)
    pool.Add(FileDescriptorProto.FromString(file.serialized_pb))


def _message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Return the message at a place of a file. Raises ValueError if there is none."""
    proto = FileDescriptorProto.FromString(file.serialized_pb)
    messages = [file.message_types_by_name[each.name] for each in proto.message_type]
    found: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"its file {file.name} has no message at {list(indexes)}")
        found = messages[index]
        messages = list(found.nested_types)
    assert found is not None
    return found
