"""The upkeep of a partition's log, besides appending and reading: one operation at a time.

Checkpoints, retention, compaction's replacing of segments and the end of a log change what is on
disk besides its newest segment, so they wait for each other. A pass of compaction runs beside them,
since it may take minutes. Only its replacing of segments waits for them.
"""

import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from odradek.broker.environment.env import Buffer, Clock, inline
from odradek.broker.partitions.marks import Marks
from odradek.broker.partitions.upkeep.background import Background
from odradek.broker.partitions.waiters import Waiters
from odradek.broker.storage.compaction.cleaner import Cleaner, Offload, Result, Superseded
from odradek.broker.storage.compaction.plan import Plan, plan, should_roll
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.storage.damage import DamagedSegment
from odradek.broker.storage.flush import Flusher
from odradek.broker.storage.log import Log
from odradek.broker.storage.retention import expired_count
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.truncation import start_anew, truncate
from odradek.broker.values.precedent import Precedent
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS

MAP_BYTES: Final = 128 * 1024 * 1024
"""Memory for the keys of one pass of compaction, by default."""


class Maintenance:
    """The upkeep of one partition's log."""

    def __init__(
        self,
        topic: str,
        log: Log,
        marks: Marks,
        flusher: Flusher,
        *,
        background: Background,
        clock: Clock,
    ) -> None:
        self.log: Final = log
        self.flusher: Final = flusher
        self._marks = marks
        self._background = background
        self._clock = clock
        self._is_state = topic in INTERNAL_TOPICS
        self._one_at_a_time = trio.Lock()
        self._compacting = trio.Lock()
        self._flush_waiters: Waiters | None = None
        flusher.save_soon = partial(background.save_soon, self)

    def __repr__(self) -> str:
        return f"<Maintenance of {self.log.name}>"

    # flushes and checkpoints

    def on_appended(self, *, flush_later: bool = False) -> None:
        """See `Background.on_appended`."""
        self._background.on_appended(self, flush_later=flush_later)

    def on_flushed(self) -> None:
        """Note the end of an fsync, failed or not: start to flush what was appended meanwhile."""
        self._background.flush(self)  # first, as a thread is quicker than those that wait
        if self._flush_waiters is not None:
            self._flush_waiters.release()

    def call_when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when what has been appended so far is flushed, or cannot be.

        It costs no task, as `Leader.call_when_committed`.
        """
        if self._flush_waiters is None:
            self._flush_waiters = Waiters(self._is_flushed)
        self._flush_waiters.add(self.log.log_end_offset, callback)

    def _is_flushed(self, next_offset: int) -> bool:
        """Return True if waiting for `next_offset` is of no use any more."""
        if self._marks.own_offset >= next_offset:
            return True
        return self.log.failure is not None or self.log.is_deleted

    async def wait_flushed(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is on this disk, if `log.flush` demands it.

        Raises KafkaError, as `Flusher.flush`.
        """
        if self.log.config.flush is not FlushPolicy.OS:
            await self.flusher.wait_durable(next_offset)

    async def checkpoint(self) -> None:
        """Write a checkpoint: recovery begins at the current end. Raises KafkaError, OSError."""
        async with self._one_at_a_time:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        self.log.check_available()
        to_save = self.log.to_save()
        await self.flusher.flush(to_save.recovery_offset)
        await self.flusher.flush_names()
        await self.log.saver.save(to_save)
        if self.log.has_deleted_on_disk:
            await self.log.remove_deleted()

    def precedent(self) -> Precedent | None:
        """Return the last append as what markers may follow before it is durable.

        Return None if they must wait for it, because the journal has not got it.
        """
        log = self.log
        next_offset, cut_count = log.log_end_offset, log.cut_count
        if not self.flusher.give_now():
            return None

        def is_durable() -> bool:
            if log.is_deleted or log.cut_count != cut_count:
                return True
            return max(log.unflushed.durable_offset, log.saver.saved_end_offset) >= next_offset

        return Precedent(
            name=log.name,
            is_durable=is_durable,
            has_failed=lambda: log.failure is not None,
            save=self.checkpoint,
        )

    # throwing away

    async def delete_before(self, offset: int, *, check: Callable[[], None] = lambda: None) -> None:
        """Move the log start to `offset`, at most the high watermark; durable on return.

        `check` raises when this replica may not do so any more: once its lead has ended, the log
        may be cut. Raises KafkaError, OSError.
        """
        async with self._one_at_a_time:
            self.log.check_available()
            check()
            # With log.flush=os it may count before it is on disk.
            # invariant administration 2: DeleteRecords never passes the high watermark, and a
            # deletion that waited while the log was cut is refused.
            # tests/broker/api/test_delete_records.py
            await self.flusher.flush(offset)
            check()
            if offset > self.log.log_start_offset:
                self.log.begin_at(offset)
                self._marks.move(self._marks.high_watermark)
                self._marks.readers.notify()  # sessions return the new start
                self._marks.followers.notify()
            # Also if an earlier call has failed here: the disk may have been full.
            # invariant administration 1: Records that DeleteRecords has deleted do not come back:
            # the new start is on disk at the leader, and at the followers that are there, before it
            # is answered.
            # plant deleted records are there again after a kill
            # plant DeleteRecords is answered before the followers have deleted
            if offset > self.log.saver.saved_log_start_offset:
                await self._checkpoint()

    async def enforce_retention(self) -> None:
        """Roll a segment that is due, and remove segments by age and size.

        State topics are never touched: their records count at any age. Raises KafkaError, OSError.
        """
        if self._is_state:
            return
        self.log.check_available()
        log, config, now_ms = self.log, self.log.config, self._clock.wall_ms()
        stable_offset = self._marks.last_stable_offset
        active = log.active
        if active.size_bytes and now_ms - active.first_append_ms > config.segment_ms:
            self._roll()
        if not config.is_limited:
            return
        count = expired_count(log.segments, config, now_ms=now_ms, stable_offset=stable_offset)
        # The active segment has expired, too. Only after a roll can it be removed like the others.
        if count == len(log.segments) and log.active.size_bytes:
            self._roll()
        count = min(count, len(log.segments) - 1)
        if count:
            await self.delete_before(log.segments[count].base_offset)
        elif log.has_deleted_on_disk:  # the disk was too full for the checkpoint that goes before
            await self.checkpoint()

    def _roll(self) -> None:
        self.log.roll()
        self.on_appended()

    async def truncate_to(self, offset: int) -> None:
        """Remove the batch that has `offset` and all later ones (`truncate`).

        The caller appends nothing meanwhile. Raises KafkaError KAFKA_STORAGE_ERROR, and as
        `Log.check_available`. If the log is damaged, the partition is offline then.
        """
        async with self._alone():
            await truncate(self.log, offset, now_ms=self._clock.wall_ms())
            # Only if acknowledged records were lost elsewhere is the end below the high watermark.
            self._marks.move(min(self._marks.high_watermark, self.log.log_end_offset))

    async def start_anew_at(self, offset: int) -> None:
        """Remove everything, and let the empty log begin at `offset` (`start_anew`).

        Conditions and errors are those of `truncate_to`.
        """
        await self._start_anew(offset, offset)

    async def append_around_start(self, records: Buffer) -> None:
        """Append the leader's first batches to an empty log that starts inside the first of them.

        DeleteRecords may let a log start there, and the leader sends whole batches. Conditions and
        errors are those of `truncate_to` and `Log.append_replicated`.
        """
        log, log_start_offset = self.log, self.log.log_start_offset
        assert log_start_offset == log.log_end_offset, log.name
        await self._start_anew(read_header(records).base_offset, log_start_offset)
        log.append_replicated(records, now_ms=self._clock.wall_ms())
        log.epochs.truncate_start(log_start_offset)

    async def _start_anew(self, offset: int, log_start_offset: int) -> None:
        def raise_mark() -> None:
            # On an idle partition nothing else would raise it, and the log begins above it.
            self._marks.move(max(self._marks.high_watermark, offset))

        async with self._alone():
            await start_anew(self.log, offset, log_start_offset, raise_mark)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Lock the files of the log in the block, and turn its errors into KafkaErrors."""
        log = self.log
        try:
            async with self._one_at_a_time:
                log.check_available()
                async with self.flusher.pause():
                    yield
        except DamagedSegment as error:
            self.take_offline(str(error))
            log.check_available()
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: {error.strerror}"
            ) from error

    def take_offline(self, reason: str) -> None:
        """Refuse everything from now on with KAFKA_STORAGE_ERROR: the stored data is damaged."""
        self.log.is_damaged = True
        self.log.fail(OSError(errno.EIO, reason))
        self._marks.wake()

    # compaction

    def plan(self) -> Plan | None:
        """Roll the log and plan its compaction. Return None if the topic is not compacted.

        Raises KafkaError, OSError.
        """
        log, config = self.log, self.log.config
        if not config.is_compacted:
            return None
        self.log.check_available()
        now_ms, clean_offset = self._clock.wall_ms(), log.state.clean_offset
        stable_offset = self._marks.last_stable_offset
        if should_roll(
            log.segments,
            config,
            clean_offset=clean_offset,
            stable_offset=stable_offset,
            now_ms=now_ms,
            is_state=self._is_state,
        ):
            self._roll()
        return plan(
            log.segments,
            config,
            clean_offset=clean_offset,
            stable_offset=stable_offset,
            now_ms=now_ms,
        )

    async def compact(
        self, plan: Plan, *, map_bytes: int = MAP_BYTES, offload: Offload = inline
    ) -> Result | None:
        """Carry out a plan. Return None if the log has changed and the plan no longer holds.

        Raises DamagedSegment, KafkaError, OSError.
        """
        async with self._compacting:
            self.log.check_available()
            if self.log.saver.has_replaced_on_disk:
                await self.checkpoint()
            cut_count = self.log.cut_count
            cleaner = Cleaner(
                log=self.log,
                plan=plan,
                now_ms=self._clock.wall_ms(),
                map_bytes=map_bytes,
                offload=offload,
                replace=partial(self._replace, cut_count),
            )
            try:
                result = await cleaner.run()
            except Superseded:
                return None
            if self.log.cut_count != cut_count:
                return None
            self.log.state.clean_offset = max(self.log.state.clean_offset, result.clean_offset)
            await self.checkpoint()
            return result

    async def _replace(
        self, cut_count: int, old: Sequence[Segment], new: Segment, clean_offset: int
    ) -> None:
        """See `replacement.py`. Raises Superseded, KafkaError, OSError."""
        log = self.log
        async with self._one_at_a_time:
            self.log.check_available()
            # After a cut the newer value of a key, for which the pass drops an older one, may be
            # gone.
            if log.cut_count != cut_count or any(segment.is_deleted for segment in old):
                raise Superseded
            to_save = log.to_save(old, new, clean_offset)
            await self.flusher.flush(to_save.recovery_offset)
            await self.flusher.flush_names()
            await log.saver.save(to_save, partial(log.replace, old, new, clean_offset))
            await log.sync_directory()
            await self._checkpoint()

    # the end

    async def close(self) -> None:
        """Flush, write a checkpoint and a snapshot of the producers, close the files.

        Raises KafkaError, OSError: then the partition will be recovered at the next start.
        """
        try:
            async with self._one_at_a_time:
                self.log.check_available()
                self.log.saver.mark_clean_end()
                if not self.log.saver.is_up_to_date:
                    await self._checkpoint()
        finally:
            self.log.close()

    async def discard(self) -> None:
        """Close the files of a deleted log; on return its directory is not used any more.

        `Log.check_available` raises by now, so that what is under way ends soon.
        """
        async with self._compacting, self._one_at_a_time:
            await self.flusher.idle()
            self.flusher.wake()
            self.log.discard()
