"""Group commit: one fsync for everything that waits for the same log.

An fsync covers what had been appended when it started; what is appended meanwhile is covered by the
next one. A log therefore has at most one fsync at a time, and needs no task of its own: `start`
hands the file to a thread. The end of the fsync tells the partition, and wakes the tasks that
wait (`flush`). Only if more than one file must be flushed (after a roll, say) does a task do
it.

With a journal (`journal.py`) that fsync is seldom needed: the journal takes what was appended, and
one fsync of it makes the appends of all logs durable.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from odradek.broker.storage.captured import Captured
from odradek.broker.storage.journal import BrokerJournal
from odradek.broker.storage.journal_file import RecordKind
from odradek.broker.storage.log import Log
from odradek.protocol.errors import ErrorCode, KafkaError


class Flusher:
    """The fsyncs of one log, and what waits for them."""

    def __init__(self, log: Log, on_ended: Callable[[], None]) -> None:
        """`on_ended` is called at the end of each fsync, failed or not."""
        self._log = log
        self._on_ended = on_ended
        self._running: trio.Event | None = None
        self._is_paused = False
        self._changed: trio.Event | None = None
        """Set when an fsync has ended, here or of the journal; made by the first that waits."""
        self.save_soon: Callable[[], None] = lambda: None
        """Write a checkpoint of the log soon."""

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
            self._check_end(next_offset)
            await self._one_round()
        self._log.check_available()

    def _check_end(self, next_offset: int) -> None:
        if next_offset > self._log.log_end_offset:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the records of {self._log.name} below {next_offset} were truncated",
            )

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
        self._running, self._is_paused = trio.Event(), True
        try:
            yield
        finally:
            self._is_paused = False
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
        self._notify()

    def _notify(self) -> None:
        self.wake()
        self._on_ended()

    def wake(self) -> None:
        """Wake what waits for the journal: the log may be deleted."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    # with a journal

    async def wait_durable(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is on disk, here or in the journal.

        Raises as `flush`.
        """
        while self._log.unflushed.durable_offset < next_offset:
            self._log.check_available()
            self._check_end(next_offset)
            if self._changed is None:
                self._changed = trio.Event()
            changed = self._changed
            if self.start_journaling():
                await changed.wait()
            else:
                await self._one_round()
        self._log.check_available()

    def start_journaling(self) -> bool:
        """Pass what was appended to the journal.

        Return False if the log must be flushed itself.
        """
        captured = self._log.captured
        if captured is None or not captured.journal.is_begun:
            return False
        if not self._is_paused and self._must_flush(captured):
            return False
        captured.journal.on_appended(self)
        return True

    def give_now(self) -> bool:
        """Pass what was appended to the journal, before what other logs append from here on.

        Return False if the log must be flushed itself, or if the journal cannot take it now.
        """
        log, captured = self._log, self._log.captured
        if captured is None or not captured.journal.take_now(self):
            return False
        return log.unflushed.journaled_offset == log.log_end_offset

    def _must_flush(self, captured: Captured) -> bool:
        """Return True if the log must be flushed itself, before the journal may have more of it."""
        log = self._log
        unflushed = log.unflushed
        # invariant journal 3: The journal has bytes only of a file whose name is on disk, and of a
        # log whose checkpoint says up to where it counts without them.
        # tests/broker/storage/test_journal_crashes.py
        if not (unflushed.is_in_one_file and log.saver.has_checkpoint):
            captured.forget(log.log_end_offset)
        return max(unflushed.flushed_offset, unflushed.journaled_offset) < captured.base_offset

    # `Journaled`, for the journal

    @property
    def cut_count(self) -> int:
        return self._log.cut_count

    @property
    def has_failed(self) -> bool:
        return self._log.failure is not None or self._log.saver.is_held

    def give(self, journal: BrokerJournal) -> bool:
        log, captured = self._log, self._log.captured
        assert captured is not None
        if self._is_paused or log.failure is not None or log.is_deleted:
            return True
        if self._must_flush(captured):
            return False
        unflushed, key = log.unflushed, captured.key
        if unflushed.journaled_offset < captured.base_offset:
            end = unflushed.flushed_offset
            journal.add(self, key, RecordKind.FLUSHED, unflushed.journaled_offset, end)
            unflushed.journaled_offset = end
        for piece in captured.take(unflushed.journaled_offset):
            assert piece.base_offset == unflushed.journaled_offset, (piece, log.name)
            journal.add(
                self,
                key,
                RecordKind.DATA,
                piece.base_offset,
                piece.next_offset,
                segment_base=piece.segment_base,
                position=piece.position,
                data=piece.data,
            )
            unflushed.journaled_offset = piece.next_offset
        return True

    def on_durable(self, next_offset: int) -> None:
        unflushed = self._log.unflushed
        unflushed.durable_offset = max(unflushed.durable_offset, next_offset)
        if self._log.is_deleted:
            self.wake()
        else:
            self._notify()

    def flush_itself(self) -> None:
        self._on_ended()  # which starts the flush that is due

    def fail(self, error: OSError) -> None:
        self._log.fail(error)
        self._notify()

    def is_saved(self, sequence: int) -> bool:
        return self._log.is_deleted or self._log.saver.saved_sequence > sequence
