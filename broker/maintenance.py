"""What is done to a partition's log besides appending and reading: one thing at a time.

Checkpoints, retention, compaction's replacing of segments and the end of a log change what is on
disk besides its newest segment, so they wait for each other. A pass of compaction itself runs
beside them, since it may take minutes; only taking the place of what it has read is one of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from odradek.broker.env import Clock
from odradek.broker.storage.compaction.cleaner import Cleaner, Offload, Result, Superseded
from odradek.broker.storage.compaction.plan import Plan, plan, should_roll
from odradek.broker.storage.group_commit import GroupCommit
from odradek.broker.storage.log import Log
from odradek.broker.storage.retention import expired_count
from odradek.broker.storage.segment import Segment

MAP_BYTES: Final = 128 * 1024 * 1024
"""Memory for the keys of one pass of compaction, unless told otherwise."""


async def inline(function: Callable[[], object]) -> object:
    """Call a function that computes, here and now."""
    return function()


class Maintenance:
    """Of one log. `check` raises KafkaError once it cannot be used; `changed` follows its start."""

    def __init__(
        self,
        log: Log,
        commit: GroupCommit,
        clock: Clock,
        *,
        is_state: bool,
        check: Callable[[], None],
        changed: Callable[[], None],
        rolled: Callable[[], None],
    ) -> None:
        self._log = log
        self._commit = commit
        self._clock = clock
        self._is_state = is_state
        self._check = check
        self._changed = changed
        self._rolled = rolled
        self._one_at_a_time = trio.Lock()
        self._compacting = trio.Lock()

    # checkpoints

    async def checkpoint(self) -> None:
        """Let recovery start at what is the log's end now. Raises KafkaError, OSError."""
        async with self._one_at_a_time:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        self._check()
        to_save = self._log.to_save()
        await self._commit.flush(to_save.recovery_offset)
        await self._commit.flush_names()
        await self._log.save(to_save)
        if self._log.has_deleted_on_disk:
            await self._log.remove_deleted()

    # throwing away

    async def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`, which is at most the high watermark; durable on return.

        Raises KafkaError, OSError.
        """
        async with self._one_at_a_time:
            await self._commit.flush(offset)  # with log.flush=os it may count before it is on disk
            if offset > self._log.log_start_offset:
                self._log.begin_at(offset)
                self._changed()
                await self._checkpoint()

    async def enforce_retention(self, stable_offset: int) -> None:
        """Roll a segment whose time has come; remove those that are too old or too many.

        Raises KafkaError, OSError. State topics are never touched: what is in them counts however
        old it is.
        """
        if self._is_state:
            return
        self._check()
        log, config, now_ms = self._log, self._log.config, self._clock.wall_ms()
        active = log.active
        if active.size_bytes and now_ms - active.first_append_ms > config.segment_ms:
            self._roll()
        if not config.is_limited:
            return
        count = expired_count(log.segments, config, now_ms=now_ms, stable_offset=stable_offset)
        if count == len(log.segments) and log.active.size_bytes:
            self._roll()
        count = min(count, len(log.segments) - 1)
        if count:
            await self.delete_before(log.segments[count].base_offset)
        elif log.has_deleted_on_disk:  # the disk was too full for the checkpoint that goes before
            await self.checkpoint()

    def _roll(self) -> None:
        self._log.roll()
        self._rolled()

    # compaction

    def plan(self, stable_offset: int) -> Plan | None:
        """What there is to compact, after rolling what should; None if the log is not compacted.

        Raises KafkaError, OSError.
        """
        log, config = self._log, self._log.config
        if not config.is_compacted:
            return None
        self._check()
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
        """Do what is planned; None if meanwhile there is nothing to it.

        Raises DamagedSegment, KafkaError, OSError.
        """
        async with self._compacting:
            self._check()
            if self._log.has_replaced_on_disk:
                await self.checkpoint()
            cleaner = Cleaner(
                log=self._log,
                plan=plan,
                now_ms=self._clock.wall_ms(),
                map_bytes=map_bytes,
                offload=offload,
                replace=self._replace,
                check=self._check,
            )
            try:
                result = await cleaner.run()
            except Superseded:
                return None
            self._log.state.clean_offset = max(self._log.state.clean_offset, result.clean_offset)
            await self.checkpoint()
            return result

    async def _replace(self, old: Sequence[Segment], new: Segment, clean_offset: int) -> None:
        """See `replacement.py`. Raises Superseded, KafkaError, OSError."""
        log = self._log
        async with self._one_at_a_time:
            self._check()
            if any(segment.is_deleted for segment in old):
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
                self._check()
                self._log.mark_clean_end()
                if not self._log.is_saved:
                    await self._checkpoint()
        finally:
            self._log.close()

    async def discard(self) -> None:
        """Close the files; when it returns nobody uses the directory any more.

        `check` must raise by now, so that whatever is under way ends soon.
        """
        async with self._compacting, self._one_at_a_time:
            await self._commit.idle()
            self._log.discard()
