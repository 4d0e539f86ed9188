"""Group commit: one fsync for all tasks that wait for the same log.

The first waiter starts an fsync of everything appended so far. Later waiters share it if it covers
them; otherwise one of them starts the next. A log therefore has at most one fsync at a time, and
needs no task of its own. A caller that does not wait is called back instead (`after_next`).
"""

from collections.abc import Callable, Sequence
from typing import Final

import trio

from odradek.broker.storage.log import Log
from odradek.broker.turns import Turns
from odradek.protocol.errors import ErrorCode, KafkaError

CALLBACK_STEPS: Final = 20
"""What a callback costs, in steps of a turn: it may build a small answer and send it."""


class GroupCommit:
    """The group commit of one log. `finished` is called after every fsync, before the waiters."""

    def __init__(self, log: Log, *, finished: Callable[[], None]) -> None:
        self._log = log
        self._finished = finished
        self._running: trio.Event | None = None
        self._called_after_next: list[Callable[[], None]] = []

    def after_next(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, after the next fsync that starts, even if that fails.

        It covers what has been appended before this call. An fsync that is under way may not.
        """
        self._called_after_next.append(callback)

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
        if self._running is not None:
            await self._running.wait()
            return
        running = self._running = trio.Event()
        # Taken before the fsync starts: a callback added during it may be for a later append.
        covered, self._called_after_next = self._called_after_next, []
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
            # The task that is cancelled may be one client's; the callbacks are of others.
            with trio.CancelScope(shield=True):
                await self._call(covered)

    async def _call(self, callbacks: Sequence[Callable[[], None]]) -> None:
        turns = Turns()
        for callback in callbacks:
            await turns.take(CALLBACK_STEPS)
            callback()
