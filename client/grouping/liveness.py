"""Signs of life of a program that consumes as a member of a group (`max_poll_interval_ms`).

A poll that is under way, the end of a poll, and every record that an iteration yields are signs of
life. An iteration does not note a time for each record: `progress` returns something that changes
with every record, and it is compared with what it was at the last look.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio


class Liveness:
    """The clock of a program's signs of life."""

    def __init__(self, max_poll_interval_ms: int) -> None:
        self.progress: Callable[[], object] = int
        self._limit_s = max_poll_interval_ms / 1000
        self._polls = 0
        self._seen: object = None
        self._seen_at = float("-inf")

    def begin(self) -> None:
        """Start to count: the program has just subscribed."""
        self._seen, self._seen_at = self.progress(), trio.current_time()

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Count the program as alive while this block runs."""
        self._polls += 1
        try:
            yield
        finally:
            self._polls -= 1
            self._seen, self._seen_at = self.progress(), trio.current_time()

    def is_late(self) -> bool:
        """Return True if there was no sign of life for too long."""
        return self.left_s() < 0

    def left_s(self) -> float:
        """Return the time until it is too long; less than 0 if it is."""
        now, progress = trio.current_time(), self.progress()
        # invariant members 6: Every record that is yielded is a sign of life.
        # plant a long iteration over one fetch counts as a program that hangs
        if self._polls or progress != self._seen:
            self._seen, self._seen_at = progress, now
        return self._limit_s - (now - self._seen_at)
