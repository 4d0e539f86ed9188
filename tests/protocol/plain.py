"""Messages as plain constructs: the declarations once more, read and written field by field.

The specification of what the generated functions do, but for the bounds: construct's own types,
nothing joined or inlined.
"""

from dataclasses import fields
from typing import Any, Final

import construct as c

from odradek.protocol.schema import FieldType

NUMBERS: Final[dict[str, Any]] = {
    "bool": c.Flag,
    "int8": c.Int8sb,
    "int16": c.Int16sb,
    "uint16": c.Int16ub,
    "int32": c.Int32sb,
    "uint32": c.Int32ub,
    "int64": c.Int64sb,
    "float64": c.Float64b,
    "uuid": c.Bytes(16),
}
COMPACT: Final = c.ExprAdapter(c.VarInt, c.obj_ - 1, c.obj_ + 1)
TAGS: Final = c.PrefixedArray(c.VarInt, c.Sequence(c.VarInt, c.Prefixed(c.VarInt, c.GreedyBytes)))
"""Tags and their contents."""


def message_construct(cls: Any, version: int, flexible: bool) -> Any:
    declared = [
        field.name / field_construct(field.metadata["type"], version, flexible)
        for field in fields(cls)
        if field.metadata["type"].is_in(version) and field.metadata["type"].tag is None
    ]
    return c.Struct(*declared, *(["tags" / TAGS] if flexible else []))


def field_construct(kind: FieldType, version: int, flexible: bool) -> Any:
    item: Any = kind.item
    if kind.kind in NUMBERS:
        return NUMBERS[kind.kind]
    if kind.kind == "struct":
        inner = message_construct(item, version, flexible)
        if not kind.may_be_null(version):
            return inner
        there = c.Rebuild(c.Int8sb, lambda context: -1 if context.content is None else 1)
        return _null_if(c.this.before < 0, there, inner)
    before: Any = COMPACT if flexible else c.Int16sb if kind.kind == "string" else c.Int32sb
    size = c.Rebuild(before, lambda ctx: -1 if ctx.content is None else len(ctx.content))
    if kind.kind != "array":
        return _null_if(c.this.before < 0, size, c.Bytes(c.this.before))
    if isinstance(item, FieldType):
        element = field_construct(item, version, flexible)
    else:
        element = message_construct(item, version, flexible)
    return _null_if(c.this.before < 0, size, c.Array(c.this.before, element))


def _null_if(is_null: Any, before: Any, content: Any) -> Any:
    return c.FocusedSeq(
        "content",
        "before" / before,
        "content" / c.IfThenElse(is_null, c.Computed(None), content),
    )


def values_of(message: Any, version: int, flexible: bool) -> dict[str, Any]:
    """Return what a plain construct reads and writes for a message."""
    found: dict[str, Any] = {}
    tags = []
    for field in fields(message):
        kind: FieldType = field.metadata["type"]
        value = getattr(message, field.name)
        if not kind.is_in(version):
            continue
        if kind.tag is None:
            found[field.name] = value_of(value, kind, version, flexible)
        elif value != field.default:
            content = value_of(value, kind, version, flexible)
            tags.append([kind.tag, field_construct(kind, version, flexible).build(content)])
    return found | {"tags": sorted(tags)} if flexible else found


def value_of(value: Any, kind: FieldType, version: int, flexible: bool) -> Any:
    item: Any = kind.item
    if value is None:
        return None
    if kind.kind == "struct":
        return values_of(value, version, flexible)
    if kind.kind == "array" and isinstance(item, FieldType):
        return [value_of(element, item, version, flexible) for element in value]
    if kind.kind == "array":
        return [values_of(element, version, flexible) for element in value]
    if kind.kind == "uuid":
        return value.bytes
    return value.encode() if kind.kind == "string" else value
