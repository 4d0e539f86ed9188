"""The kinds of fields: how a generated function reads and writes each.

The only importer of construct. The kinds emit statements into a `FunctionText`; `wire.py` makes
functions of them and says which names the statements may use.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import construct as c

from odradek.protocol.function_text import FunctionText
from odradek.protocol.streams import STRING_MAX_BYTES

packer: Final[Callable[[str], struct.Struct]] = cache(struct.Struct)
"""Return the struct of a format. It is made once."""


class Wire(c.Construct):
    """A construct that emits the statements that read and write it.

    construct's own compiler (`_emitparse`, `_emitbuild`) is not used: it makes one expression of a
    field, with a call or more for each. A value takes at least `min_bytes`, which bounds a count.
    """

    min_bytes: int = 1

    def emit_parse(self, code: FunctionText) -> None:
        """Append the statements that read a value into the local `value`.

        The statements need not check the end before they read: `data[at]` raises IndexError beyond
        it, and `unpack_from` raises struct.error, and both become a ProtocolError. But a slice is
        shortened silently. Compare with `end` before a slice.
        """
        raise NotImplementedError

    def emit_build(self, code: FunctionText, value: str) -> None:
        """Append the statements that write the value of the expression `value`."""
        raise NotImplementedError


class Number(Wire):
    """A number or boolean of fixed width, big-endian: construct's FormatField."""

    def __init__(self, field: c.FormatField) -> None:
        super().__init__()
        self.code, self.min_bytes = field.fmtstr[-1], field.sizeof()

    def emit_parse(self, code: FunctionText) -> None:
        emit_unpack(code, [self], ["value"])

    def emit_build(self, code: FunctionText, value: str) -> None:
        emit_pack(code, [self], [value])


class Uuid(Wire):
    """A UUID. To `struct` it is 16 bytes, so that it joins the numbers around it."""

    code, min_bytes = "16s", 16

    def emit_parse(self, code: FunctionText) -> None:
        emit_unpack(code, [self], ["value"])

    def emit_build(self, code: FunctionText, value: str) -> None:
        emit_pack(code, [self], [value])


Fixed = Number | Uuid
"""The kinds of fixed width. Fields of these kinds in sequence are read and written at once."""


def emit_unpack(code: FunctionText, run: Sequence[Fixed], targets: Sequence[str]) -> None:
    """Append the statements that read a run of fixed width into `targets`."""
    code.line(f"{', '.join(targets)}, = {_packer(code, run)}.unpack_from(data, at)")
    code.line(f"at += {sum(part.min_bytes for part in run)}")
    for part, target in zip(run, targets, strict=True):
        if isinstance(part, Uuid):
            code.line(f"{target} = uuid_of({target})")


def emit_pack(code: FunctionText, run: Sequence[Fixed], values: Sequence[str]) -> None:
    """Append the statement that writes a run of fixed width."""
    sent = [
        f"{value}.bytes" if isinstance(part, Uuid) else value
        for part, value in zip(run, values, strict=True)
    ]
    code.line(f"out += {_packer(code, run)}.pack({', '.join(sent)})")


def _packer(code: FunctionText, run: Sequence[Fixed]) -> str:
    format = "".join(part.code for part in run)
    return code.object("packer_" + format.replace("?", "bool"), packer(">" + format))


class Lengthed(Wire):
    """A value behind its length. -1 is null. The compact form is a varint that is one larger."""

    def __init__(self, number: Number | None, *, nullable: bool) -> None:
        """`number` is how the length is written; None stands for the compact form."""
        super().__init__()
        self.number, self.nullable = number, nullable
        self.min_bytes = 1 if number is None else number.min_bytes

    def emit_content(self, code: FunctionText) -> None:
        """Append the statements that check `size` and read so many bytes or items into `value`."""
        raise NotImplementedError

    def emit_build_content(self, code: FunctionText, value: str) -> None:
        """Append the statements that write the expression `value`, which is not null."""
        raise NotImplementedError

    def emit_parse(self, code: FunctionText) -> None:
        if self.number is None:
            code.line("size = data[at] - 1")
            code.line("at += 1")
            with code.block("if size > 126:"):
                code.line("size, at = read_varint(data, at - 1)")
                code.line("size -= 1")
        else:
            emit_unpack(code, [self.number], ["size"])
        if not self.nullable:
            self.emit_content(code)
            return
        with code.block("if size == -1:"):
            code.line("value = None")
        with code.block("else:"):
            self.emit_content(code)

    def emit_build(self, code: FunctionText, value: str) -> None:
        if not self.nullable:
            self.emit_build_content(code, value)
            return
        code.line(f"value = {value}")
        with code.block("if value is None:"):
            if self.number is None:
                code.line("out.append(0)")
            else:
                emit_pack(code, [self.number], ["-1"])
        with code.block("else:"):
            self.emit_build_content(code, "value")

    def emit_size(self, code: FunctionText, counted: str) -> None:
        """Append the statements that write the length of the expression `counted`."""
        code.line(f"size = len({counted})")
        if self.number is not None:
            emit_pack(code, [self.number], ["size"])
            return
        with code.block("if size < 127:"):
            code.line("out.append(size + 1)")
        with code.block("else:"):
            code.line("write_varint(out, size + 1)")


