"""How bytes look: Kafka's primitive types and messages as construct objects.

The only importer of construct. `parse` and `build` are the whole of its surface. A frame is read
through a `Cursor` over a memoryview, so that record batches stay views of the frame they came in; a
message is built into `Parts`, so that record batches go to the socket from where they are.

Bounds (a peer's lengths are never believed): a length is at most the bytes that remain, a count at
most the items that could be in them, a varint has at most five bytes, a tagged field at most
128 KiB, tags ascend. Items of arrays and tagged fields, also those inside tagged fields, are taken
from the one budget of the cursor.
"""

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

import construct as c

from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import Buffer as Buffer
from odradek.protocol.schema import FieldType
from odradek.protocol.streams import Cursor as Cursor
from odradek.protocol.streams import Parts as Parts
from odradek.protocol.streams import TooManyItemsError as TooManyItemsError

T = TypeVar("T")

TAGGED_FIELD_MAX_BYTES: Final = 128 * 1024
STRING_MAX_BYTES: Final = 2**15 - 1
"""Kafka's limit, in every version. A length of 16 bits cannot say more, a varint could: a name of
100 MB, say, which would be hashed character by character."""
VARINT_MAX_BYTES: Final = 5


class Wire(c.Construct):
    """A construct on our streams. Nothing takes fewer than `min_bytes`: what bounds a count."""

    min_bytes: int = 1


class Number(Wire):
    """A number of fixed width, big-endian: construct's FormatField on a cursor."""

    def __init__(self, field: c.FormatField) -> None:
        super().__init__()
        packer = struct.Struct(field.fmtstr)
        self.code = field.fmtstr[-1]
        self.unpack_from, self.pack, self.min_bytes = packer.unpack_from, packer.pack, packer.size

    def _parse(self, stream: Cursor, context: Any, path: Any) -> Any:
        position = stream.position
        after = position + self.min_bytes
        if after > stream.end:
            raise ProtocolError(f"the message ends inside a number at byte {position}")
        stream.position = after
        return self.unpack_from(stream.data, position)[0]

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        stream.open += self.pack(obj)
        return obj


class Boolean(Wire):
    def _parse(self, stream: Cursor, context: Any, path: Any) -> bool:
        return stream.byte() != 0

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        stream.open.append(1 if obj else 0)
        return obj


class UnsignedVarint(Wire):
    """Base 128, least significant group first, at most 32 bits."""

    def _parse(self, stream: Cursor, context: Any, path: Any) -> int:
        byte = stream.byte()
        if byte < 0x80:
            return byte
        value = byte & 0x7F
        for shift in range(7, 7 * VARINT_MAX_BYTES, 7):
            byte = stream.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise ProtocolError(f"a varint has more than {VARINT_MAX_BYTES} bytes")

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        value = obj
        while value > 0x7F:
            stream.open.append(value & 0x7F | 0x80)
            value >>= 7
        stream.open.append(value)
        return obj


class Uuid(Wire):
    min_bytes = 16

    def _parse(self, stream: Cursor, context: Any, path: Any) -> uuid.UUID:
        return uuid.UUID(bytes=stream.read(16))

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        stream.open += obj.bytes
        return obj


INT16: Final = Number(c.Int16sb)
INT32: Final = Number(c.Int32sb)
VARINT: Final = UnsignedVarint()
BOOLEAN: Final = Boolean()
PRIMITIVES: Final[dict[str, Wire]] = {
    "bool": BOOLEAN,
    "int8": Number(c.Int8sb),
    "int16": INT16,
    "uint16": Number(c.Int16ub),
    "int32": INT32,
    "uint32": Number(c.Int32ub),
    "int64": Number(c.Int64sb),
    "float64": Number(c.Float64b),
    "uuid": Uuid(),
}


class Lengthed(Wire):
    """What follows its length: -1 is null; in the compact form it is a varint one larger."""

    def __init__(self, length: Wire, bias: int, *, nullable: bool) -> None:
        super().__init__()
        self.length, self.bias, self.nullable = length, bias, nullable
        self.min_bytes = length.min_bytes

    def parse_size(self, stream: Cursor, context: Any, path: Any) -> int | None:
        size: int = self.length._parse(stream, context, path) - self.bias
        if size < 0:
            if size < -1 or not self.nullable:
                raise ProtocolError(f"a length is {size}")
            return None
        if size > stream.end - stream.position:
            raise ProtocolError(f"a length is {size} and {stream.remaining} bytes are left")
        return size

    def build_size(self, size: int | None, stream: Parts, context: Any, path: Any) -> None:
        if size is None and not self.nullable:
            raise TypeError("null in a field that cannot be null in this version")
        self.length._build((-1 if size is None else size) + self.bias, stream, context, path)


