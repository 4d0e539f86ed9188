"""Messages as Python functions: one that reads and one that writes each message at each version.

Other modules call `parse` and `build`. The text of a function is generated from the
message's declaration, nested messages included, and compiled when it is first used. To see it:
`print(message_wire(ProduceRequest, 9, True).text_to_parse().source)`.

A message is read from a `Cursor` over a memoryview, so that record batches stay views of the frame
they came in. It is built into `Parts`, so that record batches go to the socket from where they are.

Bounds (a peer's lengths are never trusted): a length is at most the bytes that remain, a count at
most the items that they can hold, a varint has at most five bytes, a tagged field at most 16 MiB,
tags ascend. Items of arrays and tagged fields, also inside tagged fields, are taken from the one
budget of the cursor.
"""

import re
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import MISSING, fields
from functools import cache, cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeVar

from odradek.protocol import streams
from odradek.protocol.function_text import FunctionText
from odradek.protocol.kinds import (
    NUMBERS,
    UUID,
    Array,
    Blob,
    Fixed,
    Number,
    NumberArray,
    Optional,
    Records,
    TaggedOptional,
    Text,
    Wire,
    emit_pack,
    emit_take,
    emit_unpack,
)
from odradek.protocol.schema import Buffer as Buffer
from odradek.protocol.schema import FieldType
from odradek.protocol.streams import Cursor as Cursor
from odradek.protocol.streams import Parts as Parts
from odradek.protocol.streams import TooManyItemsError as TooManyItemsError

T = TypeVar("T")

LOCALS_TO_PARSE: Final = frozenset({"data", "at", "end", "left", "size", "stop", "value"})
"""`data`, a view that ends where the message or the tagged field ends; `at`, the position in it;
`end`, its length; `left`, the items that may still come; `size`, the last length or count; `stop`,
where that many bytes end; `value`, the last value."""

LOCALS_TO_BUILD: Final = frozenset({"out", "left", "size", "text", "value"})
"""`out`, which is `parts.open`; `left`, the items that may still come; `size` and `value`, the
length or count and the value that are written; `text`, a string in UTF-8."""

OBJECTS: Final[dict[str, Any]] = {
    "new": object.__new__,
    "struct_error": struct.error,
    "unpack_from": struct.unpack_from,
    "pack": struct.pack,
    "Parts": Parts,
    "TooManyItemsError": TooManyItemsError,
    "read_varint": streams.read_varint,
    "write_varint": streams.write_varint,
    "read_tag": streams.read_tag,
    "skip_tags": streams.skip_tags,
    "write_tags": streams.write_tags,
    "uuid_of": streams.uuid_of,
    "wrong_length": streams.wrong_length,
    "wrong_count": streams.wrong_count,
    "wrong_bytes": streams.wrong_bytes,
}


