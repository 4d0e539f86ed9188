"""Count what the requests and answers of all connections hold in memory, and grant more of it.

- The first `OWN_BYTES` that a connection holds are its own: it takes them without asking, whatever
  others hold. So a small request is always read and answered.
- What it holds beyond that comes from a pool that all connections share. While the pool is used up,
  a connection that needs more waits: a large request is not read on, a large answer is not made.
- An answer that may be smaller than what was asked for (Fetch) gets at most a quarter of what is
  left of the pool. Each one leaves three quarters to the others, so that readers alone, however
  many and however slow, do not use it up. What a connection waits for is not given to readers: so
  a large answer gets its room, however busy the readers are.
- The objects of a request with many items have an account of their own, as large as the pool.
- While a connection waits, the server ends long polls of large requests and closes connections that
  make no use of what they hold (`server.py`), first those that have cost most: bytes times seconds.
  A connection that itself waits for more is a candidate, too: otherwise two that hold half of the
  pool each, and want more than half, would wait for each other for ever.
- A connection that holds all of the pool gets room for what its one request needs, as nobody else
  could give it back, and its next request waits until an answer has gone.

The bound is therefore twice the pool, `OWN_BYTES` for each connection, and what the last request
that was given room takes beyond it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Final, NamedTuple

import trio

from odradek.broker.values.histogram import Histogram

OWN_BYTES: Final = 64 * 1024
ANSWERS_PER_POOL: Final = 4
"""The part of what is left that an answer gets at most if it may be smaller than asked for."""


class Account:
    """Bytes that are taken and given back; there is room while they are below a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    @property
    def is_wanted(self) -> bool:
        """Return True if a task waits for room."""
        return bool(self._waiting)

    def take(self, count: int) -> None:
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        self.used_bytes -= count
        assert self.used_bytes >= 0, (self.used_bytes, count)
        if not self.is_short and self._waiting:
            self._waiting.unpark_all()

    async def room(self) -> None:
        while self.is_short:
            await self._waiting.park()


class _Wait(NamedTuple):
    woken: trio.Event
    bytes: int
    since: float


class Memory:
    """The pool, and the shares of all connections in it."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.parsed = Account(limit_bytes)
        """The objects of requests with many items: only other such requests wait for their room."""
        self.waits: Final = Histogram()
        """How long connections have waited for room."""
        self._waiting: dict[Share, _Wait] = {}

    @property
    def left_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)

    @property
    def wanted_bytes(self) -> int:
        """Return the largest number of bytes that a connection waits for."""
        return max(wait.bytes for wait in self._waiting.values()) if self._waiting else 0

    @property
    def missing_bytes(self) -> int:
        """Return the bytes to give back until the largest wait ends; 0 if no connection waits."""
        return max(0, self.wanted_bytes - self.left_bytes)

    def take(self, count: int) -> None:
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        self.used_bytes -= count
        assert self.used_bytes >= 0, (self.used_bytes, count)
        if count and self._waiting:
            self._wake_first()

    def _wake_first(self) -> None:
        """Wake the longest waits that fit into what is left: thousands may wait."""
        left_bytes = self.left_bytes
        for wait in self._waiting.values():
            if wait.bytes <= left_bytes:
                wait.woken.set()
                left_bytes -= wait.bytes

    async def wait(self, share: "Share", wanted_bytes: int) -> None:
        """Return when something was given back, to the pool or by the share itself."""
        assert share not in self._waiting, "only one task of a connection waits at a time"
        wait = self._waiting[share] = _Wait(trio.Event(), wanted_bytes, trio.current_time())
        try:
            await wait.woken.wait()
        finally:
            del self._waiting[share]
            self.waits.note(trio.current_time() - wait.since)
            # It may take less than it waited for, or nothing if it was cancelled.
            self._wake_first()

    def waiting_since(self, share: "Share") -> float:
        """Return the time of trio's clock, infinity if it does not wait."""
        wait = self._waiting.get(share)
        return inf if wait is None else wait.since

    def wake(self, share: "Share") -> None:
        if self._waiting and share in self._waiting:
            self._waiting[share].woken.set()


class Share:
    """The memory that one connection holds. Only its reader waits for more."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.held_bytes = 0

    @property
    def own_bytes(self) -> int:
        """Return how many more bytes it may hold without asking."""
        return max(0, OWN_BYTES - self.held_bytes)

    @property
    def pool_bytes(self) -> int:
        """Return how many bytes of the pool it holds."""
        return max(0, self.held_bytes - OWN_BYTES)

    @property
    def waiting_since(self) -> float:
        """Return since when a task of the connection waits in `room`; infinity if none does."""
        return self._memory.waiting_since(self)

    def hold(self, count: int) -> None:
        assert count >= 0, count
        before = self.held_bytes
        after = self.held_bytes = before + count
        if after > OWN_BYTES:
            self._memory.take(after - max(before, OWN_BYTES))

    def release(self, count: int) -> None:
        before = self.held_bytes
        after = self.held_bytes = before - count
        assert after >= 0, after
        if before > OWN_BYTES:
            self._memory.give_back(before - max(after, OWN_BYTES))
        self._memory.wake(self)

    def release_all(self) -> None:
        self.release(self.held_bytes)

    async def room(self, count: int) -> None:
        """Return when `count` more bytes may be held, or when no other connection has any.

        There is no checkpoint between the last look and the return.
        """
        memory = self._memory
        while count > OWN_BYTES - self.held_bytes:
            most_bytes = memory.limit_bytes - self.pool_bytes
            wanted_bytes = max(0, min(count - self.own_bytes, most_bytes))
            # invariant bounds 1: No client can take more memory than the settings allow.
            # tests/broker/server/test_connection_memory.py
            if wanted_bytes <= memory.left_bytes:
                return
            await memory.wait(self, wanted_bytes)

    async def wait_changed(self) -> None:
        """Wait for a byte of the pool, or until the connection itself gives something back."""
        await self._memory.wait(self, 1)

    @asynccontextmanager
    async def reading(self, max_bytes: int, least_bytes: int = 0) -> AsyncIterator[int]:
        """Hold room inside for an answer that may be smaller; enter with its largest size in bytes.

        Waits until there is room for `least_bytes`.
        """
        await self.room(least_bytes)
        memory = self._memory
        spare_bytes = memory.limit_bytes - memory.used_bytes - memory.wanted_bytes
        fair_bytes = max(OWN_BYTES - self.held_bytes, spare_bytes // ANSWERS_PER_POOL, 0)
        granted = max(least_bytes, min(max_bytes, fair_bytes))
        self.hold(granted)
        try:
            yield granted
        finally:
            self.release(granted)
