"""Kafka's published message schemas, compared with the declarations here.

The kafka-python wheel has the schemas as JSON with comments. `differences` lists, version by
version, where a declaration differs.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from importlib import resources
from typing import Any, Final

from odradek.protocol.schema import LATEST, ZERO_UUID, FieldType
from odradek.protocol.state_topics import OWN_TAGS_FROM
from tests.protocol import group_schemas

Json = Mapping[str, Any]
REQUIRED: Final = "required"  # a declared field without a default
PRIMITIVE_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "float64": 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One field at one version. `fields` are those of its struct, if it is or holds one."""

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object
    has_explicit_default: bool
    fields: tuple["Shape", ...]


def load_published(name: str) -> dict[str, Any]:
    """Return the schema `name`, with its common structs inserted where they are used."""
    if name in group_schemas.APIS:
        return group_schemas.APIS[name]
    file = resources.files("kafka.protocol.schemas.resources").joinpath(f"{name}.json")
    schema: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", file.read_text()))
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    _put_common_structs(schema["fields"], structs)
    return schema


def _put_common_structs(declared: list[dict[str, Any]], structs: Json) -> None:
    for field in declared:
        common = structs.get(field["type"].removeprefix("[]"))
        if common is not None:
            field["fields"] = common
        _put_common_structs(field.get("fields", []), structs)


def version_range(text: str | None) -> tuple[int, int]:
    """Return first and last version of "3", "0-4", "2+" or "none" (an empty range)."""
    if text is None or text == "none":
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), LATEST
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def flexible_from(schema: Json) -> int:
    """Return the first flexible version; without one, LATEST."""
    first, last = version_range(schema["flexibleVersions"])
    return LATEST if last < first else first


def has(text: str | None, version: int) -> bool:
    first, last = version_range(text)
    return first <= version <= last


def snake_case(name: str) -> str:
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


def published_shapes(declared: Sequence[Json], version: int) -> Iterator[Shape]:
    for field in declared:
        if not has(field.get("versions", field.get("taggedVersions")), version):
            continue
        kind = field["type"].removeprefix("[]")
        is_array = field["type"].startswith("[]")
        children = tuple(published_shapes(field.get("fields", ()), version))
        is_tagged = has(field.get("taggedVersions"), version)
        yield Shape(
            name=snake_case(field["name"]),
            kind="struct" if field.get("fields") else kind,
            is_array=is_array,
            is_nullable=has(field.get("nullableVersions"), version),
            tag=field["tag"] if is_tagged else None,
            default=_published_default(field, kind, is_array),
            has_explicit_default="default" in field,
            fields=children,
        )


def _published_default(field: Json, kind: str, is_array: bool) -> object:
    text = field.get("default")
    if text == "null":
        return None
    if is_array:
        return ()
    if field.get("fields"):
        return {shape.name: shape.default for shape in published_shapes(field["fields"], LATEST)}
    if kind == "bool":
        return str(text).lower() == "true"
    if kind in PRIMITIVE_DEFAULTS:
        return text if text is not None else PRIMITIVE_DEFAULTS[kind]
    return 0 if text is None else int(str(text), 0)


def our_shapes(cls: type[Any], version: int) -> Iterator[Shape]:
    """Return the shapes of a declaration, without Odradek's own tagged fields."""
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        if not kind.is_in(version) or (kind.tag is not None and kind.tag >= OWN_TAGS_FROM):
            continue
        item = kind.item.kind if isinstance(kind.item, FieldType) else kind.item
        if kind.kind not in ("array", "struct"):
            item = kind.kind
        children = tuple(our_shapes(item, version)) if isinstance(item, type) else ()
        yield Shape(
            name=declared.name,
            kind="struct" if isinstance(item, type) else str(item),
            is_array=kind.kind == "array",
            is_nullable=kind.may_be_null(version),
            tag=kind.tag,
            default=_our_default(declared),
            has_explicit_default=False,
            fields=children,
        )


def _our_default(declared: "Field[Any]") -> object:
    default: Any = declared.default
    if is_dataclass(default):
        return {field.name: getattr(default, field.name) for field in fields(default)}
    return REQUIRED if default is MISSING else default


def differences(schema: Json, cls: type[Any], versions: Sequence[int]) -> list[str]:
    """Describe the differences between `cls` and `schema` in each version."""
    found: list[str] = []
    for version in versions:
        published = tuple(published_shapes(schema["fields"], version))
        ours = tuple(our_shapes(cls, version))
        found += _compare(f"{schema['name']} v{version}", published, ours)
    return found


def _compare(where: str, published: Sequence[Shape], ours: Sequence[Shape]) -> Iterator[str]:
    # On the wire, tagged fields follow the other fields, in the order of their tags.
    expected_names = [shape.name for shape in published if shape.tag is None]
    names = [shape.name for shape in ours if shape.tag is None]
    if names != expected_names:
        yield f"{where}: fields {names}, published {expected_names}"
    expected_tags = {shape.tag: shape.name for shape in published if shape.tag is not None}
    tags = {shape.tag: shape.name for shape in ours if shape.tag is not None}
    if tags != expected_tags:
        yield f"{where}: tags {tags}, published {expected_tags}"
    by_name = {shape.name: shape for shape in ours}
    for shape in published:
        if shape.name in by_name:
            yield from _compare_field(f"{where}: {shape.name}", shape, by_name[shape.name])


def _compare_field(where: str, published: Shape, ours: Shape) -> Iterator[str]:
    for aspect in ("kind", "is_array", "is_nullable"):
        if getattr(published, aspect) != getattr(ours, aspect):
            yield f"{where}: {aspect} {getattr(ours, aspect)}, not {getattr(published, aspect)}"
    if ours.default == REQUIRED:
        if published.has_explicit_default or published.tag is not None:
            yield f"{where}: no default, published {published.default!r}"
    elif ours.default != published.default or type(ours.default) is not type(published.default):
        yield f"{where}: default {ours.default!r}, published {published.default!r}"
    yield from _compare(where, published.fields, ours.fields)