class Text(Lengthed):
    def emit_content(self, code: FunctionText) -> None:
        code.line("value = ''")  # many texts are empty
        with code.block("if size:"):
            code.line("stop = at + size")
            with code.block(f"if not 0 <= size <= {STRING_MAX_BYTES} or stop > end:"):
                code.line("raise wrong_length(size, end - at)")
            code.line("value = str(data[at:stop], 'utf-8')")
            code.line("at = stop")

    def emit_build_content(self, code: FunctionText, value: str) -> None:
        code.line(f"text = {value}.encode()")
        self.emit_size(code, "text")
        code.line("out += text")


class Records(Lengthed):
    """Bytes that are not copied, neither parsed nor built."""

    value = "data[at:stop]"

    def emit_content(self, code: FunctionText) -> None:
        code.line("stop = at + size")
        with code.block("if size < 0 or stop > end:"):
            code.line("raise wrong_length(size, end - at)")
        code.line(f"value = {self.value}")
        code.line("at = stop")

    def emit_build_content(self, code: FunctionText, value: str) -> None:
        self.emit_size(code, value)
        code.line(f"parts.attach({value})")
        code.line("out = parts.open")


class Blob(Records):
    """Bytes that are copied out of the frame, which may then be freed."""

    value = "bytes(data[at:stop])"


class Array(Lengthed):
    """Items after their count."""

    def __init__(self, number: Number | None, item: Wire, *, nullable: bool) -> None:
        super().__init__(number, nullable=nullable)
        self.item = item

    def emit_content(self, code: FunctionText) -> None:
        with code.block(f"if not 0 <= size * {self.item.min_bytes} <= end - at:"):
            code.line("raise wrong_count(size, end - at)")
        emit_take(code, "size", "cursor.items_max")
        self.emit_items(code)

    def emit_items(self, code: FunctionText) -> None:
        items = code.local("items")
        code.line(f"{items} = []")
        with code.block("for _ in range(size):"):
            self.item.emit_parse(code)
            code.line(f"{items}.append(value)")
        code.line(f"value = tuple({items})")

    def emit_build_content(self, code: FunctionText, value: str) -> None:
        self.emit_size(code, value)
        emit_take(code, "size", "parts.items_max")
        self.emit_build_items(code, value)

    def emit_build_items(self, code: FunctionText, value: str) -> None:
        item = code.local("item")
        with code.block(f"for {item} in {value}:"):
            if code.in_steps:
                code.line("yield 1")
            self.item.emit_build(code, item)


class NumberArray(Array):
    """Numbers after their count, read at once: a request may have thousands of partitions."""

    item: Number

    def emit_items(self, code: FunctionText) -> None:
        code.line(f"value = unpack_from(f'>{{size}}{self.item.code}', data, at)")
        code.line(f"at += size * {self.item.min_bytes}")

    def emit_build_items(self, code: FunctionText, value: str) -> None:
        code.line(f"out += pack(f'>{{size}}{self.item.code}', *{value})")


def emit_take(code: FunctionText, count: str, items_max: str) -> None:
    """Append the statements that take `count` items from the budget."""
    code.line(f"left -= {count}")
    with code.block("if left < 0:"):
        code.line(f"raise TooManyItemsError({items_max})")


class Optional(Wire):
    """A struct that may be null. A byte comes before it: -1 for null, otherwise 1."""

    null = 255
    """What is written for null."""
    is_null = "data[at] > 127"

    def __init__(self, item: Wire) -> None:
        super().__init__()
        self.item = item

    def emit_parse(self, code: FunctionText) -> None:
        with code.block(f"if {self.is_null}:"):
            code.line("at += 1")
            code.line("value = None")
        with code.block("else:"):
            code.line("at += 1")
            self.item.emit_parse(code)

    def emit_build(self, code: FunctionText, value: str) -> None:
        with code.block(f"if {value} is None:"):
            code.line(f"out.append({self.null})")
        with code.block("else:"):
            code.line("out.append(1)")
            self.item.emit_build(code, value)


class TaggedOptional(Optional):
    """A tagged struct that may be null. A varint comes before it: 0 for null, otherwise 1."""

    null = 0
    is_null = "data[at] == 0"


NUMBERS: Final[dict[str, Number]] = {
    "bool": Number(c.FormatField(">", "?")),
    "int8": Number(c.Int8sb),
    "int16": Number(c.Int16sb),
    "uint16": Number(c.Int16ub),
    "int32": Number(c.Int32sb),
    "uint32": Number(c.Int32ub),
    "int64": Number(c.Int64sb),
    "float64": Number(c.Float64b),
}
UUID: Final = Uuid()
