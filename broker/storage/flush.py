"""Group commit: one fsync for everything that waits for the same log.

An fsync covers what had been appended when it started; what is appended meanwhile is covered by the
next one. A log therefore has at most one fsync at a time, and needs no task of its own: `start`
hands the file to a thread. The end of the fsync tells the partition, and wakes the tasks that
wait (`flush`). Only if more than one file must be flushed (after a roll, say) does a task do
it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from odradek.broker.storage.log import Log
from odradek.protocol.errors import ErrorCode, KafkaError


class Flusher:
    """The fsyncs of one log, and what waits for them."""

    def __init__(self, log: Log, on_ended: Callable[[], None]) -> None:
        """`on_ended` is called at the end of each fsync, failed or not."""
        self._log = log
        self._on_ended = on_ended
        self._running: trio.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start(self) -> bool:
        """Start an fsync. If one is running, the next one follows it. Return False if a task must.

        There is something to flush.
        """
        log = self._log
        if self._running is not None:
            return True
        if not log.unflushed.is_in_one_file:
            return False
        target = log.log_end_offset
        try:
            is_started = log.active.start_sync(partial(self._on_synced, target))
        except OSError:
            return False  # `Log.sync` meets it again
        if is_started:
            self._running = trio.Event()
        return is_started

    def _on_synced(self, target: int, error: BaseException | None) -> None:
        if error is None:
            self._log.unflushed.reach(target)
        elif isinstance(error, OSError):
            self._log.fail(error)
            error = None
        self._ended()
        if error is not None:
            raise error  # no error of a disk, but a bug of ours

    async def flush(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is on disk.

        Raises KafkaError KAFKA_STORAGE_ERROR, and as `Log.check_available`.
        """
        while self._log.flushed_offset < next_offset:
            if next_offset > self._log.log_end_offset:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"the records of {self._log.name} below {next_offset} were truncated",
                )
            await self._one_round()
        self._log.check_available()

    async def flush_names(self) -> None:
        """Return when the names of all files of the log are on disk. Raises as `flush`."""
        while self._log.unflushed.has_new_names:
            await self._one_round()
        self._log.check_available()

    async def idle(self) -> None:
        """Return when no fsync is running."""
        while self._running is not None:
            await self._running.wait()

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Keep fsyncs from running in the block."""
        await self.idle()
        self._running = trio.Event()
        try:
            yield
        finally:
            self._ended()

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
        self._on_ended()
