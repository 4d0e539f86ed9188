"""Retention, now and then for all partitions; and at once, again and again, while the disk is full.

That is also when it is looked whether a full disk has room again.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import trio

from odradek.broker.partition import Partition
from odradek.broker.storage.reserve import DISK_FULL, ReservedDisk
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
FULL_SECONDS: Final = 10.0
"""The interval of retention while the disk is full."""


class RetentionLoop:
    """`run` it. `partitions` returns those that there are now."""

    def __init__(
        self, partitions: Callable[[], Sequence[Partition]], disk: ReservedDisk, seconds: float
    ) -> None:
        self._partitions = partitions
        self._disk = disk
        self._seconds = seconds
        self._is_full = trio.Event()
        disk.on_full = self._disk_is_full

    def _disk_is_full(self) -> None:
        self._is_full.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._disk.is_full and not self._is_full.is_set():
                await trio.sleep(min(FULL_SECONDS, self._seconds))
            else:
                with trio.move_on_after(self._seconds):
                    await self._is_full.wait()
            self._is_full = trio.Event()
            await self.enforce()

    async def enforce(self) -> None:
        """Let every partition throw away what is too old or too much."""
        for partition in self._partitions():
            if partition.log.failure is not None:  # nothing of it may go
                continue
            try:
                await partition.enforce_retention()
            except (KafkaError, OSError) as error:
                is_full = isinstance(error, OSError) and error.errno in DISK_FULL
                level = logging.DEBUG if is_full else logging.WARNING
                LOGGER.log(level, "%r: retention failed: %s", partition, error)
            await trio.lowlevel.checkpoint()
        if self._disk.is_full:
            try:
                self._disk.check_room()
            except OSError as error:
                LOGGER.debug("still no room: %s", error)
