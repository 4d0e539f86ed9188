"""The upkeep of a partition's log, besides appending and reading: one operation at a time.

Checkpoints, retention, compaction's replacing of segments and the end of a log change what is on
disk besides its newest segment, so they wait for each other. A pass of compaction runs beside them,
since it may take minutes. Only its replacing of segments waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.env import Buffer, Clock, inline
from odradek.broker.partitions.group_commit import GroupCommit
from odradek.broker.storage.compaction.cleaner import Cleaner, Offload, Result, Superseded
from odradek.broker.storage.compaction.plan import Plan, plan, should_roll
from odradek.broker.storage.log import Log
from odradek.broker.storage.retention import expired_count
from odradek.broker.storage.segment import DamagedSegment, Segment
from odradek.broker.storage.truncation import start_anew, truncate
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

MAP_BYTES: Final = 128 * 1024 * 1024
"""Memory for the keys of one pass of compaction, by default."""


class Maintenance:
    """The upkeep of one partition's log."""

    def __init__(self, partition: Partition, commit: GroupCommit, clock: Clock) -> None:
        self._partition = partition
        self._log: Log = partition.log
        self._commit = commit
        self._clock = clock
        self._is_state = partition.topic in INTERNAL_TOPICS
        self._one_at_a_time = trio.Lock()
        self._compacting = trio.Lock()

    # checkpoints

    async def checkpoint(self) -> None:
        """Write a checkpoint: recovery begins at the current end. Raises KafkaError, OSError."""
        async with self._one_at_a_time:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        self._log.check_available()
        to_save = self._log.to_save()
        await self._commit.flush(to_save.recovery_offset)
        await self._commit.flush_names()
        await self._log.save(to_save)
        if self._log.has_deleted_on_disk:
            await self._log.remove_deleted()

    # throwing away

    async def delete_before(self, offset: int, *, leader_epoch: int | None = None) -> None:
        """Let the log begin at `offset`, which is at most the high watermark; durable on return.

        With `leader_epoch` only while this replica leads in it: the log may be cut afterwards.
        Raises KafkaError, OSError.
        """
        async with self._one_at_a_time:
            self._log.check_available()
            self._check_led(leader_epoch)
            await self._commit.flush(offset)  # with log.flush=os it may count before it is on disk
            self._check_led(leader_epoch)
            if offset > self._log.log_start_offset:
                self._log.begin_at(offset)
                self._partition.update_visible()
                self._partition.marks.readers.notify()  # sessions return the new start
                self._partition.marks.followers.notify()
            # Also if an earlier call has failed here: the disk may have been full.
            if offset > self._log.saver.saved_log_start_offset:
                await self._checkpoint()

    def _check_led(self, leader_epoch: int | None) -> None:
        partition = self._partition
        is_led = partition.lead is not None and partition.leader_epoch == leader_epoch
        if leader_epoch is not None and not is_led:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self._log.name} is not led by this broker in epoch {leader_epoch} any more",
            )

    async def enforce_retention(self, stable_offset: int) -> None:
        """Roll a segment that is due, and remove segments by age and size.

        State topics are never touched: their records count at any age. Raises KafkaError, OSError.
        """
        if self._is_state:
            return
        self._log.check_available()
        log, config, now_ms = self._log, self._log.config, self._clock.wall_ms()
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
        self._log.roll()
        self._partition.background.appended(self._partition)

    async def truncate_to(self, offset: int) -> None:
        """Remove the batch that has `offset` and all later ones (`truncate`).

        The caller appends nothing meanwhile. Raises KafkaError KAFKA_STORAGE_ERROR, and as
        `Log.check_available`. If the log is damaged, the partition is offline then.
        """
        async with self._alone():
            await truncate(self._log, offset, now_ms=self._clock.wall_ms())
            # Only if acknowledged records were lost elsewhere is the end below the high watermark.
            marks = self._partition.marks
            marks.move(min(marks.high_watermark, self._log.log_end_offset))

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
        log, log_start_offset = self._log, self._log.log_start_offset
        assert log_start_offset == log.log_end_offset, log.name
        await self._start_anew(read_header(records).base_offset, log_start_offset)
        log.append_replicated(records, now_ms=self._clock.wall_ms())
        log.epochs.truncate_start(log_start_offset)

    async def _start_anew(self, offset: int, log_start_offset: int) -> None:
        def raise_mark() -> None:
            # On an idle partition nothing else would raise it, and the log begins above it.
            self._partition.marks.move(max(self._partition.high_watermark, offset))

        async with self._alone():
            await start_anew(self._log, offset, log_start_offset, raise_mark)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Let nothing else change what is on disk in the block, and make its errors KafkaErrors."""
        log = self._log
        try:
            async with self._one_at_a_time:
                log.check_available()
                async with self._commit.pause():
                    yield
        except DamagedSegment as error:
            self._partition.take_offline(str(error))
            log.check_available()
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name}: {error.strerror}"
            ) from error

    # compaction

    def plan(self, stable_offset: int) -> Plan | None:
        """Roll the log and plan its compaction. Return None if the topic is not compacted.

        Raises KafkaError, OSError.
        """
        log, config = self._log, self._log.config
        if not config.is_compacted:
            return None
        self._log.check_available()
        now_ms, clean_offset = self._clock.wall_ms(), log.state.clean_offset
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
            self._log.check_available()
            if self._log.saver.has_replaced_on_disk:
                await self.checkpoint()
            cut_count = self._log.cut_count
            cleaner = Cleaner(
                log=self._log,
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
            if self._log.cut_count != cut_count:
                return None
            self._log.state.clean_offset = max(self._log.state.clean_offset, result.clean_offset)
            await self.checkpoint()
            return result

    async def _replace(
        self, cut_count: int, old: Sequence[Segment], new: Segment, clean_offset: int
    ) -> None:
        """See `replacement.py`. Raises Superseded, KafkaError, OSError."""
        log = self._log
        async with self._one_at_a_time:
            self._log.check_available()
            # After a cut the newer value of a key, for which the pass drops an older one, may be
            # gone.
            if log.cut_count != cut_count or any(segment.is_deleted for segment in old):
                raise Superseded
            to_save = log.to_save(old, new, clean_offset)
            await self._commit.flush(to_save.recovery_offset)
            await self._commit.flush_names()
            await log.save(to_save, partial(log.replace, old, new, clean_offset))
            await log.sync_directory()
            await self._checkpoint()

    # the end

    async def close(self) -> None:
        """Flush, write a checkpoint and a snapshot of the producers, close the files.

        Raises KafkaError, OSError: then the partition will be recovered at the next start.
        """
        try:
            async with self._one_at_a_time:
                self._log.check_available()
                self._log.mark_clean_end()
                if not self._log.is_saved:
                    await self._checkpoint()
        finally:
            self._log.close()

    async def discard(self) -> None:
        """Close the files of a deleted log; on return its directory is not used any more.

        `Log.check_available` raises by now, so that what is under way ends soon.
        """
        async with self._compacting, self._one_at_a_time:
            await self._commit.idle()
            self._log.discard()
