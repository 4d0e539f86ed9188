"""Where a message is read from and written to: what construct asks of a stream, without copies."""

import sys
from typing import Final

from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import Buffer


class TooManyItemsError(ProtocolError):
    """A message has more items than its reader or builder was allowed to take."""

    def __init__(self, items_max: int) -> None:
        super().__init__(f"a message has more than {items_max} items and tagged fields")


class Cursor:
    """A place in a frame: what construct asks of a stream, and `view`, which copies nothing.

    `items_max`: the most items that all arrays and tagged fields together may have. An item may be
    a single byte that becomes an object, with an answer of its own.
    """

    __slots__ = ("data", "end", "items_left", "items_max", "position")

    def __init__(self, data: Buffer, *, items_max: int = sys.maxsize) -> None:
        self.data = memoryview(data)
        self.items_max = self.items_left = items_max
        self.position = 0
        self.end = len(self.data)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def take_items(self, count: int) -> None:
        """Count items before they are read. Raises TooManyItemsError."""
        self.items_left -= count
        if self.items_left < 0:
            raise TooManyItemsError(self.items_max)

    def view(self, size: int) -> memoryview:
        start = self.position
        stop = start + size
        if stop > self.end:
            raise ProtocolError(f"{size} bytes are announced and {self.end - start} are left")
        self.position = stop
        return self.data[start:stop]

    def read(self, size: int) -> bytes:
        return bytes(self.view(size))

    def byte(self) -> int:
        position = self.position
        if position >= self.end:
            raise ProtocolError(f"the message ends at byte {position}, where more was to come")
        self.position = position + 1
        return self.data[position]


class Parts:
    """A message being built: small pieces are gathered, large ones are passed on as they are.

    `items_max`: the most items that all its arrays together may have.
    """

    __slots__ = ("done", "items_left", "items_max", "open")

    INLINE_MAX_BYTES: Final = 4096

    def __init__(self, *, items_max: int = sys.maxsize) -> None:
        self.done: list[Buffer] = []
        self.open = bytearray()
        self.items_max = self.items_left = items_max

    def take_items(self, count: int) -> None:
        """Count items before they are written. Raises TooManyItemsError."""
        self.items_left -= count
        if self.items_left < 0:
            raise TooManyItemsError(self.items_max)

    def write(self, data: Buffer) -> int:
        self.open += data
        return len(data)

    def attach(self, data: Buffer) -> None:
        if len(data) <= self.INLINE_MAX_BYTES:
            self.open += data
        else:
            self.done.append(self.open)
            self.done.append(data)
            self.open = bytearray()

    def finish(self) -> list[Buffer]:
        return [*self.done, self.open] if self.open else self.done
