"""Confluent's wire format, in which a record names its schema.

- A byte 0, and the id of the schema in four bytes, big-endian, stand before the encoded value.
- In Protobuf the place of the message in its file comes next, as zigzag varints: the number of
  indexes and each of them. The first message of a file, [0], is one byte 0.
- Newer serializers may name the schema by a GUID instead: a byte 1 and 16 bytes, before the value
  or in the header `__key_schema_id` or `__value_schema_id`. These are read, and not written.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.serialization import SerializationContext

BY_ID: Final = 0
BY_GUID: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17
INDEXES_MAX: Final = 1000
"""More levels of messages than a program has: bytes that are no list of indexes."""


class NotFramed(ValueError):
    """The bytes do not name a schema in this format."""


class Framed(NamedTuple):
    """An encoded value and the name of its schema."""

    schema: int | UUID
    payload: bytes
    indexes: tuple[int, ...] | None = None
    """The place of the message in its file, with Protobuf only."""


def frame(schema_id: int, payload: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """Return an encoded value behind the id of its schema."""
    place = b"" if indexes is None else write_indexes(indexes)
    return struct.pack(">bI", BY_ID, schema_id) + place + payload


def unframe(given: bytes, context: SerializationContext, *, has_indexes: bool = False) -> Framed:
    """Return the value in `given`, and the name of its schema. Raises `NotFramed`."""
    header = dict(context.headers).get(f"__{context.field}_schema_id")
    if header is not None:
        named, rest = _name(header)
        indexes = _read_indexes(rest)[0] if has_indexes else None
        return Framed(named, given, indexes)
    named, rest = _name(given)
    if not has_indexes:
        return Framed(named, rest)
    read, payload = _read_indexes(rest)
    return Framed(named, payload, read)


def _name(given: bytes) -> tuple[int | UUID, bytes]:
    """Return the name of a schema at the beginning of some bytes, and the rest of them."""
    if given[:1] == bytes([BY_ID]) and len(given) >= ID_BYTES:
        return int.from_bytes(given[1:ID_BYTES]), given[ID_BYTES:]
    if given[:1] == bytes([BY_GUID]) and len(given) >= GUID_BYTES:
        return UUID(bytes=given[1:GUID_BYTES]), given[GUID_BYTES:]
    raise NotFramed(
        f"it begins with {given[:ID_BYTES]!r}, and not with a byte 0 and the id of a schema: its "
        f"producer has used another serializer"
    )


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the place of a message in its file."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_write_varint, (len(indexes), *indexes)))


def _read_indexes(given: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the place of a message, and the bytes behind it."""
    count, offset = _read_varint(given, 0)
    if count == 0:
        return (0,), given[offset:]
    if not 0 < count <= INDEXES_MAX:
        raise NotFramed(f"{count} cannot be the number of indexes of a message")
    indexes = []
    for _ in range(count):
        index, offset = _read_varint(given, offset)
        indexes.append(index)
    return tuple(indexes), given[offset:]


def _write_varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    written = bytearray()
    while zigzag > 0x7F:
        written.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    written.append(zigzag)
    return bytes(written)


def _read_varint(given: bytes, offset: int) -> tuple[int, int]:
    zigzag = 0
    for shift in range(0, 70, 7):
        if offset >= len(given):
            break
        byte = given[offset]
        offset += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), offset
    raise NotFramed("the place of the message in its file is cut off")
