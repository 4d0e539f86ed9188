"""Deadlines of many things, kept by one task.

A group has a deadline for every member's session, one for its join phase and one for its sync
phase; a heartbeat moves one of them. So moving a deadline further away only changes a dictionary:
the entry in the heap is left where it is and looked at again when its time has come.
"""

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NoReturn

import trio


@dataclass(slots=True)
class _Due:
    at: float
    call: Callable[[], None]


@dataclass(slots=True)
class Timers:
    """Calls functions when their time has come; deadlines are in trio's time, never wall clock."""

    _due: dict[Hashable, _Due] = field(default_factory=dict)
    _heap: list[tuple[float, int, Hashable]] = field(default_factory=list)
    _looked_at: dict[Hashable, float] = field(default_factory=dict)
    """When the heap will come to a key, the earliest if there are several entries."""
    _count: int = 0
    _sooner: trio.Event = field(default_factory=trio.Event)

    def schedule(self, key: Hashable, after_ms: float, call: Callable[[], None]) -> None:
        """Call `call` in `after_ms`, in place of what was scheduled under `key`."""
        at = trio.current_time() + after_ms / 1000
        self._due[key] = _Due(at, call)
        if key not in self._looked_at or at < self._looked_at[key]:
            self._push(key, at)

    def cancel(self, key: Hashable) -> None:
        self._due.pop(key, None)

    def _push(self, key: Hashable, at: float) -> None:
        if not self._heap or at < self._heap[0][0]:
            self._sooner.set()
        self._looked_at[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))

    async def run(self) -> NoReturn:
        """Serve until cancelled. Equal deadlines are met in the order in which they were made."""
        while True:
            self._sooner = trio.Event()
            self._call_due()
            timeout = self._heap[0][0] - trio.current_time() if self._heap else float("inf")
            with trio.move_on_after(max(timeout, 0)):
                await self._sooner.wait()

    def _call_due(self) -> None:
        now = trio.current_time()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._looked_at.get(key) != at:
                continue  # moved to an earlier time once, so there was another entry
            del self._looked_at[key]
            due = self._due.get(key)
            if due is None:
                continue
            if due.at > now:
                self._push(key, due.at)
            else:
                del self._due[key]
                due.call()
