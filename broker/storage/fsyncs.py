"""Fsyncs in threads that are written in C, where the package was built with a C compiler.

A thread of Python needs the interpreter's lock to begin a flush and to report its end, and waits
for it while the loop works. These threads never need it. The loop hears of all that have ended at
once, from an eventfd.
"""

import itertools
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from odradek.broker.environment.compiled import is_wanted

try:
    from odradek.broker.storage import _fsyncs
    from odradek.broker.storage._fsyncs import ROOM as ROOM
except ImportError:
    if not TYPE_CHECKING:
        _fsyncs, ROOM = None, 0

Ended = Callable[[OSError | None], None]


def is_possible() -> bool:
    """Return True if the threads in C are installed and wanted."""
    return _fsyncs is not None and is_wanted()


class Fsyncs:
    """Starts fsyncs, and calls back in the loop when they have ended."""

    def __init__(self, threads: int) -> None:
        self._pool = _fsyncs.pool(threads)
        self._event = _fsyncs.event(self._pool)
        self._tokens = itertools.count()
        self._begun: dict[int, Ended | None] = {}
        self._queue: deque[tuple[int, Ended]] = deque()
        self._loop: trio.lowlevel.TrioToken | None = None

    def start(self, file_descriptor: int, done: Ended) -> None:
        """Flush a file, and then call `done` with an error or None.

        Raises OSError EAGAIN if there is no thread, and the system lets none start.
        """
        loop = trio.lowlevel.current_trio_token()
        if self._loop is not loop:
            self._loop = loop
            self._queue.clear()  # their loop has ended
            self._begun = dict.fromkeys(self._begun)
            trio.lowlevel.spawn_system_task(self._listen)
        if len(self._begun) < ROOM:
            self._begin(file_descriptor, done)
        else:
            self._queue.append((file_descriptor, done))

    def _begin(self, file_descriptor: int, done: Ended) -> None:
        token = next(self._tokens)
        _fsyncs.begin(self._pool, file_descriptor, token)
        self._begun[token] = done

    async def _listen(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._event)
            ended = [
                (self._begun.pop(token, None), error) for token, error in _fsyncs.ended(self._pool)
            ]
            while self._queue and len(self._begun) < ROOM:
                self._begin(*self._queue.popleft())  # there are threads: one has just ended a flush
            for done, error in ended:
                if done is not None:
                    done(OSError(error, os.strerror(error)) if error else None)
