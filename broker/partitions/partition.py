"""One replica of a partition: its log, the marks of its readers, its settings, and its role.

Offsets, in this order:

    log start <= last stable offset <= high watermark <= log end

- *high watermark*: below it records are as durable as they will be: every in-sync replica has them,
  on disk with `log.flush=journal` or `ack`, appended with `os`.
- *last stable offset*: below it every transaction is decided, and its marker is below the high
  watermark. It is computed whenever one of its causes changes, so that a reader takes both numbers
  in one step and reads within them (KAFKA-9807).

Nothing here sleeps or polls: waiting readers (`watch.py`) are woken when the high watermark or the
last stable offset has moved.

A replica leads for one leader epoch at a time. Meanwhile it has a `Leader`, which appends and
serves clients. Without one it refuses clients with NOT_LEADER_OR_FOLLOWER; what waited when the
lead ended is refused, too.
"""

from typing import Final

from odradek.broker.environment.env import Clock
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.marks import Marks
from odradek.broker.partitions.openers import Openers
from odradek.broker.partitions.traffic import TopicTraffic
from odradek.broker.partitions.upkeep.background import Background
from odradek.broker.partitions.upkeep.maintenance import Maintenance
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.flush import Flusher
from odradek.broker.storage.log import Log
from odradek.broker.storage.producer_entry import ProducerEntry
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode, KafkaError

NO_EPOCH: Final = -1


class Partition:
    """One partition, made by `Partitions`."""

    def __init__(
        self,
        *,
        topic: str,
        index: int,
        log: Log,
        clock: Clock,
        background: Background,
        decompressor: Decompressor,
        traffic: TopicTraffic,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = log.topic_id
        self.by_id = TopicIdPartition.of(topic, index, log.topic_id)
        self.log = log
        self.leading: Leader | None = None
        """The leader, as long as this replica leads."""
        self.leader_epoch = NO_EPOCH
        self.marks = Marks(log)
        self.openers = Openers(log.producers)
        self._decompressor = decompressor
        self._clock = clock
        self._traffic = traffic
        self.flusher = Flusher(log, self._on_flushed)
        self.maintenance = Maintenance(
            topic, log, self.marks, self.flusher, background=background, clock=clock
        )

    def __repr__(self) -> str:
        return (
            f"<Partition {self.topic}-{self.index}: {self.log_start_offset} <= "
            f"{self.last_stable_offset} <= {self.high_watermark} <= {self.log_end_offset}>"
        )

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.marks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.marks.last_stable_offset

    def configure(self, config: LogConfig) -> None:
        """Apply other settings, and wake what waits for them."""
        self.log.config = self.log.reader.config = config
        self.log.producers.limit_to(config.producers_max, self.log.name)
        self.update_visible()  # min.insync.replicas may be smaller
        self.marks.followers.notify()

    # the role

    def leader(self) -> Leader:
        """Return what only a leader may do.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, and as `Log.check_available`.
        """
        self.log.check_available()
        if self.leading is None:
            message = f"{self.topic}-{self.index} is not led by this broker"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        return self.leading

    def begin_lead(self, view: InSyncView) -> None:
        """Lead the partition in a new leader epoch. Everything that waits in an older one fails."""
        assert view.leader_epoch >= self.leader_epoch, (view, self.leader_epoch)
        self._end_lead()
        self.log.epochs.assign(view.leader_epoch, self.log_end_offset)
        view.start_offset = self.log_end_offset
        self.leading = Leader(
            by_id=self.by_id,
            view=view,
            log=self.log,
            marks=self.marks,
            maintenance=self.maintenance,
            openers=self.openers,
            decompressor=self._decompressor,
            clock=self._clock,
            traffic=self._traffic,
        )
        self.leader_epoch = view.leader_epoch
        self.update_visible()

    def end_lead(self, leader_epoch: int) -> None:
        """Lead no more: the partition has another leader, or none, in `leader_epoch`."""
        assert leader_epoch >= self.leader_epoch, (leader_epoch, self.leader_epoch)
        self._end_lead()
        self.leader_epoch = leader_epoch

    def _end_lead(self) -> None:
        leader, self.leading = self.leading, None
        if leader is not None:
            leader.end()
        else:
            self.marks.wake()

    def take_offline(self, reason: str) -> None:
        """Refuse everything from now on with KAFKA_STORAGE_ERROR: its stored data is damaged.

        `reason` is one sentence for the log: what is wrong, and where. Only the first counts.
        """
        self.maintenance.take_offline(reason)
        self._give_up()

    def _give_up(self) -> None:
        """Wake everything that waits: the log takes nothing more."""
        if self.leading is not None:
            self.leading.give_up()
        else:
            self.marks.wake()

    def update_visible(self) -> None:
        """Compute high watermark and last stable offset, and wake readers if either has moved."""
        if self.leading is not None:
            self.leading.update_visible()
            return
        self.marks.move(self.marks.high_watermark)
        if self.log.failure is not None:
            self.marks.wake()

    # the disk

    def _on_flushed(self) -> None:
        """Take the result of an fsync, which may have failed."""
        self.maintenance.on_flushed()
        self.update_visible()

    async def wait_flushed(self, next_offset: int) -> None:
        """See `Maintenance.wait_flushed`."""
        await self.maintenance.wait_flushed(next_offset)

    async def flush(self) -> None:
        """Wait until what was appended before the call is on disk. Raises KafkaError."""
        await self.flusher.flush(self.log_end_offset)

    async def checkpoint(self) -> None:
        """See `Maintenance.checkpoint`."""
        await self.maintenance.checkpoint()

    async def close(self) -> None:
        """See `Maintenance.close`."""
        await self.maintenance.close()

    async def discard(self) -> None:
        """Refuse every request from now on, as the topic is deleted, and wake the waiting readers.

        On return the directory is not used any more.
        """
        self.log.is_deleted = True
        self._give_up()
        await self.maintenance.discard()

    # what is in it

    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction here, the earliest transaction first."""
        return self.log.producers.open_transactions()
