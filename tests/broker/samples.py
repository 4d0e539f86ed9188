"""One small valid message of every API and version, made from the declarations."""

from dataclasses import fields
from typing import Any, Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import FieldType

SIMPLE: Final[dict[str, Any]] = {
    "bool": False,
    "string": "s",
    "bytes": b"b",
    "uuid": UUID(int=7),
    "float64": 1.0,
}


def sample(cls: type[Any], version: int) -> Any:
    """An instance with every field of the version set, arrays with one item."""
    values = {}
    for declared in fields(cls):
        kind: FieldType = declared.metadata["type"]
        if kind.is_in(version):
            values[declared.name] = _value(kind, version)
    return cls(**values)


def _value(kind: FieldType, version: int) -> Any:
    if kind.kind == "array":
        item: Any = kind.item
        of_primitives = isinstance(item, FieldType)
        return (_value(item, version) if of_primitives else sample(item, version),)
    if kind.kind == "struct":
        assert isinstance(kind.item, type)
        return sample(kind.item, version)
    if kind.kind == "records":
        return bytes(encode_batch([Record(key=None, value=b"v")]))
    return SIMPLE.get(kind.kind, 1)


def request_frame(api: Api[Any, Any], version: int, message: Any = None) -> bytes:
    """A request with its length in front; a sample if no message is given."""
    message = sample(api.request, version) if message is None else message
    _, parts = ClientProtocol("tests").request(api, version, message)
    return b"".join(parts)
