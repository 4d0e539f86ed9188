"""Group commit: one fsync for everybody who waits for the same log.

Who waits first, while none is under way, starts an fsync for all that was appended so far. Who
comes while it runs waits for it and then, if it began too early for him, for the next one, which
the first of those who still wait starts. So there is at most one at a time, and no task for it.
"""

from collections.abc import Callable

import trio

from odradek.broker.storage.log import Log
from odradek.protocol.errors import ErrorCode, KafkaError


class GroupCommit:
    """`check` raises KafkaError once waiting is of no use; `finished` follows every fsync."""

    def __init__(
        self, log: Log, *, check: Callable[[], None], finished: Callable[[], None]
    ) -> None:
        self._log = log
        self._check = check
        self._finished = finished
        self._running: trio.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    async def flush(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is on disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR, and what `check` raises.
        """
        while self._log.flushed_offset < next_offset:
            await self._one_round()
        self._check()

    async def flush_names(self) -> None:
        """Return when the names of all the log's files are on disk. Raises as `flush`."""
        while self._log.has_new_names:
            await self._one_round()
        self._check()

    async def idle(self) -> None:
        """Return when no fsync is under way."""
        while self._running is not None:
            await self._running.wait()

    async def _one_round(self) -> None:
        self._check()
        if self._running is not None:
            await self._running.wait()
            return
        running = self._running = trio.Event()
        try:
            await self._log.sync()
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.name}: {error.strerror}"
            ) from error
        finally:
            self._running = None
            running.set()
            self._finished()
