"""Group commit: one fsync for everything that waits for the same partition.

An fsync covers what had been appended when it started; what is appended meanwhile is covered by the
next one. A log therefore has at most one fsync at a time, and needs no task of its own: `start`
hands the file to a thread, and the end of the fsync calls back what waits (`call_when_flushed`) and
wakes the tasks that wait (`flush`). Only if more than one file must be flushed (after a roll, say)
does a task do it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.storage.config import FlushPolicy
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

CALLBACKS_AT_ONCE: Final = 50
"""Callbacks between two turns of the loop. Each may build a small answer and send it."""


class GroupCommit:
    """The fsyncs of one partition's log, and what waits for them."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._log = partition.log
        self._running: trio.Event | None = None
        self._callbacks: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def call_when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when what is appended so far is on disk or cannot get there.

        The caller sees to it that an fsync is started (`start`). It may have ended already.
        """
        self._callbacks.append((self._log.log_end_offset, callback))
        if self._running is None:
            trio.lowlevel.current_trio_token().run_sync_soon(self._call_back)

    def start(self) -> bool:
        """Start an fsync. If one is running, the next one follows it. Return False if a task must.

        There is something to flush.
        """
        if self._running is not None:
            return True
        is_started = self._log.start_sync(self._ended)
        if is_started:
            self._running = trio.Event()
        return is_started

    async def flush(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is on disk.

        Raises KafkaError KAFKA_STORAGE_ERROR, and as `Log.check_available`.
        """
        while self._log.flushed_offset < next_offset:
            await self._one_round()
        self._log.check_available()

    async def flush_names(self) -> None:
        """Return when the names of all files of the log are on disk. Raises as `flush`."""
        while self._log.has_new_names:
            await self._one_round()
        self._log.check_available()

    async def idle(self) -> None:
        """Return when no fsync is running."""
        while self._running is not None:
            await self._running.wait()

    async def _one_round(self) -> None:
        self._log.check_available()
        if self.start():
            assert self._running is not None
            await self._running.wait()
            return
        self._running = trio.Event()
        try:
            await self._log.sync()
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.name}: {error.strerror}"
            ) from error
        finally:
            self._ended()

    def _ended(self) -> None:
        running, self._running = self._running, None
        assert running is not None
        running.set()
        # First the partition: the waiters then see the new high watermark.
        self._partition.flush_ended()
        self._call_back()

    def _call_back(self) -> None:
        """Call back those whose records are on disk, some of them in this turn of the loop."""
        log, callbacks = self._log, self._callbacks
        is_over = log.failure is not None or log.is_deleted or log.config.flush is FlushPolicy.OS
        flushed_offset = log.flushed_offset
        for _ in range(min(CALLBACKS_AT_ONCE, len(callbacks))):
            if callbacks[0][0] > flushed_offset and not is_over:
                return
            _, callback = callbacks.popleft()
            callback()
        if callbacks:
            trio.lowlevel.current_trio_token().run_sync_soon(self._call_back)
