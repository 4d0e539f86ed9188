"""Group commit: one fsync for everything that waits for the same partition.

An fsync covers what had been appended when it started; what is appended meanwhile is covered by the
next one. A log therefore has at most one fsync at a time, and needs no task of its own: `start`
hands the file to a thread. The end of the fsync updates the partition, and wakes the tasks that
wait (`flush`). Only if more than one file must be flushed (after a roll, say) does a task do it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition


class GroupCommit:
    """The fsyncs of one partition's log, and what waits for them."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._log = partition.log
        self._running: trio.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

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
            if next_offset > self._log.log_end_offset:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"the records of {self._log.name} below {next_offset} were truncated",
                )
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

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Let no fsync run in the block."""
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
        self._partition.flush_ended()
