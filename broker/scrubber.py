"""The scrubber: reads all sealed segments now and then, gently, to find rotten bits before readers.

What is stored rots, seldom and silently. Readers notice some of it (the chain of headers is checked
whenever it is read), but a batch that nobody reads may have been bad for years when it is needed.
One segment at a time is read, at most `bytes_per_second`, past the page cache where the system can
do that. A partition with damaged batches goes offline, everything in its directory kept.
"""

import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from odradek.broker.maintenance import inline
from odradek.broker.partition import Partition
from odradek.broker.storage.config import DAY_MS, MIB
from odradek.broker.storage.scrub import Offload, scrub
from odradek.broker.storage.segment import DamagedSegment, Segment
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
FIRST_AFTER_SECONDS: Final = 600.0
"""A broker that has just started has other things to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubConfig:
    """The broker's settings log.scrub.*."""

    interval_ms: int = DAY_MS
    bytes_per_second: int = 16 * MIB


@dataclass(slots=True)
class Scrubber:
    """`run` it. `partitions` returns those that there are now."""

    partitions: Callable[[], Sequence[Partition]]
    config: ScrubConfig = field(default_factory=ScrubConfig)
    offload: Offload = inline

    async def run(self) -> None:
        """Until cancelled: begin a pass once an interval, or when the last one has ended."""
        interval_seconds = self.config.interval_ms / 1000
        await trio.sleep(min(FIRST_AFTER_SECONDS, interval_seconds))
        while True:
            next_at = trio.current_time() + interval_seconds
            await self.scrub_all()
            await trio.sleep_until(next_at)

    async def scrub_all(self) -> None:
        """Read every sealed segment through, once."""
        for partition in self.partitions():
            for segment in partition.log.segments[:-1]:
                if partition.log.failure is not None or partition.log.is_deleted:
                    break
                if not segment.is_deleted:
                    await self._scrub(partition, segment)
            await trio.lowlevel.checkpoint()

    async def _scrub(self, partition: Partition, segment: Segment) -> None:
        try:
            await scrub(partition.log, segment, self.offload, self._pause)
            if partition.log.reader.has_rebuilt:
                await partition.checkpoint()
        except (DamagedSegment, OSError) as error:
            if segment.is_deleted or partition.log.is_deleted:
                return
            if isinstance(error, OSError) and error.errno != errno.EIO:
                LOGGER.warning("%s is not scrubbed now: %s", segment.path(), error)
                return
            partition.take_offline(str(error))
        except KafkaError as error:
            LOGGER.debug("%r is not scrubbed: %s", partition, error)

    async def _pause(self, size_bytes: int) -> None:
        await trio.sleep(size_bytes / self.config.bytes_per_second)
