"""Callbacks of one partition that wait until what is below an offset counts, or is on disk."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

import trio

CALLBACKS_AT_ONCE: Final = 50
"""Callbacks between two turns of the loop. Each may build a small answer and send it."""


class Waiters:
    """The callbacks of one partition. `reached` says whether everything below an offset counts."""

    def __init__(self, reached: Callable[[int], bool]) -> None:
        self._reached = reached
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._due: deque[Callable[[], None]] = deque()
        self._numbers = count()

    def add(self, next_offset: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, when everything below `next_offset` counts or cannot any more."""
        heappush(self._waiting, (next_offset, next(self._numbers), callback))
        if self._reached(next_offset):
            trio.lowlevel.current_trio_token().run_sync_soon(self.release)

    def release(self) -> None:
        """Call back those whose offsets count, some of them in this turn of the loop."""
        waiting, due = self._waiting, self._due
        for _ in range(CALLBACKS_AT_ONCE):
            if due:
                due.popleft()()
            elif waiting and self._reached(waiting[0][0]):
                heappop(waiting)[-1]()
            else:
                return
        trio.lowlevel.current_trio_token().run_sync_soon(self.release)

    def release_all(self) -> None:
        """Call back everything that waits now: its offsets will never count."""
        self._due += [
            callback for _, _, callback in sorted(self._waiting, key=lambda each: each[:2])
        ]
        self._waiting.clear()
        self.release()