class Message(Wire):
    """A message class at a version: its fields, then its tagged fields if it is flexible."""

    def __init__(self, cls: type[Any], version: int, flexible: bool) -> None:
        super().__init__()
        self.cls, self.version, self.flexible = cls, version, flexible
        declared = [(f.name, f.metadata["type"], f.default) for f in fields(cls)]
        present = [
            (name, kind, field_wire(kind, version, flexible))
            for name, kind, _ in declared
            if kind.is_in(version)
        ]
        self.parts = [(name, part) for name, kind, part in present if kind.tag is None]
        self.tagged = sorted(
            ((kind.tag, name, part) for name, kind, part in present if kind.tag is not None),
            key=itemgetter(0),
        )
        self.min_bytes = sum(part.min_bytes for _, part in self.parts) + (1 if flexible else 0)
        read = {name for name, _ in self.parts}
        self.defaults = {name: default for name, _, default in declared if name not in read}

    def runs(self) -> Iterator[tuple[list[str], list[Wire]]]:
        """Yield the names and kinds of untagged fields: runs of fixed width, the others alone."""
        for is_fixed, group in groupby(self.parts, key=lambda part: isinstance(part[1], Fixed)):
            run = list(group)
            for some in [run] if is_fixed else [[part] for part in run]:
                yield [name for name, _ in some], [part for _, part in some]

    def emit_parse(self, code: FunctionText) -> None:
        # Without __init__: its keyword arguments take three times as long as setting the fields.
        made = code.local(_snake_case(self.cls.__name__))
        code.line(f"{made} = new({code.object(self.cls.__name__, self.cls)})")
        for name, default in self.defaults.items():
            assert default is not MISSING, (self.cls, name, self.version)
            code.line(f"{made}.{name} = {_literal(code, default)}")
        for names, run in self.runs():
            targets = [f"{made}.{name}" for name in names]
            if isinstance(run[0], Fixed):
                emit_unpack(code, run, targets)
            else:
                run[0].emit_parse(code)
                code.line(f"{targets[0]} = value")
        if self.flexible:
            with code.block("if data[at]:"):
                self.emit_parse_tags(code, made)
            with code.block("else:"):
                code.line("at += 1")
        code.line(f"value = {made}")

    def emit_parse_tags(self, code: FunctionText, made: str) -> None:
        if not self.tagged:
            code.line("at, left = skip_tags(data, at, left, cursor.items_max)")
            return
        code.line("size, at = read_varint(data, at)")
        emit_take(code, "size", "cursor.items_max")
        tag, after, whole = code.local("tag"), code.local("after"), code.local("whole")
        code.line(f"{tag}, {whole} = -1, data")
        with code.block("for _ in range(size):"):
            code.line(f"{tag}, at, {after} = read_tag(data, at, {tag})")
            for number, name, part in self.tagged:
                with code.block(f"if {tag} == {number}:"):
                    # The view ends with the field. Positions, and the budget of items, go on.
                    code.line(f"data, end = data[:{after}], {after}")
                    part.emit_parse(code)
                    code.line(f"{made}.{name} = value")
                    code.line(f"data, end = {whole}, len({whole})")
            code.line(f"at = {after}")

    def emit_build(self, code: FunctionText, value: str) -> None:
        for names, run in self.runs():
            values = [f"{value}.{name}" for name in names]
            if isinstance(run[0], Fixed):
                emit_pack(code, run, values)
            else:
                run[0].emit_build(code, values[0])
        if self.flexible and self.tagged:
            self.emit_build_tags(code, value)
        elif self.flexible:
            code.line("out.append(0)")

    def emit_build_tags(self, code: FunctionText, value: str) -> None:
        # The length of a tagged field stands before its content, which is therefore built apart.
        tags, outer = code.local("tags"), code.local("outer")
        code.line(f"{tags} = []")
        for number, name, part in self.tagged:
            field = f"{value}.{name}"
            with code.block(f"if {_differs(code, field, self.defaults[name])}:"):
                code.line(f"{outer} = parts")
                code.line("parts = Parts(items_max=parts.items_max)")
                code.line("out = parts.open")
                part.emit_build(code, field)
                code.line(f"{tags}.append(({number}, b''.join(parts.finish())))")
                code.line(f"parts = {outer}")
                code.line("out = parts.open")
        with code.block(f"if {tags}:"):
            code.line(f"write_tags(out, {tags})")
        with code.block("else:"):
            code.line("out.append(0)")

    def text_to_parse(self) -> FunctionText:
        """Return the function that reads a message from a cursor."""
        name = f"parse_{self.cls.__name__}_{self.version}"
        parameters = ["cursor", "context", "path"]
        code = FunctionText(name, parameters, objects=OBJECTS, locals=LOCALS_TO_PARSE)
        code.line("data, at, left = cursor.data, cursor.position, cursor.items_left")
        code.line("end = len(data)")
        with code.block("try:"):
            self.emit_parse(code)
        with code.block("except (IndexError, struct_error, UnicodeDecodeError) as error:"):
            code.line("raise wrong_bytes(error, at) from None")
        code.line("cursor.position, cursor.items_left = at, left")
        code.line("return value")
        return code

    def text_to_build(self, *, in_steps: bool = False) -> FunctionText:
        """Return the function that writes a message behind what parts already has.

        `in_steps`: it is a generator, for which each item of an array is a step.
        """
        name = f"build_{self.cls.__name__}_{self.version}" + ("_in_steps" if in_steps else "")
        parameters = ["message", "parts", "context", "path"]
        code = FunctionText(
            name, parameters, objects=OBJECTS, locals=LOCALS_TO_BUILD, in_steps=in_steps
        )
        if in_steps:
            code.line("yield 1")
        code.line("out, left = parts.open, parts.items_left")
        self.emit_build(code, "message")
        code.line("parts.items_left = left")
        return code

    @cached_property
    def _parse(self) -> Callable[[Cursor, Any, Any], Any]:
        """The function that construct calls to parse."""
        return self.text_to_parse().compile()

    @cached_property
    def _build(self) -> Callable[[Any, Parts, Any, Any], None]:
        """The function that construct calls to build."""
        return self.text_to_build().compile()

    @cached_property
    def build_in_steps(self) -> Callable[[Any, Parts, Any, Any], Generator[int, None, None]]:
        """The generator that builds, of which `build_in_steps` below takes the steps."""
        return self.text_to_build(in_steps=True).compile()


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


