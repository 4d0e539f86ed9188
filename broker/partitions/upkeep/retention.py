"""Retention for all logs: at an interval, and more often while the disk is full.

After each pass it is checked whether a full disk has room again.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

import trio

from odradek.broker.partitions.upkeep.maintenance import Maintenance
from odradek.broker.storage.reserve import DISK_FULL, ReservedDisk
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
FULL_SECONDS: Final = 10.0
"""The interval of retention while the disk is full."""


class RetentionLoop:
    """Enforces retention while `run` runs. Each pass takes the logs that exist then."""

    def __init__(
        self, logs: Callable[[], Iterable[Maintenance]], disk: ReservedDisk, seconds: float
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._seconds = seconds

    async def run(self) -> None:
        """Enforce retention until cancelled."""
        while True:
            if self._disk.is_full and not self._disk.has_filled.is_set():
                await trio.sleep(min(FULL_SECONDS, self._seconds))
            else:
                with trio.move_on_after(self._seconds):
                    await self._disk.has_filled.wait()
            self._disk.has_filled = trio.Event()
            await self.enforce()

    async def enforce(self) -> None:
        """Remove what is too old or too much from every log."""
        for upkeep in list(self._logs()):
            if upkeep.log.failure is not None:  # nothing of it may go
                continue
            try:
                await upkeep.enforce_retention()
            except (KafkaError, OSError) as error:
                is_full = isinstance(error, OSError) and error.errno in DISK_FULL
                level = logging.DEBUG if is_full else logging.WARNING
                LOGGER.log(level, "%s: retention failed: %s", upkeep.log.name, error)
            await trio.lowlevel.checkpoint()
        if self._disk.is_full:
            try:
                self._disk.check_room()
            except OSError as error:
                LOGGER.debug("still no room: %s", error)
