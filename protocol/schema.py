"""Declarations of messages: dataclasses whose fields give their wire types and versions.

    @message
    class EndTxnResponse:
        throttle_time_ms: int = int32(default=0)
        error_code: int = int16()
        producer_id: int = int64(since=5, default=-1)

Every specifier takes the same options:

- `since`, `until`: the first and last version that has the field on the wire (both included).
- `nullable`: the first version in which null may be sent; without it null is an error.
- `tag`: the number of a tagged field (KIP-482); it is sent only when it differs from its default.
- `default`: the value of a field that is not sent. A field without a default must be given.

The names, types, versions and defaults are those of Kafka's published schemas, in snake case;
`tests/protocol/test_schemas.py` compares them mechanically.
"""

import uuid as uuid_module
from dataclasses import MISSING, field
from typing import Any, Final, Literal, TypeVar, dataclass_transform

from odradek.late import dataclass

T = TypeVar("T")

LATEST: Final = 32767
"""`until` of a field that has not been removed."""

Kind = Literal[
    "bool",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "float64",
    "uuid",
    "string",
    "bytes",
    "records",
    "struct",
    "array",
]

ZERO_UUID: Final = uuid_module.UUID(int=0)

Buffer = bytes | bytearray | memoryview
"""Bytes: a copy, a buffer or a view."""

Records = Buffer
"""Record batches in the form of the wire: a view of the frame when parsed, any buffer to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """The wire type of a field. `item` is the type of an array's items, or a struct's message."""

    kind: Kind
    item: "FieldType | type[Any] | None" = None
    since: int = 0
    until: int = LATEST
    nullable: int | None = None
    tag: int | None = None
    is_secret: bool = False
    """True for a field whose value no `repr` shows."""

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def may_be_null(self, version: int) -> bool:
        return self.nullable is not None and version >= self.nullable


def _field(default: Any, kind: Kind, item: Any, options: dict[str, Any]) -> Any:
    metadata = {"type": FieldType(kind=kind, item=item, **options)}
    # One instance for all messages: none is ever changed.
    return field(default=default() if isinstance(default, type) else default, metadata=metadata)


def boolean(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "bool", None, options)


def int8(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "int8", None, options)


def int16(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "int16", None, options)


def uint16(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "uint16", None, options)


def int32(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "int32", None, options)


def uint32(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "uint32", None, options)


def int64(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "int64", None, options)


def float64(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "float64", None, options)


def uuid(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "uuid", None, options)


def string(*, default: Any = MISSING, **options: Any) -> Any:
    return _field(default, "string", None, options)


def blob(*, default: Any = MISSING, **options: Any) -> Any:
    """Declare a field of Kafka's `bytes`: short, and copied out of the frame."""
    return _field(default, "bytes", None, options)


def records(*, default: Any = MISSING, **options: Any) -> Any:
    """Declare record batches: a view of the frame when parsed, not copied when built."""
    return _field(default, "records", None, options)


def struct(item: type[Any], *, default: Any = MISSING, **options: Any) -> Any:
    """Declare a nested message. `default=Cls` means an instance of it with all its defaults."""
    return _field(default, "struct", item, options)


def array(item: type[Any] | Kind, *, default: Any = MISSING, **options: Any) -> Any:
    """Declare a tuple of nested messages, or of a primitive that is named by its kind."""
    of = FieldType(kind=item) if isinstance(item, str) else item
    return _field(default, "array", of, options)


def _equals(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.__slots__))


def _repr(self: Any) -> str:
    fields = self.__dataclass_fields__
    values = ", ".join(
        f"{name}={getattr(self, name)!r}"
        for name in self.__slots__
        if not fields[name].metadata["type"].is_secret
    )
    return f"{type(self).__name__}({values})"


_METHODS: Final = {"__eq__": _equals, "__hash__": _hash, "__repr__": _repr}


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        blob,
        records,
        struct,
        array,
    ),
)
def message(cls: type[T]) -> type[T]:
    """Make a class a message: slotted, keyword-only, and frozen for mypy.

    It is not frozen at run time: that would make the constructor three times as slow, and some
    messages are made for every request. All messages share their methods: `dataclass` would
    compile them for each, which for a hundred messages was 55 ms of a broker's start.
    """
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or dataclass would put the signature there, slowly
    made = dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)
    for name, method in _METHODS.items():
        setattr(made, name, method)
    return made
