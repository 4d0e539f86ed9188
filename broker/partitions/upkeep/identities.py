"""The files `topic.meta` of this broker's logs, kept up to date while it runs.

A log gets its file when it is opened. When the settings of its topic change, the file is written
again in the background, one log after the other: no request and no election waits for the disk. A
log whose file could not be written is served without it, and the write is retried.
"""

import logging
from typing import Final
from weakref import WeakKeyDictionary

import trio

from odradek.broker.environment.env import Disk
from odradek.broker.storage.identity import IDENTITY, Identity, keep_identity
from odradek.broker.storage.log import Log
from odradek.broker.storage.log_state import Recovered

LOGGER: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 5.0


class Identities:
    """Writes the identities of logs. `begin` gives it a nursery for its task, `end` takes it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._newest: WeakKeyDictionary[Log, Identity] = WeakKeyDictionary()
        self._due: dict[Log, bool] = {}
        """The logs whose files are to be written. The value is True if a write has failed."""
        self._nursery: trio.Nursery | None = None
        self._is_writing = False

    async def on_opened(
        self, log: Log, recovered: Recovered, identity: Identity, found: Identity | None
    ) -> None:
        """Write the file of a log that is being opened, unless `found` is equal.

        Raises OSError if the log is empty. A log with data is served without the file.
        """
        checkpoint = recovered.checkpoint
        has_data = log.log_end_offset > 0
        self._newest[log] = identity
        try:
            await keep_identity(
                self._disk,
                log.directory,
                identity,
                found=found,
                has_data=has_data,
                was_flushed=checkpoint is not None and checkpoint.recovery_offset > 0,
            )
        except OSError as error:
            if not has_data:
                raise
            self._note_failure(log, error)

    def keep(self, log: Log, identity: Identity) -> None:
        """Write the file of an open log in the background, unless it has this identity."""
        if self._newest.get(log) == identity:
            return
        self._newest[log] = identity
        self._due[log] = False
        self._start()

    def begin(self, nursery: trio.Nursery) -> None:
        """Write what is due, now and later, in a task of this nursery."""
        self._nursery = nursery
        self._start()

    def end(self) -> None:
        """Write nothing more: the nursery has ended."""
        self._nursery = None

    def _start(self) -> None:
        if self._due and self._nursery is not None and not self._is_writing:
            self._is_writing = True
            self._nursery.start_soon(self._write_all)

    async def _write_all(self) -> None:
        try:
            while self._due:
                log, has_failed = next(iter(self._due.items()))
                del self._due[log]
                if not log.is_deleted and not await self._write(log, has_failed=has_failed):
                    await trio.sleep(RETRY_SECONDS)
        finally:
            self._is_writing = False

    async def _write(self, log: Log, *, has_failed: bool) -> bool:
        """Write the file of a log; return False if it is to be written later."""
        try:
            await keep_identity(
                self._disk,
                log.directory,
                self._newest[log],
                found=None,
                has_data=True,  # the first flush of an empty log may be running
                was_flushed=True,
            )
        except OSError as error:
            if log.is_deleted:
                return True
            self._note_failure(log, error, level=logging.DEBUG if has_failed else logging.WARNING)
            return False
        return True

    def _note_failure(self, log: Log, error: OSError, level: int = logging.WARNING) -> None:
        LOGGER.log(level, "%s: its file %s cannot be written: %s", log.name, IDENTITY, error)
        self._due[log] = True
