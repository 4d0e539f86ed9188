"""One Avro schema made of several: what it refers to is put in place of its first mention.

fastavro resolves names inside one schema only. A definition may stand once, and later mentions of
its name mean it: so do those in the schemas that were put in.
"""

import json
from collections.abc import Mapping
from typing import Any

from odradek.client.schemas.registered import Schema

NAMED = ("record", "error", "enum", "fixed")


def joined(schema: Schema, references: Mapping[str, Schema]) -> Any:
    """Return an Avro schema, as JSON objects, that refers to nothing outside."""
    texts = {name: parsed(each.text) for name, each in references.items()}
    by_full_name = {_full_name(text, name): text for name, text in texts.items()}
    return _join(parsed(schema.text), "", {**texts, **by_full_name}, set())


def parsed(text: str) -> Any:
    """Return the JSON of a schema; the bare name of a type is one, too. Raises ValueError."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.isidentifier():
            return text
        raise ValueError(f"an Avro schema is JSON, and {text[:60]!r} is not: {error}") from error


def record_name(schema: Any) -> str | None:
    """Return the full name of a schema; None for a type without a name, or several types."""
    if isinstance(schema, dict) and schema.get("type") in NAMED:
        return _full_name(schema, "")
    return schema if isinstance(schema, str) else None


def _full_name(schema: Any, otherwise: str, namespace: str = "") -> str:
    if not isinstance(schema, dict) or "name" not in schema:
        return otherwise
    name: str = schema["name"]
    space = schema.get("namespace", namespace)
    return f"{space}.{name}" if space and "." not in name else name


def _join(part: Any, namespace: str, known: Mapping[str, Any], defined: set[str]) -> Any:
    """Return a part of a schema with definitions in place of the first mentions of names."""
    if isinstance(part, str):
        for name in (f"{namespace}.{part}" if namespace and "." not in part else part, part):
            if name in defined:
                return name
            if name in known:
                return _join(known[name], "", known, defined)
        return part
    if isinstance(part, list):
        return [_join(each, namespace, known, defined) for each in part]
    if not isinstance(part, dict):
        return part
    copy = dict(part)
    if copy.get("type") in NAMED:
        full_name = _full_name(copy, "", namespace)
        if full_name in defined:
            return full_name
        defined.add(full_name)
        namespace = full_name.rpartition(".")[0]
        if "fields" in copy:
            copy["fields"] = [
                {**field, "type": _join(field["type"], namespace, known, defined)}
                for field in copy["fields"]
            ]
        return copy
    for place in ("type", "items", "values"):
        if place in copy:
            copy[place] = _join(copy[place], namespace, known, defined)
    return copy