def _is_plain(value: object) -> bool:
    """Return True if `repr` gives the expression for `value`."""
    return value is None or value == () or type(value) in (bool, int, str)


def _literal(code: FunctionText, value: object) -> str:
    """Return the expression for a default."""
    return repr(value) if _is_plain(value) else code.object("default", value)


def _differs(code: FunctionText, field: str, default: object) -> str:
    """Return the expression that is true unless `field` has its default."""
    literal = _literal(code, default)
    if _is_plain(default):
        return f"{field} != {literal}"
    # Messages are slow to compare, and most have the very instance that is the default.
    return f"{field} is not {literal} and {field} != {literal}"


message_wire: Final[Callable[..., Message]] = cache(Message)
"""Return the wire format of a class at a version, flexible or not. It is made once."""


def field_wire(kind: FieldType, version: int, flexible: bool) -> Wire:
    nullable = kind.may_be_null(version)
    if kind.kind in NUMBERS:
        return NUMBERS[kind.kind]
    if kind.kind == "uuid":
        return UUID
    if kind.kind == "struct":
        inner = message_wire(kind.item, version, flexible)
        if nullable:
            return Optional(inner) if kind.tag is None else TaggedOptional(inner)
        return inner
    count = None if flexible else NUMBERS["int32"]
    if kind.kind == "array":
        if isinstance(kind.item, FieldType):
            item = field_wire(kind.item, version, flexible)
        else:
            item = message_wire(kind.item, version, flexible)
        array = NumberArray if isinstance(item, Number) else Array
        return array(count, item, nullable=nullable)
    if kind.kind == "string":
        return Text(None if flexible else NUMBERS["int16"], nullable=nullable)
    lengthed = Records if kind.kind == "records" else Blob
    return lengthed(count, nullable=nullable)


def parse(cls: type[T], version: int, flexible: bool, data: Buffer | Cursor) -> T:
    """Read a message. Bytes behind it are ignored, as Kafka does.

    Raises `ProtocolError` for anything that is not such a message.
    """
    cursor = data if isinstance(data, Cursor) else Cursor(data)
    found: T = message_wire(cls, version, flexible)._parse(cursor, None, None)
    return found


def build(obj: object, version: int, flexible: bool, parts: Parts | None = None) -> Parts:
    """Write a message behind what `parts` already has.

    Raises `TypeError`, `struct.error` or `AttributeError` for values that do not fit: our bug.
    """
    parts = Parts() if parts is None else parts
    message_wire(type(obj), version, flexible)._build(obj, parts, None, None)
    return parts


def build_in_steps(
    obj: object, version: int, flexible: bool, parts: Parts | None = None
) -> Generator[int, None, Parts]:
    """Build as `build` does, and yield the number of the next steps: one for each item of an array.

    For a message whose arrays may be so long that others should run in between.
    """
    parts = Parts() if parts is None else parts
    yield from message_wire(type(obj), version, flexible).build_in_steps(obj, parts, None, None)
    return parts
