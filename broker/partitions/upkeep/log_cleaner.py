"""The log cleaner: compacts this broker's logs in the background, the dirtiest first.

One log at a time; after each pass over all logs it waits for log.cleaner.backoff.ms. A log that is
found damaged is not compacted again until the broker is restarted, as in Kafka.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final

import trio

from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import inline
from odradek.broker.partitions.upkeep.maintenance import MAP_BYTES, Maintenance
from odradek.broker.storage.compaction.cleaner import Offload, Result
from odradek.broker.storage.compaction.plan import Plan
from odradek.broker.storage.config import KIB
from odradek.broker.storage.damage import DamagedSegment
from odradek.broker.storage.log import Log
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError, ProtocolError

LOGGER: Final = logging.getLogger(__name__)
BACKOFF_MS: Final = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The broker's settings log.cleaner.*; those of a topic are in its `LogConfig`."""

    backoff_ms: int = BACKOFF_MS
    map_bytes: int = MAP_BYTES

    @classmethod
    def of(cls, config: BrokerConfig) -> "CleanerConfig":
        return cls(
            backoff_ms=config.log_cleaner_backoff_ms,
            map_bytes=config.log_cleaner_dedupe_buffer_size,
        )


@dataclass(slots=True)
class LogCleaner:
    """Compacts logs while `run` runs. Each pass takes the logs that exist at its start."""

    logs: Callable[[], Iterable[Maintenance]]
    config: CleanerConfig = field(default_factory=CleanerConfig)
    offload: Offload = inline
    _damaged: set[Log] = field(default_factory=set)
    _reconfigured: trio.Event = field(default_factory=trio.Event)

    def configure(self, config: CleanerConfig) -> None:
        """Change the settings. A pause that is under way begins again if they differ."""
        if config != self.config:
            self.config = config
            self._reconfigured.set()

    async def run(self) -> None:
        """Compact until cancelled."""
        while True:
            self._reconfigured = trio.Event()
            with trio.move_on_after(self.config.backoff_ms / 1000) as pause:
                await self._reconfigured.wait()
            if pause.cancelled_caught:
                await self.clean_what_is_due()

    async def clean_what_is_due(self) -> int:
        """Compact every log that is due. Return how many were compacted."""
        due: list[tuple[Maintenance, Plan]] = []
        # Most logs are not compacted: they are passed over without a pause for other tasks.
        for upkeep in [upkeep for upkeep in self.logs() if upkeep.log.config.is_compacted]:
            log = upkeep.log
            if log not in self._damaged:
                try:
                    plan = upkeep.plan()
                except (KafkaError, OSError) as error:
                    LOGGER.debug("%s is not compacted: %s", log.name, error)
                    continue
                if plan is not None and plan.is_due:
                    due.append((upkeep, plan))
            await trio.lowlevel.checkpoint()
        self._damaged = {log for log in self._damaged if not log.is_deleted}
        due.sort(key=lambda pair: pair[1].ratio, reverse=True)
        return sum([await self._clean(upkeep, plan) for upkeep, plan in due])

    async def _clean(self, upkeep: Maintenance, plan: Plan) -> bool:
        began, log = trio.current_time(), upkeep.log
        try:
            result = await upkeep.compact(
                plan, map_bytes=self.config.map_bytes, offload=self.offload
            )
        except (DamagedSegment, ProtocolError) as error:
            log.reader.note_damage(str(error))
            LOGGER.error("%s is not compacted until the next start: %s", log.name, error)
            self._damaged.add(log)
        except (KafkaError, OSError) as error:
            if not log.is_deleted:
                LOGGER.warning("%s is not compacted now: %s", log.name, error)
        else:
            if result is not None:
                _tell(log, result, trio.current_time() - began)
                return True
        return False


def _tell(log: Log, result: Result, seconds: float) -> None:
    LOGGER.info(
        "%s compacted: %.1f KiB in %d segments became %.1f KiB in %d, %d keys, in %.2f s",
        log.name,
        result.bytes_before / KIB,
        result.segments_before,
        result.bytes_after / KIB,
        result.segments_after,
        result.key_count,
        seconds,
    )
