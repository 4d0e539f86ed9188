"""What the requests and answers of all connections hold in memory, together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Account:
    """Bytes that are taken and given back; there is room while they are below a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def take(self, count: int) -> None:
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        self.used_bytes -= count
        if not self.is_short and self._waiting:
            self._waiting.unpark_all()

    async def room(self) -> None:
        while self.is_short:
            await self._waiting.park()


class Memory(Account):
    """How many bytes of requests and answers all connections hold; above the limit nobody reads.

    Answers, and what they are made of, have the same limit once more by themselves: they go when
    clients take them, but a request that waits for room would not.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.answers = Account(limit_bytes)
        self.parsed = Account(limit_bytes)
        """The objects of requests with many items: only other such requests wait for their room."""

    @asynccontextmanager
    async def reading(self, max_bytes: int) -> AsyncIterator[None]:
        """Read up to `max_bytes` for an answer inside, once there is room for them."""
        await self.answers.room()
        self.answers.take(max_bytes)
        try:
            yield
        finally:
            self.answers.give_back(max_bytes)
