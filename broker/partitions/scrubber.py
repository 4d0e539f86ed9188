"""The scrubber: reads all sealed segments now and then, to find damaged records before readers do.

Disks lose stored bits, seldom and silently. Readers notice some of it (the chain of headers is
checked on every read), but a batch that is not read may stay damaged for years. The scrubber reads
one segment at a time, at most `bytes_per_second`, past the page cache where the system can do that.
A partition with damaged batches goes offline; its directory is kept as it is.
"""

import errno
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.env import inline
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.config import DAY_MS, MIB
from odradek.broker.storage.scrub import Offload, scrub
from odradek.broker.storage.segment import DamagedSegment, Segment
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partitions import Partitions

LOGGER: Final = logging.getLogger(__name__)
FIRST_AFTER_SECONDS: Final = 600.0
"""A broker that has just started has more urgent reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubConfig:
    """The broker's settings log.scrub.*."""

    interval_ms: int = DAY_MS
    bytes_per_second: int = 16 * MIB


@dataclass(slots=True)
class Scrubber:
    """Scrubs while `run` runs. Each pass takes the partitions that exist at its start."""

    partitions: "Partitions"
    config: ScrubConfig = field(default_factory=ScrubConfig)
    offload: Offload = inline

    async def run(self) -> None:
        """Scrub until cancelled: start a pass at an interval, never before the last has ended."""
        interval_seconds = self.config.interval_ms / 1000
        await trio.sleep(min(FIRST_AFTER_SECONDS, interval_seconds))
        while True:
            next_at = trio.current_time() + interval_seconds
            await self.scrub_all()
            await trio.sleep_until(next_at)

    async def scrub_all(self) -> None:
        """Read every sealed segment through, once."""
        for partition in list(self.partitions):
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
            await self.partitions.take_offline(partition, str(error))
        except KafkaError as error:
            LOGGER.debug("%r is not scrubbed: %s", partition, error)

    async def _pause(self, size_bytes: int) -> None:
        await trio.sleep(size_bytes / self.config.bytes_per_second)
