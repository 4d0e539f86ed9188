"""The log cleaner: compacts this broker's logs in the background, the dirtiest first.

One log at a time; after each pass over all logs it waits for log.cleaner.backoff.ms. A log that is
found damaged is not compacted again until the broker is restarted, as in Kafka.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import trio

from odradek.broker.env import inline
from odradek.broker.partitions.maintenance import MAP_BYTES
from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.compaction.cleaner import Offload, Result
from odradek.broker.storage.compaction.plan import Plan
from odradek.broker.storage.config import KIB
from odradek.broker.storage.segment import DamagedSegment
from odradek.protocol.errors import KafkaError, ProtocolError

LOGGER: Final = logging.getLogger(__name__)
BACKOFF_MS: Final = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The broker's settings log.cleaner.*; those of a topic are in its `LogConfig`."""

    backoff_ms: int = BACKOFF_MS
    map_bytes: int = MAP_BYTES


@dataclass(slots=True)
class LogCleaner:
    """Compacts logs while `run` runs. Each pass takes the partitions that exist at its start."""

    partitions: Iterable[Partition]
    config: CleanerConfig = field(default_factory=CleanerConfig)
    offload: Offload = inline
    _damaged: set[Partition] = field(default_factory=set)
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
        due: list[tuple[Partition, Plan]] = []
        for partition in list(self.partitions):
            if partition.config.is_compacted and partition not in self._damaged:
                try:
                    plan = partition.plan_compaction()
                except (KafkaError, OSError) as error:
                    LOGGER.debug("%r is not compacted: %s", partition, error)
                    continue
                if plan is not None and plan.is_due:
                    due.append((partition, plan))
            await trio.lowlevel.checkpoint()
        self._damaged = {partition for partition in self._damaged if not partition.log.is_deleted}
        due.sort(key=lambda pair: pair[1].ratio, reverse=True)
        return sum([await self._clean(partition, plan) for partition, plan in due])

    async def _clean(self, partition: Partition, plan: Plan) -> bool:
        began = trio.current_time()
        try:
            result = await partition.compact(
                plan, map_bytes=self.config.map_bytes, offload=self.offload
            )
        except (DamagedSegment, ProtocolError) as error:
            partition.log.reader.damage = str(error)
            LOGGER.error("%r is not compacted until the next start: %s", partition, error)
            self._damaged.add(partition)
        except (KafkaError, OSError) as error:
            if not partition.log.is_deleted:
                LOGGER.warning("%r is not compacted now: %s", partition, error)
        else:
            if result is not None:
                _tell(partition, result, trio.current_time() - began)
                return True
        return False


def _tell(partition: Partition, result: Result, seconds: float) -> None:
    LOGGER.info(
        "%s-%d compacted: %.1f KiB in %d segments became %.1f KiB in %d, %d keys, in %.2f s",
        partition.topic,
        partition.index,
        result.bytes_before / KIB,
        result.segments_before,
        result.bytes_after / KIB,
        result.segments_after,
        result.key_count,
        seconds,
    )
