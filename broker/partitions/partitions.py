"""This broker's partitions, and the background work for all of them.

- Appends are flushed, and checkpoints written (`background.py`).
- Retention, rolling by time, expiry of producers, compaction and scrubbing run now and then.
- Directories of deleted topics, which were only renamed, are removed.
- The files `topic.meta` follow the settings of their topics (`identities.py`).

What is known of the run before, and noted for the next one, is in `run_notes.py`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

import trio

from odradek.broker.environment.env import Clock, Disk, DiskUsage, inline
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.answers import Appended, ReadResult
from odradek.broker.partitions.directories import PartitionDirectories
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.run_notes import RunNotes
from odradek.broker.partitions.traffic import Traffic
from odradek.broker.partitions.troubles import Troubles
from odradek.broker.partitions.unopened import OfflineCause, UnopenedPartitions, why_missing
from odradek.broker.partitions.upkeep.background import Background
from odradek.broker.partitions.upkeep.identities import Identities
from odradek.broker.partitions.upkeep.log_cleaner import CleanerConfig, LogCleaner
from odradek.broker.partitions.upkeep.maintenance import Maintenance
from odradek.broker.partitions.upkeep.retention import RetentionLoop
from odradek.broker.partitions.upkeep.scrubber import Scrubber, ScrubConfig
from odradek.broker.storage.compaction.cleaner import Offload
from odradek.broker.storage.config import MIB, FlushPolicy, LogConfig
from odradek.broker.storage.damage import DamagedLog, DamagedSegment, ForeignFile, Others
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.files import OpenFiles
from odradek.broker.storage.identity import Identity
from odradek.broker.storage.journal import BrokerJournal
from odradek.broker.storage.log import Log
from odradek.broker.storage.log_state import Recovered
from odradek.broker.storage.reserve import ReservedDisk
from odradek.broker.values.histogram import Histogram
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

__all__ = ["Appended", "Partition", "Partitions", "ReadResult"]

LOGGER: Final = logging.getLogger(__name__)
RETENTION_CHECK_MS: Final = 300_000
PRODUCER_EXPIRATION_CHECK_MS: Final = 600_000
CLOSED_AT_ONCE: Final = 8
NOBODY: Final = -1


@dataclass(slots=True)
class Opened:
    """The work that opening all logs took."""

    partition_count: int = 0
    read_bytes: int = 0
    cut_off_bytes: int = 0

    def add(self, recovered: Recovered) -> None:
        self.partition_count += 1
        self.read_bytes += recovered.read_bytes
        self.cut_off_bytes += recovered.cut_off_bytes

    def summary(self, *, was_clean: bool) -> str:
        """Return it in words. `was_clean` is True if the last run has closed all logs."""
        if not self.partition_count:
            return "nothing to recover"
        how = "after a clean stop" if was_clean else "after a crash"
        text = f"{self.partition_count} partitions {how}, {self.read_bytes / MIB:.1f} MiB read"
        return f"{text}, {self.cut_off_bytes} bytes cut off" if self.cut_off_bytes else text


class Partitions:
    """All partitions: `open` or `create` them, then `run`, in the end `close`."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        clock: Clock,
        retention_check_interval_ms: int = RETENTION_CHECK_MS,
        producer_expiration_check_interval_ms: int = PRODUCER_EXPIRATION_CHECK_MS,
        cleaner: CleanerConfig | None = None,
        scrub: ScrubConfig | None = None,
        offload: Offload = inline,
        flush: FlushPolicy = FlushPolicy.ACK,
        exists_elsewhere: Callable[[TopicPartition], bool] = lambda _where: False,
        fsyncs: Histogram | None = None,
    ) -> None:
        """`exists_elsewhere` returns True if other brokers have a replica of a partition.

        `fsyncs` notes the times of fsyncs, if anything reads them.
        """
        self._disk = disk if isinstance(disk, ReservedDisk) else ReservedDisk(disk, directory)
        self._directory = directory
        self._clock = clock
        upkeep_seconds = retention_check_interval_ms / 1000
        self._retention = RetentionLoop(self.kept_logs, self._disk, upkeep_seconds)
        self._expiration_seconds = producer_expiration_check_interval_ms / 1000
        self.cleaner = LogCleaner(self.kept_logs, cleaner or CleanerConfig(), offload)
        self._scrubber = Scrubber(self.kept_logs, self.on_damage, scrub or ScrubConfig(), offload)
        self.directories = PartitionDirectories(self._disk, directory, upkeep_seconds)
        journal = (
            BrokerJournal(self._disk, directory, fsyncs) if flush is FlushPolicy.JOURNAL else None
        )
        self.journal: Final = journal
        self._background = Background(journal)
        self._decompressor = Decompressor(offload)
        self._files = OpenFiles(self._disk, journal=journal, fsyncs=fsyncs)
        self.identities = Identities(self._disk)
        self._partitions: dict[TopicPartition, Partition] = {}
        self.traffic: Final = Traffic()
        self.unopened = UnopenedPartitions()
        self.troubles = Troubles(self._files, self.find)
        self.run_notes = RunNotes(
            self._disk,
            directory,
            flush,
            self.damaged_partitions,
            self._files,
            self.unopened.keys,
        )
        self._has_begun = False
        self._opened = Opened()
        self._exists_elsewhere = exists_elsewhere

    # which there are

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def leader(self, topic: str, index: int) -> Leader:
        """Return the leader of a partition.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR
        if it is offline.
        """
        return self._replica(topic, index).leader()

    def get_replica(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads or follows. Raises KafkaError as `leader`."""
        found = self._replica(topic, index)
        found.log.check_available()
        return found

    def _replica(self, topic: str, index: int) -> Partition:
        where = TopicPartition(topic, index)
        found = self._partitions.get(where)
        if found is None:
            self.unopened.check(where)
            if self._exists_elsewhere(where):
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is on other brokers"
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} is not on this broker"
            )
        return found

    def find(self, where: TopicPartition) -> Partition | None:
        """Return this broker's replica of a partition, whatever its role; None without one."""
        return self._partitions.get(where)

    @property
    def is_journaled(self) -> bool:
        """True if the journal takes what is appended."""
        return self._files.is_journaled

    def usage(self) -> DiskUsage:
        """Return the disk of the data directory."""
        return self._disk.usage(self._directory)

    def is_offline(self, topic: str, index: int) -> bool:
        """Return True if the log of a partition could not be opened, or has failed since."""
        where = TopicPartition(topic, index)
        found = self._partitions.get(where)
        if found is None:
            return where in self.unopened or where in self.run_notes.missing
        return found.log.failure is not None

    def damaged_partitions(self) -> list[TopicPartition]:
        """Return the partitions that are offline because their stored data is damaged."""
        opened = [each for each in self.troubles.partitions() if each.log.is_damaged]
        return [
            *self.unopened.damaged_partitions(),
            *(TopicPartition(each.topic, each.index) for each in opened),
        ]

    def topic_id_of(self, where: TopicPartition) -> UUID | None:
        """Return the topic whose log is here, opened or not; None without one."""
        found = self._partitions.get(where)
        return self.unopened.topic_id_of(where) if found is None else found.topic_id

    def all(self) -> list[Partition]:
        return list(self._partitions.values())

    @property
    def recovery_summary(self) -> str:
        """Return a summary of the opening, for the start-up line."""
        return f"{self._opened.summary(was_clean=self.run_notes.was_clean)}{self.unopened}"

    # opening and closing

    async def open(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        config: LogConfig,
        *,
        leader_epoch: int | None = 0,
        identity: Identity | None = None,
        others: Others = Others.NONE,
    ) -> Partition:
        """Open and recover a partition's log; create it if it does not exist.

        This broker leads it as the only replica in `leader_epoch`; with None it does not lead it
        yet. `identity` is kept in the directory. With `others` less is forgiven after a power
        failure (`recovery.py`). Raises OSError, `DamagedSegment`; `ForeignDirectory` if the
        directory is another topic's.
        """
        where = TopicPartition(topic, index)
        assert where not in self._partitions, where
        await self.begin()
        directory = self.directories.of(where)
        found = await self.directories.check_owner(where, topic_id)
        # Of a log that could not be opened, and was set aside: its directory had the same name.
        self._files.close_in(directory)
        log, recovered = await Log.open(
            self._files,
            directory,
            topic_id=topic_id,
            config=config,
            now_ms=self._clock.wall_ms(),
            rules=self.run_notes.rules(str(where), others, (topic_id.bytes, index)),
            has_identity=identity is not None,
        )
        self._opened.add(recovered)
        if identity is not None:
            await self.identities.on_opened(log, recovered, identity, found)
        partition = Partition(
            topic=topic,
            index=index,
            log=log,
            clock=self._clock,
            background=self._background,
            decompressor=self._decompressor,
            traffic=self.traffic.on_opened(topic),
        )
        if leader_epoch is not None:
            partition.begin_lead(InSyncView.alone(NOBODY, leader_epoch))
        self._partitions[where] = partition
        return partition

    def keep_missing(self, topic: str, topic_id: UUID, index: int, *, is_only: bool) -> None:
        """Note that a partition's log is lost, and that no other replica is whole.

        `is_only` is True if it has no other replica.
        """
        where = TopicPartition(topic, index)
        directory = self.directories.of(where)
        reason = why_missing(
            directory, where, is_there=self._disk.exists(directory), is_only=is_only
        )
        self.unopened.add(where, topic_id, reason, OfflineCause.MISSING)
        LOGGER.error("%s is offline: %s", where, reason)

    def keep_offline(self, topic: str, topic_id: UUID, index: int, error: Exception) -> None:
        """Note that `open` could not open a partition, and why. Its directory is left as it is."""
        where = TopicPartition(topic, index)
        if isinstance(error, OSError | DamagedSegment):
            is_damaged = isinstance(error, DamagedLog | DamagedSegment | ForeignFile)
            cause = OfflineCause.DAMAGED if is_damaged else OfflineCause.DISK
            reason = str(error)
        else:
            cause = OfflineCause.DAMAGED
            reason = (
                f"{self._directory}/{where} has files that no version of the broker has written "
                f"({type(error).__name__}: {error})"
            )
            LOGGER.debug("%s cannot be opened", where, exc_info=error)
        self.unopened.add(where, topic_id, reason, cause)
        LOGGER.error("%s is offline, and nothing in its directory is changed: %s", where, reason)

    async def take_offline(self, partition: Partition, reason: str) -> None:
        """See `Partition.take_offline`. The damage is noted on disk for the next start."""
        partition.take_offline(reason)
        await self.run_notes.write()

    async def on_damage(self, log: Log, reason: str) -> None:
        """Take the partition of a log offline."""
        for partition in self.all():
            if partition.log is log:
                await self.take_offline(partition, reason)

    async def create(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        config: LogConfig,
        *,
        leader_epoch: int | None = 0,
        identity: Identity | None = None,
        others: Others = Others.NONE,
    ) -> Partition:
        """Create an empty log, and set aside a directory in its place. Raises OSError."""
        where = TopicPartition(topic, index)
        assert where not in self._partitions, where
        self._disk.check_room()
        await self.directories.make_way(where)
        return await self.open(
            topic,
            topic_id,
            index,
            config,
            leader_epoch=leader_epoch,
            identity=identity,
            others=others,
        )

    async def delete(self, topic: str, indexes: Iterable[int]) -> None:
        """Remove all these partitions; their files are deleted in the background.

        Raises the first OSError if some directories cannot be renamed.
        """
        failures: list[OSError] = []
        for where in [TopicPartition(topic, index) for index in indexes]:
            partition = self._partitions.pop(where, None)
            topic_id = self.unopened.discard(where)
            self.run_notes.missing.discard(where)
            if partition is not None:
                self._background.forget(partition.maintenance)
                self.traffic.on_closed(topic)
                await partition.discard()
            try:
                if partition is not None:
                    self.directories.throw_away(where, partition.topic_id)
                elif topic_id is not None and await self.directories.may_be(where, topic_id):
                    self.directories.throw_away(where, topic_id)
            except OSError as error:
                failures.append(error)
        await self.directories.sync()
        await self.run_notes.write()  # other logs may get these names
        if failures:
            raise failures[0]

    async def give_up(self, where: TopicPartition) -> None:
        """Serve a partition no more, and leave its directory as it is."""
        self.unopened.discard(where)
        partition = self._partitions.pop(where, None)
        if partition is not None:
            self._background.forget(partition.maintenance)
            self.traffic.on_closed(where.topic)
            await partition.discard()
        await self.run_notes.write()

    async def remove_deleted(self, topic: str, topic_id: UUID) -> None:
        """Remove every directory that is left of a deleted topic. Raises OSError."""
        await self.begin()
        await self.directories.remove_deleted(topic, topic_id)

    async def begin(self) -> None:
        """Read what earlier runs have left, before anything is opened. Raises OSError.

        Calling it again changes nothing.
        """
        if self._has_begun:
            return
        await self.run_notes.begin()
        self.directories.find_thrown_away()
        self._has_begun = True

    def warn_of_strangers(self) -> None:
        """Log the directories that belong to no topic, once everything is open. Raises OSError."""
        known = {str(where) for where in (*self._partitions, *self.unopened)}
        self.directories.warn_of_strangers(known)

    async def close(self) -> None:
        """Flush and close every log. If all succeed, write the file `clean-shutdown`."""
        await self.begin()
        # The mark would say that every log ends with a checkpoint.
        is_clean = not self.unopened
        waiting = iter(self.all())

        async def close_some() -> None:
            nonlocal is_clean
            for partition in waiting:
                try:
                    await partition.close()
                except (KafkaError, OSError) as error:
                    LOGGER.warning("%r could not be closed cleanly: %s", partition, error)
                    is_clean = False

        async with trio.open_nursery() as nursery:
            for _ in range(CLOSED_AT_ONCE):
                nursery.start_soon(close_some)
        await self.run_notes.write()  # also what was found damaged meanwhile
        self._partitions.clear()
        self._files.close_all()
        if is_clean:
            await self.run_notes.mark_clean()

    # in the background

    def kept_logs(self) -> list[Maintenance]:
        """Return the upkeep of all logs."""
        return [partition.maintenance for partition in self._partitions.values()]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the background work until cancelled."""
        await self.begin()
        try:
            async with trio.open_nursery() as nursery:
                self.identities.begin(nursery)
                nursery.start_soon(self._background.run)
                nursery.start_soon(self._retention.run)
                nursery.start_soon(self._expire_producers)
                nursery.start_soon(self.directories.run)
                nursery.start_soon(self.cleaner.run)
                nursery.start_soon(self._scrubber.run)
                nursery.start_soon(self._note_failure)
                task_status.started()
        finally:
            self.identities.end()

    async def _note_failure(self) -> None:
        await self._files.has_failed.wait()
        await self.run_notes.write()

    async def _expire_producers(self) -> None:
        while True:
            await trio.sleep(self._expiration_seconds)
            for partition in self.all():
                now_ms, config = self._clock.wall_ms(), partition.config
                silent = partition.log.producers.expire(
                    now_ms - config.producer_id_expiration_ms,
                    now_ms - config.member_producer_expiration_ms,
                )
                expired = await Turns().do(silent)
                if expired:
                    LOGGER.info("%r: forgot %d silent producers", partition, len(expired))
                await trio.lowlevel.checkpoint()
