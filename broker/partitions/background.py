"""Flushes and checkpoints of all partitions, in the background.

- What was appended is flushed at once, whether or not a request waits for it (acks=0, connections
  that are gone). The end of an fsync starts the next one, until all is on disk. A task is needed
  only if several files must be flushed.
- A checkpoint of a log is written once 16 MiB or 5 s of appends are not covered by it, and when it
  has rolled. Reopening after a crash reads no more than that. The first one is written at once:
  without it nothing tells the file of a log from that of another one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.storage.config import MIB, FlushPolicy
from odradek.broker.storage.reserve import DISK_FULL
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

LOGGER: Final = logging.getLogger(__name__)
CHECKPOINT_BYTES: Final = 16 * MIB
CHECKPOINT_SECONDS: Final = 4.0
CHECKPOINT_TICK_SECONDS: Final = 0.5
CHECKPOINT_RETRY_SECONDS: Final = 5.0
CHECKPOINTS_AT_ONCE: Final = 4
"""Half of the disk's threads: many checkpoints that are due together never hold up a flush that a
request waits for."""


class Background:
    """Partitions report what they append; `run` flushes it and writes checkpoints."""

    def __init__(self) -> None:
        self._unflushed: dict[Partition, None] = {}
        self._flushes: trio.Nursery | None = None
        # since when a log has appends that its checkpoint does not cover
        self._unsaved: dict[Partition, float] = {}
        self._has_unsaved = trio.Event()
        self._has_many_unsaved = trio.Event()
        """Set when a log has too much that is not saved, or was never saved."""
        self._checkpointing = trio.CapacityLimiter(CHECKPOINTS_AT_ONCE)

    def appended(self, partition: Partition) -> None:
        """Note that a log has grown or rolled. Called at every append: quick."""
        log = partition.log
        if partition not in self._unsaved:
            self._unsaved[partition] = trio.current_time()
            self._has_unsaved.set()
            if not log.saver.has_checkpoint:
                self._has_many_unsaved.set()
        if log.unsaved_bytes >= CHECKPOINT_BYTES:
            self._has_many_unsaved.set()
        self.flush(partition)

    def flush(self, partition: Partition) -> None:
        """Start to flush what has been appended, if it counts only then and is not being flushed.

        A task does it only if `GroupCommit.start` cannot.
        """
        log = partition.log
        if partition.commit.is_running or partition in self._unflushed:
            return
        if log.config.flush is not FlushPolicy.ACK or log.flushed_offset == log.log_end_offset:
            return
        if log.failure is not None or log.is_deleted:
            return
        if self._flushes is None:
            self._unflushed[partition] = None
        elif not partition.commit.start():
            self._unflushed[partition] = None
            self._flushes.start_soon(self._flush, partition)

    def forget(self, partition: Partition) -> None:
        """Do nothing more for a partition: its topic is deleted."""
        self._unflushed.pop(partition, None)
        self._unsaved.pop(partition, None)

    async def run(self) -> None:
        """Flush and write checkpoints until cancelled."""
        async with trio.open_nursery() as nursery:
            for partition in self._unflushed:
                nursery.start_soon(self._flush, partition)
            self._flushes = nursery
            try:
                await self._write_checkpoints()
            finally:
                self._flushes = None

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        try:
            while log.flushed_offset < log.log_end_offset:
                await partition.flush()
        except KafkaError as error:
            LOGGER.debug("%r is not flushed: %s", partition, error)
        finally:
            self._unflushed.pop(partition, None)

    async def _write_checkpoints(self) -> None:
        while True:
            await self._has_unsaved.wait()
            with trio.move_on_after(CHECKPOINT_TICK_SECONDS):
                await self._has_many_unsaved.wait()
            self._has_many_unsaved = trio.Event()
            now = trio.current_time()
            due = [
                partition
                for partition, since in self._unsaved.items()
                if now - since >= CHECKPOINT_SECONDS
                or (now >= since and not partition.log.saver.has_checkpoint)
                or partition.log.unsaved_bytes >= CHECKPOINT_BYTES
            ]
            for partition in due:
                del self._unsaved[partition]
            if not self._unsaved:
                self._has_unsaved = trio.Event()
            async with trio.open_nursery() as nursery:
                for partition in due:
                    nursery.start_soon(self._checkpoint, partition)

    async def _checkpoint(self, partition: Partition) -> None:
        try:
            async with self._checkpointing:
                await partition.checkpoint()
        except KafkaError as error:
            LOGGER.debug("%r has no new checkpoint: %s", partition, error)
        except OSError as error:
            level = logging.DEBUG if error.errno in DISK_FULL else logging.WARNING
            LOGGER.log(level, "%r has no new checkpoint: %s", partition, error)
            if partition.log.failure is None and not partition.log.is_deleted:  # a full disk, say
                retry_at = trio.current_time() + CHECKPOINT_RETRY_SECONDS
                self._unsaved.setdefault(partition, retry_at)
                self._has_unsaved.set()
