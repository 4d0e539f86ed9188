"""The scrubber: reads all sealed segments now and then, to find damaged records before readers do.

Disks lose stored bits, seldom and silently. Readers notice some of it (the chain of headers is
checked on every read), but a batch that is not read may stay damaged for years. The scrubber reads
one segment at a time, at most `bytes_per_second`, past the page cache where the system can do that.
A partition with damaged batches goes offline; its directory is kept as it is.
"""

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import Final

import trio

from odradek.broker.environment.env import inline
from odradek.broker.partitions.upkeep.maintenance import Maintenance
from odradek.broker.storage.config import DAY_MS, MIB
from odradek.broker.storage.damage import DamagedSegment
from odradek.broker.storage.log import Log
from odradek.broker.storage.scrub import Offload, scrub
from odradek.broker.storage.segment import Segment
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError

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
    """Scrubs while `run` runs. Each pass takes the logs that exist at its start."""

    logs: Callable[[], Iterable[Maintenance]]
    take_offline: Callable[[Log, str], Awaitable[None]]
    """Called for a log with damaged batches, with what is wrong."""
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
        for upkeep in list(self.logs()):
            log = upkeep.log
            for segment in log.segments[:-1]:
                if log.failure is not None or log.is_deleted:
                    break
                if not segment.is_deleted:
                    await self._scrub(upkeep, segment)
            await trio.lowlevel.checkpoint()

    async def _scrub(self, upkeep: Maintenance, segment: Segment) -> None:
        log = upkeep.log
        try:
            await scrub(log, segment, self.offload, self._pause)
            if log.reader.has_rebuilt:
                await upkeep.checkpoint()
        except (DamagedSegment, OSError) as error:
            if segment.is_deleted or log.is_deleted:
                return
            if isinstance(error, OSError) and error.errno != errno.EIO:
                LOGGER.warning("%s is not scrubbed now: %s", segment.path(), error)
                return
            await self.take_offline(log, str(error))
        except KafkaError as error:
            LOGGER.debug("%s is not scrubbed: %s", log.name, error)

    async def _pause(self, size_bytes: int) -> None:
        await trio.sleep(size_bytes / self.config.bytes_per_second)