class Text(Lengthed):
    def _parse(self, stream: Cursor, context: Any, path: Any) -> str | None:
        size = self.parse_size(stream, context, path)
        if size is None:
            return None
        if size > STRING_MAX_BYTES:
            raise ProtocolError(f"a string has {size} bytes, of at most {STRING_MAX_BYTES}")
        try:
            return str(stream.view(size), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a string is not UTF-8: {error.reason}") from None

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        data = None if obj is None else obj.encode()
        self.build_size(None if data is None else len(data), stream, context, path)
        if data:
            stream.open += data
        return obj


class Records(Lengthed):
    """Bytes that stay where they are, on the way in and on the way out."""

    def _parse(self, stream: Cursor, context: Any, path: Any) -> Any:
        size = self.parse_size(stream, context, path)
        return None if size is None else stream.view(size)

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        self.build_size(None if obj is None else len(obj), stream, context, path)
        if obj:
            stream.attach(obj)
        return obj


class Blob(Records):
    """Bytes that are copied out of the frame, which may then go."""

    def _parse(self, stream: Cursor, context: Any, path: Any) -> Any:
        size = self.parse_size(stream, context, path)
        return None if size is None else stream.read(size)


class Array(Lengthed):
    """Items after their count."""

    def __init__(self, count: Wire, bias: int, item: Wire, *, nullable: bool) -> None:
        super().__init__(count, bias, nullable=nullable)
        self.item = item

    def _parse(self, stream: Cursor, context: Any, path: Any) -> tuple[Any, ...] | None:
        count = self.parse_size(stream, context, path)
        if count is None:
            return None
        if count * self.item.min_bytes > stream.remaining:
            raise ProtocolError(f"{count} items are announced in {stream.remaining} bytes")
        stream.take_items(count)
        parse = self.item._parse
        return tuple([parse(stream, context, path) for _ in range(count)])

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        self.build_size(None if obj is None else len(obj), stream, context, path)
        if obj:
            stream.take_items(len(obj))
            build = self.item._build
            for item in obj:
                build(item, stream, context, path)
        return obj


class NumberArray(Array):
    """Numbers of fixed width after their count, all in one go: partitions come by the thousand."""

    def __init__(self, count: Wire, bias: int, item: Number, *, nullable: bool) -> None:
        super().__init__(count, bias, item, nullable=nullable)
        self.code = item.code

    def _parse(self, stream: Cursor, context: Any, path: Any) -> tuple[Any, ...] | None:
        count = self.parse_size(stream, context, path)
        if count is None:
            return None
        stream.take_items(count)
        return struct.unpack(f">{count}{self.code}", stream.view(count * self.item.min_bytes))

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        self.build_size(None if obj is None else len(obj), stream, context, path)
        if obj:
            stream.take_items(len(obj))
            stream.open += struct.pack(f">{len(obj)}{self.code}", *obj)
        return obj


class Optional(Wire):
    """A struct that may be null: a byte says so, -1 or 1."""

    def __init__(self, item: Wire) -> None:
        super().__init__()
        self.item = item

    def _parse(self, stream: Cursor, context: Any, path: Any) -> Any:
        if stream.byte() > 0x7F:
            return None
        return self.item._parse(stream, context, path)

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        stream.open.append(0xFF if obj is None else 1)
        if obj is not None:
            self.item._build(obj, stream, context, path)
        return obj


class NumberRun(Wire):
    """Fields of fixed width that follow one another in a message: read and written in one go.

    It has no name: it fills the message's fields when it parses and takes the message to build.
    """

    def __init__(self, fields_of: Sequence[tuple[str, Number]]) -> None:
        super().__init__()
        self.names = [name for name, _ in fields_of]
        packer = struct.Struct(">" + "".join(number.code for _, number in fields_of))
        self.unpack_from, self.pack, self.min_bytes = packer.unpack_from, packer.pack, packer.size
        self.values_of = attrgetter(*self.names)

    def _parse(self, stream: Cursor, context: Any, path: Any) -> None:
        position = stream.position
        after = position + self.min_bytes
        if after > stream.end:
            raise ProtocolError(f"the message ends inside a number at byte {position}")
        stream.position = after
        context.update(zip(self.names, self.unpack_from(stream.data, position), strict=True))

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        stream.open += self.pack(*self.values_of(obj))
        return obj


def _runs_joined(parts: Sequence[tuple[str, Wire]]) -> list[tuple[str, Wire]]:
    """The parts of a message, numbers that follow one another joined under an empty name."""
    joined: list[tuple[str, Wire]] = []
    for is_number, group in groupby(parts, key=lambda part: isinstance(part[1], Number)):
        run = list(group)
        if is_number and len(run) > 1:
            numbers = [(name, part) for name, part in run if isinstance(part, Number)]
            joined.append(("", NumberRun(numbers)))
        else:
            joined += run
    return joined


class Message(Wire):
    """The fields of a dataclass that `version` has, then the tagged fields if it is flexible."""

    def __init__(self, cls: type[Any], version: int, flexible: bool) -> None:
        super().__init__()
        self.cls, self.flexible = cls, flexible
        present = [
            (f.name, f.metadata["type"], _default_of(f))
            for f in fields(cls)
            if f.metadata["type"].is_in(version)
        ]
        self.parts = _runs_joined(
            [
                (name, field_wire(kind, version, flexible))
                for name, kind, _ in present
                if kind.tag is None
            ]
        )
        self.min_bytes = sum(part.min_bytes for _, part in self.parts) + (1 if flexible else 0)
        self.tagged = {
            kind.tag: (name, field_wire(kind, version, flexible), default)
            for name, kind, default in sorted(present, key=lambda field: field[1].tag or 0)
            if kind.tag is not None
        }

    def _parse(self, stream: Cursor, context: Any, path: Any) -> Any:
        found: dict[str, Any] = {}
        for name, part in self.parts:
            if name:
                found[name] = part._parse(stream, context, path)
            else:
                part._parse(stream, found, path)
        if self.flexible:
            position = stream.position
            if position < stream.end and not stream.data[position]:
                stream.position = position + 1  # no tagged fields, as nearly always
            else:
                self._parse_tagged(stream, found)
        return self.cls(**found)

    def _parse_tagged(self, stream: Cursor, found: dict[str, Any]) -> None:
        count = VARINT._parse(stream, None, None)
        stream.take_items(count)
        message_end = stream.end
        last = -1
        for _ in range(count):
            tag = VARINT._parse(stream, None, None)
            size = VARINT._parse(stream, None, None)
            if tag <= last:
                raise ProtocolError(f"tag {tag} comes after tag {last}")
            if size > TAGGED_FIELD_MAX_BYTES:
                raise ProtocolError(f"tagged field {tag} has {size} bytes")
            last = tag
            after = stream.position + size
            if after > message_end:
                raise ProtocolError(f"{size} bytes are announced and {stream.remaining} are left")
            if tag in self.tagged:
                name, part, _ = self.tagged[tag]
                # The same cursor, cut short: a copy would have an item budget of its own.
                stream.end = after
                found[name] = part._parse(stream, None, None)
                stream.end = message_end
            stream.position = after

    def _build(self, obj: Any, stream: Parts, context: Any, path: Any) -> Any:
        for name, part in self.parts:
            part._build(getattr(obj, name) if name else obj, stream, context, path)
        if self.flexible:
            if self.tagged:
                self._build_tagged(obj, stream)
            else:
                stream.open.append(0)
        return obj

    def _build_tagged(self, obj: Any, stream: Parts) -> None:
        sent = [
            (tag, part, value)
            for tag, (name, part, default) in self.tagged.items()
            if (value := getattr(obj, name)) != default
        ]
        VARINT._build(len(sent), stream, None, None)
        for tag, part, value in sent:
            content = Parts(items_max=stream.items_left)
            part._build(value, content, None, None)
            stream.items_left = content.items_left
            data = b"".join(content.finish())
            VARINT._build(tag, stream, None, None)
            VARINT._build(len(data), stream, None, None)
            stream.open += data


def _default_of(declared: Any) -> Any:
    if declared.default_factory is not MISSING:
        return declared.default_factory()
    return declared.default


message_wire: Final[Callable[..., Message]] = cache(Message)
"""The wire format of a class at a version, flexible or not, made once."""


def field_wire(kind: FieldType, version: int, flexible: bool) -> Wire:
    nullable = kind.may_be_null(version)
    if kind.kind in PRIMITIVES:
        return PRIMITIVES[kind.kind]
    if kind.kind == "struct":
        assert isinstance(kind.item, type)
        inner = message_wire(kind.item, version, flexible)
        return Optional(inner) if nullable else inner
    bias = 1 if flexible else 0
    if kind.kind == "array":
        item: Wire
        if isinstance(kind.item, FieldType):
            item = field_wire(kind.item, version, flexible)
        else:
            assert kind.item is not None
            item = message_wire(kind.item, version, flexible)
        count = VARINT if flexible else INT32
        if isinstance(item, Number):
            return NumberArray(count, bias, item, nullable=nullable)
        return Array(count, bias, item, nullable=nullable)
    if kind.kind == "string":
        return Text(VARINT if flexible else INT16, bias, nullable=nullable)
    lengthed: Callable[..., Lengthed] = Records if kind.kind == "records" else Blob
    return lengthed(VARINT if flexible else INT32, bias, nullable=nullable)


def parse(cls: type[T], version: int, flexible: bool, data: Buffer | Cursor) -> T:
    """Read one message; bytes after it are left alone, as Kafka does.

    Raises `ProtocolError` for anything that is not such a message.
    """
    cursor = data if isinstance(data, Cursor) else Cursor(data)
    found: T = message_wire(cls, version, flexible)._parse(cursor, None, None)
    return found


def build(obj: object, version: int, flexible: bool, parts: Parts | None = None) -> Parts:
    """Write one message behind what `parts` already has.

    Raises `TypeError`, `struct.error` or `AttributeError` for values that do not fit: our mistake.
    """
    parts = Parts() if parts is None else parts
    message_wire(type(obj), version, flexible)._build(obj, parts, None, None)
    return parts
