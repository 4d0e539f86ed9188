"""Flushes and checkpoints of all partitions, in the background.

- What was appended is flushed at once, whether or not a request waits for it (acks=0, connections
  that are gone). The end of an fsync starts the next one, until all is on disk. A task is needed
  only if several files must be flushed. The end of a transaction waits for the next append or for
  the checkpoint: nothing depends on it before (`Ledger.complete`).
- A checkpoint of a log is written once 16 MiB or 5 s of appends are not covered by it, and when it
  has rolled. Reopening after a crash reads no more than that. The first one is written at once:
  without it nothing tells the file of a log from that of another one.
"""

import logging
from typing import Final, Protocol

import trio

from odradek.broker.storage.config import MIB, FlushPolicy
from odradek.broker.storage.flush import Flusher
from odradek.broker.storage.journal import BrokerJournal
from odradek.broker.storage.log import Log
from odradek.broker.storage.reserve import DISK_FULL
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
CHECKPOINT_BYTES: Final = 16 * MIB
CHECKPOINT_SECONDS: Final = 4.0
CHECKPOINT_TICK_SECONDS: Final = 0.5
CHECKPOINT_RETRY_SECONDS: Final = 5.0
CHECKPOINTS_AT_ONCE: Final = 4
"""Half of the disk's threads: many checkpoints that are due together never hold up a flush that a
request waits for."""


class KeptLog(Protocol):
    """The log of a partition, as `Maintenance` keeps it."""

    @property
    def log(self) -> Log: ...

    @property
    def flusher(self) -> Flusher: ...

    async def checkpoint(self) -> None: ...


class Background:
    """Logs report what was appended; `run` flushes it and writes checkpoints."""

    def __init__(self, journal: BrokerJournal | None = None) -> None:
        self._journal = journal
        self._unflushed: dict[KeptLog, None] = {}
        self._flushes: trio.Nursery | None = None
        # since when a log has appends that its checkpoint does not cover
        self._unsaved: dict[KeptLog, float] = {}
        self._has_unsaved = trio.Event()
        self._has_many_unsaved = trio.Event()
        """Set when a log has too much that is not saved, or was never saved."""
        self._checkpointing = trio.CapacityLimiter(CHECKPOINTS_AT_ONCE)

    def on_appended(self, kept: KeptLog, *, flush_later: bool = False) -> None:
        """Note that a log has grown or rolled. Called at every append: quick.

        `flush_later` is as in `StatePartition.append_batch`.
        """
        log = kept.log
        if kept not in self._unsaved:
            self._unsaved[kept] = trio.current_time()
            self._has_unsaved.set()
            if not log.saver.has_checkpoint:
                self._has_many_unsaved.set()
        if log.unsaved_bytes >= CHECKPOINT_BYTES:
            self._has_many_unsaved.set()
        if not flush_later:
            self.flush(kept)

    def flush(self, kept: KeptLog) -> None:
        """Start to flush what has been appended, if it counts only then and is not being flushed.

        A task does it only if `Flusher.start` cannot.
        """
        log = kept.log
        if log.config.flush is FlushPolicy.OS or log.unflushed.durable_offset == log.log_end_offset:
            return
        if log.failure is not None or log.is_deleted or kept.flusher.start_journaling():
            return
        if kept.flusher.is_running or kept in self._unflushed:
            return
        if self._flushes is None:
            self._unflushed[kept] = None
        elif not kept.flusher.start():
            self._unflushed[kept] = None
            self._flushes.start_soon(self._flush, kept)

    def save_soon(self, kept: KeptLog) -> None:
        """Write a checkpoint of a log soon."""
        self._unsaved[kept] = -CHECKPOINT_SECONDS
        self._has_unsaved.set()
        self._has_many_unsaved.set()

    def forget(self, kept: KeptLog) -> None:
        """Do nothing more for a log: its topic is deleted."""
        self._unflushed.pop(kept, None)
        self._unsaved.pop(kept, None)

    async def run(self) -> None:
        """Flush and write checkpoints until cancelled."""
        async with trio.open_nursery() as nursery:
            for kept in self._unflushed:
                nursery.start_soon(self._flush, kept)
            self._flushes = nursery
            if self._journal is not None:
                nursery.start_soon(self._journal.run)
            try:
                await self._write_checkpoints()
            finally:
                self._flushes = None

    async def _flush(self, kept: KeptLog) -> None:
        log = kept.log
        try:
            while log.flushed_offset < log.log_end_offset:
                await kept.flusher.flush(log.log_end_offset)
        except KafkaError as error:
            LOGGER.debug("%s is not flushed: %s", log.name, error)
        finally:
            self._unflushed.pop(kept, None)

    async def _write_checkpoints(self) -> None:
        while True:
            await self._has_unsaved.wait()
            with trio.move_on_after(CHECKPOINT_TICK_SECONDS):
                await self._has_many_unsaved.wait()
            self._has_many_unsaved = trio.Event()
            now = trio.current_time()
            due = [
                kept
                for kept, since in self._unsaved.items()
                if now - since >= CHECKPOINT_SECONDS
                or (now >= since and not kept.log.saver.has_checkpoint)
                or kept.log.unsaved_bytes >= CHECKPOINT_BYTES
            ]
            for kept in due:
                del self._unsaved[kept]
            if not self._unsaved:
                self._has_unsaved = trio.Event()
            async with trio.open_nursery() as nursery:
                for kept in due:
                    nursery.start_soon(self._checkpoint, kept)

    async def _checkpoint(self, kept: KeptLog) -> None:
        try:
            async with self._checkpointing:
                await kept.checkpoint()
            if self._journal is not None:
                self._journal.on_saved()
        except KafkaError as error:
            LOGGER.debug("%s has no new checkpoint: %s", kept.log.name, error)
        except OSError as error:
            level = logging.DEBUG if error.errno in DISK_FULL else logging.WARNING
            LOGGER.log(level, "%s has no new checkpoint: %s", kept.log.name, error)
            if kept.log.failure is None and not kept.log.is_deleted:  # a full disk, say
                retry_at = trio.current_time() + CHECKPOINT_RETRY_SECONDS
                self._unsaved.setdefault(kept, retry_at)
                self._has_unsaved.set()
