"""Fsyncs in threads that are written in C, where the package was built with a C compiler.

A thread of Python needs the interpreter's lock to begin a flush and to report its end, and waits
for it while the loop works. These threads never need it. The loop hears of all that have ended at
once, from an eventfd.
"""

import contextlib
import errno
import itertools
import os
import select
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
        self._ended: deque[tuple[Ended | None, int]] = deque()
        """Those that have ended and are to be called back, with the number of the error, or 0."""
        self._is_broken = False
        self._loop: trio.lowlevel.TrioToken | None = None

    def start(self, file_descriptor: int, done: Ended) -> None:
        """Flush a file, and then call `done` with an error or None.

        Raises OSError EAGAIN if there is no thread, and the system lets none start; also after a
        `done` has raised, which ends the loop.
        """
        loop = trio.lowlevel.current_trio_token()
        if self._loop is loop and self._is_broken:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if self._loop is not loop:
            self._loop, self._is_broken = loop, False
            self._ended.clear()
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
        try:
            while True:
                await trio.lowlevel.wait_readable(self._event)
                self._take_ended()
                while self._ended:
                    self._call_back()
        except Exception:
            # A bug of ours, which ends the loop, and this task with it. Logs are closed before, and
            # nothing else would hear of the flushes that they wait for.
            self._is_broken = True
            self._end_all()
            raise

    def _take_ended(self) -> None:
        for token, error in _fsyncs.ended(self._pool):
            self._ended.append((self._begun.pop(token, None), error))
        while self._queue and len(self._begun) < ROOM:
            self._begin(*self._queue.popleft())  # there are threads: one has just ended a flush

    def _call_back(self) -> None:
        done, error = self._ended.popleft()
        if done is not None:
            done(OSError(error, os.strerror(error)) if error else None)

    def _end_all(self) -> None:
        """Wait for what has begun, and call it back."""
        while self._begun or self._queue or self._ended:
            if not self._ended:
                select.select([self._event], [], [])
                self._take_ended()
            while self._ended:
                with contextlib.suppress(Exception):  # the first one is raised
                    self._call_back()
