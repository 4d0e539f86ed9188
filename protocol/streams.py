"""The two ends of a message on the wire, and what generated functions call.

A generated function (`wire.py`) reads and writes the common forms itself. It calls a function of
this module for the rare ones: varints of several bytes, tagged fields, and lengths that are wrong.
"""

import struct
import sys
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import Buffer

TAGGED_FIELD_MAX_BYTES: Final = 16 * 1024 * 1024
"""The 10,000 members of a transaction group are one field."""
STRING_MAX_BYTES: Final = 2**15 - 1
"""Kafka's limit, in every version. A length of 16 bits has no larger value, but a varint has, and
a name of 100 MB would be hashed."""
VARINT_MAX_BYTES: Final = 5
UUIDS_KEPT: Final = 4096
"""Topic ids that are kept by their bytes. Most requests name a topic that an earlier one has named,
and a UUID takes 1 to 2 microseconds to make."""


class TooManyItemsError(ProtocolError):
    """A message has more items than its reader or builder was allowed to take."""

    def __init__(self, items_max: int) -> None:
        super().__init__(f"a message has more than {items_max} items and tagged fields")


class Cursor:
    """A position in a frame, and the items that may still be read from it.

    `items_max`: the most items that all arrays and tagged fields together may have. The limit is
    there because a single byte may be an item, which becomes an object with an answer of its own.
    """

    __slots__ = ("data", "items_left", "items_max", "position")

    def __init__(self, data: Buffer, *, items_max: int = sys.maxsize) -> None:
        self.data = memoryview(data)
        self.items_max = self.items_left = items_max
        self.position = 0

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def view(self, size: int) -> memoryview:
        """Return a view of the next `size` bytes, and move behind them."""
        start = self.position
        stop = start + size
        if stop > len(self.data):
            raise ProtocolError(f"{size} bytes are announced and {self.remaining} are left")
        self.position = stop
        return self.data[start:stop]


class Parts:
    """A message being built: small pieces are gathered, large ones are not copied.

    `items_max`: the most items that all its arrays together may have.
    """

    __slots__ = ("done", "items_left", "items_max", "open")

    INLINE_MAX_BYTES: Final = 4096

    def __init__(self, *, items_max: int = sys.maxsize) -> None:
        self.done: list[Buffer] = []
        self.open = bytearray()
        self.items_max = self.items_left = items_max

    def attach(self, data: Buffer) -> None:
        """Append `data`. `open` may be another buffer afterwards."""
        if len(data) <= self.INLINE_MAX_BYTES:
            self.open += data
        else:
            self.done.append(self.open)
            self.done.append(data)
            self.open = bytearray()

    def finish(self) -> list[Buffer]:
        return [*self.done, self.open] if self.open else self.done


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at`, at most 32 bits, and the position behind it.

    Base 128, least significant group first. Raises IndexError at the end of `data`.
    """
    value = 0
    for shift in range(0, 7 * VARINT_MAX_BYTES, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, at
    raise ProtocolError(f"a varint has more than {VARINT_MAX_BYTES} bytes")


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_tag(data: memoryview, at: int, last: int) -> tuple[int, int, int]:
    """Return the tag of the tagged field at `at`, and where its content begins and ends.

    `last` is the tag before it, or -1. Raises IndexError at the end of `data`.
    """
    tag, at = read_varint(data, at)
    size, at = read_varint(data, at)
    if tag <= last:
        raise ProtocolError(f"tag {tag} comes after tag {last}")
    if size > TAGGED_FIELD_MAX_BYTES:
        raise ProtocolError(f"tagged field {tag} has {size} bytes")
    if at + size > len(data):
        raise ProtocolError(f"{size} bytes are announced and {len(data) - at} are left")
    return tag, at, at + size


def skip_tags(data: memoryview, at: int, items_left: int, items_max: int) -> tuple[int, int]:
    """Skip tagged fields of which none is known. Return the position and the items left."""
    count, at = read_varint(data, at)
    if count > items_left:
        raise TooManyItemsError(items_max)
    tag = -1
    for _ in range(count):
        tag, _, at = read_tag(data, at, tag)
    return at, items_left - count


def write_tags(out: bytearray, tags: Sequence[tuple[int, bytes]]) -> None:
    """Append tagged fields, each its tag and its content, in the order of the tags."""
    write_varint(out, len(tags))
    for tag, content in tags:
        write_varint(out, tag)
        write_varint(out, len(content))
        out += content


@lru_cache(maxsize=UUIDS_KEPT)
def uuid_of(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def wrong_length(size: int, remaining: int) -> ProtocolError:
    """Return the error for the length of a string or of bytes."""
    if size < 0:
        return ProtocolError(f"a length is {size}")
    if size > remaining:
        return ProtocolError(f"a length is {size} and {remaining} bytes are left")
    return ProtocolError(f"a string has {size} bytes, of at most {STRING_MAX_BYTES}")


def wrong_count(count: int, remaining: int) -> ProtocolError:
    """Return the error for the count of an array."""
    if count < 0:
        return ProtocolError(f"a length is {count}")
    return ProtocolError(f"{count} items are announced in {remaining} bytes")


def wrong_bytes(error: Exception, at: int) -> ProtocolError:
    """Return the error for a message that raised `error` at byte `at`, or behind it."""
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"a string is not UTF-8: {error.reason}")
    if isinstance(error, struct.error):
        return ProtocolError(f"the message ends inside a number at byte {at}")
    return ProtocolError(f"the message ends at byte {at}, where more was to come")
