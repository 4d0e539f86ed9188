"""The logs of topics on this broker: between the cluster's image and the partitions."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import trio

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.made_logs import MadeLogs
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.config.records import LZ4_DEFAULT, PRODUCER
from odradek.broker.config.topic import min_insync_replicas, state_topic_configs, topic_value
from odradek.broker.environment.turns import STEPS_PER_TURN, Turns
from odradek.broker.partitions.directories import ForeignDirectory
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import Compression, FlushPolicy, LogConfig
from odradek.broker.storage.damage import Others
from odradek.broker.storage.identity import Identity
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.batch import Codec, TimestampType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC

OPENED_AT_ONCE: Final = 8
SHOWN: Final = 10
NOTING_SECONDS: Final = 1.0
"""The time for which a stopping broker waits for the metadata store to note its logs."""
OPEN_STEPS: Final = STEPS_PER_TURN
"""The cost of opening one log, in steps of a turn: a new log never waits for the disk."""
LOGGER: Final = logging.getLogger(__name__)


class LocalTopicLogs:
    """The logs of this broker's replicas. None of them is led before the image says so."""

    def __init__(
        self,
        partitions: Partitions,
        settings: LiveConfig,
        *,
        made_logs: MadeLogs,
        cluster_id: str = "",
    ) -> None:
        """`made_logs` has been loaded."""
        self._partitions = partitions
        self._made_logs = made_logs
        self.settings = settings
        self._cluster_id = cluster_id
        self._begun_anew: list[str] = []
        self.changing = trio.Lock()
        """Held while logs are made or removed after the start."""

    def here(self, topic: TopicImage, indexes: Iterable[int] | None = None) -> list[int]:
        """Return the partitions of a topic, or those of `indexes`, that have a replica here."""
        wanted = range(len(topic.partitions)) if indexes is None else indexes
        node_id = self._config.node_id
        return [index for index in wanted if node_id in topic.partitions[index].replicas]

    @property
    def _config(self) -> BrokerConfig:
        return self.settings.now

    def has_any(self, name: str, indexes: Iterable[int]) -> bool:
        """Return True if there is a log of one of these partitions."""
        return any(
            self._partitions.find(TopicPartition(name, index)) is not None for index in indexes
        )

    async def open_all(self, image: ClusterImage) -> int:
        """Open the log of every partition, recovered; how many there are.

        A partition whose log cannot be opened is offline, and the others are served. Raises OSError
        if the data directory itself cannot be used.
        """
        wanted = [(topic, index) for topic in image.topics.values() for index in self.here(topic)]
        await self._partitions.begin()
        # A killed broker may have left markers whose decision is in the page cache only
        # (`values/precedent.py`). It is on disk before they are.
        # invariant journal 6
        for is_of_decisions in (True, False):
            some = [each for each in wanted if _has_decisions(each[0]) is is_of_decisions]
            await self._open(some, is_start=True)
        await self._partitions.run_notes.on_all_open()
        self._partitions.warn_of_strangers()
        self._say_what_begins_anew(len(wanted))
        return len(wanted)

    async def _is_here(self, topic: TopicImage, index: int) -> bool:
        """Return True if a replica is to be opened; note one whose log is lost.

        - A log that is not noted as made has acknowledged nothing. It is made.
        - A log that is the only one and was made here before is not made again, unless a person has
          given it up.
        - A replica that was in sync, and of which there are others, is not made here as long as
          another one is whole: it must not lead with an empty log. If none is, it is made only if
          it is not noted. An earlier version noted nothing; then a power failure explains it.
        """
        where = TopicPartition(topic.name, index)
        try:
            if await self._partitions.directories.has_log(where):
                return True
        except OSError as error:
            self._partitions.keep_offline(topic.name, topic.topic_id, index, error)
            return False
        partition = topic.partitions[index]
        others = self._others(partition)
        was_made = self._made_logs.has(topic.topic_id, index)
        # invariant disk 11: A log that was made on this broker and is lost is not made again. An
        # only replica stays offline until the directory is back, or a person gives it up.
        # plant an only log that is lost is made anew without a word
        # plant an only replica that was never noted waits for a person although no power was lost
        # plant a replica that led last leads again without its log
        if others is Others.NONE:
            if was_made and not self._partitions.directories.is_given_up(where):
                self._partitions.keep_missing(topic.name, topic.topic_id, index, is_only=True)
                return False
            return True
        node_id = self._config.node_id
        sets = (*partition.isr, *partition.elr) or (partition.last_leader,)
        if node_id not in sets:
            return True
        if others is Others.WHOLE:
            self._partitions.run_notes.missing.add(where)
        elif not was_made and (
            self._partitions.run_notes.lacks_records or not self._made_logs.is_first_run
        ):
            return True
        else:
            self._partitions.keep_missing(topic.name, topic.topic_id, index, is_only=False)
        return False

    def _say_what_begins_anew(self, here_count: int) -> None:
        """Log which logs were made at the start, and what an earlier version did not note."""
        begun, self._begun_anew = sorted(self._begun_anew), []
        if begun:
            more = f" and {len(begun) - SHOWN} more" if begun[SHOWN:] else ""
            LOGGER.warning(
                "these partitions had no log and begin empty: %s%s", ", ".join(begun[:SHOWN]), more
            )
        if here_count and self._made_logs.is_first_run:
            LOGGER.warning(
                "from now on this broker notes which logs it has made, and keeps a partition "
                "offline whose log is lost. %s",
                "What those had that begin empty cannot be known: if they are not new, stop the "
                "broker, and look for their directories"
                if begun
                else "What was lost before cannot be known",
            )

    async def create(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Make empty logs for some partitions of a topic."""
        try:
            await self._open([(topic, index) for index in indexes])
        except OSError as error:
            await self.delete(topic, indexes)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The logs of {topic.name} cannot be made: {error.strerror}.",
            ) from error

    def configure(self, topic: TopicImage) -> None:
        """Apply the settings that a topic has now to its logs; they are noted on disk later."""
        config = log_config(topic, self._config)
        for index in self.here(topic):
            partition = self._partitions.find(TopicPartition(topic.name, index))
            if partition is None or partition.topic_id != topic.topic_id:
                continue
            if partition.config != config:
                partition.configure(config)
            self._partitions.identities.keep(partition.log, self._identity(topic, index))

    async def _open(
        self, wanted: Iterable[tuple[TopicImage, int]], *, is_start: bool = False
    ) -> None:
        """Open or make logs, several at a time: most of it is waiting for the disk.

        At the start logs are opened, and one that cannot be is kept offline. Later they are made,
        and the first failure is raised as OSError.
        """
        failures: list[OSError] = []
        configs: dict[str, LogConfig] = {}
        waiting = iter(wanted)

        async def open_some() -> None:
            turns = Turns()
            for topic, index in waiting:
                await turns.take(OPEN_STEPS)
                if topic.name not in configs:
                    configs[topic.name] = log_config(topic, self._config)
                where = TopicPartition(topic.name, index)
                try:
                    with self._partitions.directories.keep_names(where):
                        await self._open_one(topic, index, configs[topic.name], is_start=is_start)
                # One log that makes no sense must not keep all others from being served. So
                # anything counts at the start, our own failed assertions as well: a log that
                # opens wrongly is offline.
                # invariant files 1: One log that makes no sense takes its partition offline, and no
                # other.
                # plant one log that makes no sense keeps the broker from starting
                # plant a header is read out of fewer bytes than it has
                # tests/broker/cluster/test_wrong_files.py
                except Exception as error:
                    if is_start:
                        self._partitions.keep_offline(topic.name, topic.topic_id, index, error)
                    elif isinstance(error, OSError):
                        failures.append(error)
                    else:
                        raise
                if failures:
                    return

        async with trio.open_nursery() as nursery:
            for _ in range(OPENED_AT_ONCE):
                nursery.start_soon(open_some)
        if failures:
            raise failures[0]

    async def _open_one(
        self, topic: TopicImage, index: int, config: LogConfig, *, is_start: bool
    ) -> None:
        """Open or make one log, unless it is lost. Raises OSError, DamagedSegment."""
        open_one = partial(
            self._partitions.open if is_start else self._partitions.create,
            topic.name,
            topic.topic_id,
            index,
            config,
            leader_epoch=None,
            identity=self._identity(topic, index),
            others=self._others(topic.partitions[index]),
        )
        where = TopicPartition(topic.name, index)
        if is_start and not await self._is_here(topic, index):
            return
        directories = self._partitions.directories
        others = self._others(topic.partitions[index])
        is_new = not is_start or not await directories.has_log(where)
        try:
            partition = await open_one()
        except ForeignDirectory:
            # This broker may have been about to create the topic when it died. Another one has
            # created it since.
            if not (is_start and await directories.remove_empty(where)):
                raise
            if not await self._is_here(topic, index):
                return
            is_new = True
            partition = await open_one()
        if is_start and is_new and others is not Others.WHOLE:
            self._begun_anew.append(str(where))
        if is_start and others is Others.NONE:
            await directories.forget_given_up(where)
        await self._note(partition, is_new=is_new)

    async def _note(self, partition: Partition, *, is_new: bool) -> None:
        """Note that a log is here, before anything in it is acknowledged."""
        topic_id, index = partition.topic_id, partition.index
        directory = self._partitions.directories.of(TopicPartition(partition.topic, index))

        def on_noted() -> None:
            partition.marks.held_by = None
            partition.update_visible()

        if not self._made_logs.has(topic_id, index):
            # In what an earlier version made records are acknowledged already.
            if is_new or not self._made_logs.is_first_run:
                partition.marks.held_by = partial(self._made_logs.hurry, topic_id, index)
            self._made_logs.note_made(topic_id, index, directory, on_noted)
        elif is_new:  # in place of one that is given up, or damaged
            await self._partitions.directories.flush_names([directory])

    def _others(self, partition: PartitionImage) -> Others:
        if len(partition.replicas) == 1:
            return Others.NONE
        is_whole = any(n != self._config.node_id for n in (*partition.isr, *partition.elr))
        return Others.WHOLE if is_whole else Others.REPLICAS

    def _identity(self, topic: TopicImage, index: int) -> Identity:
        return Identity(
            where=TopicPartition(topic.name, index),
            topic_id=topic.topic_id,
            partition_count=len(topic.partitions),
            configs=topic.configs,
            cluster_id=self._cluster_id,
            is_by_tag=topic.is_by_tag,
        )

    async def delete(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Remove some logs of a topic, as far as the disk lets it."""
        self._made_logs.note_gone(topic.topic_id, indexes)
        try:
            await self._partitions.delete(topic.name, indexes)
        except OSError as error:
            LOGGER.warning("the logs of %s cannot be removed: %s", topic.name, error)

    async def note_made(self) -> None:
        """Note which logs were made here, until cancelled."""
        await self._made_logs.run(self._partitions.directories.flush_names)

    async def note_made_now(self) -> None:
        """Note which logs were made here, before this broker stops. Failures are logged."""
        try:
            with trio.move_on_after(NOTING_SECONDS):
                await self._made_logs.write(self._partitions.directories.flush_names)
        except (OSError, KafkaError) as error:
            LOGGER.warning("it is not noted which logs were made: %s", error)

    async def remove_deleted(self, name: str, topic_id: UUID) -> bool:
        """Remove what is still there of a deleted topic; False if the disk does not let it."""
        try:
            await self._partitions.remove_deleted(name, topic_id)
        except OSError as error:
            LOGGER.warning(
                "what is left of the deleted topic %s cannot be removed yet: %s", name, error
            )
            return False
        return True


def _has_decisions(topic: TopicImage) -> bool:
    return topic.name == TRANSACTION_STATE_TOPIC


def log_config(topic: TopicImage, broker: BrokerConfig) -> LogConfig:
    """A topic's settings, or what they fall back to, as storage wants them."""
    configs = topic.configs
    if topic.name in INTERNAL_TOPICS:  # also one that an older broker has made
        configs = {**state_topic_configs(topic.name, broker), **configs}

    def number(name: str) -> int:
        return int(topic_value(name, configs, broker))

    policy = str(topic_value("cleanup.policy", configs, broker)).split(",")
    log_append_time = topic_value("message.timestamp.type", configs, broker)
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=(
            TimestampType.LOG_APPEND_TIME
            if log_append_time == "LogAppendTime"
            else TimestampType.CREATE_TIME
        ),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        is_compacted="compact" in policy,
        is_limited="delete" in policy,
        min_cleanable_dirty_ratio=float(topic_value("min.cleanable.dirty.ratio", configs, broker)),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        delete_retention_ms=number("delete.retention.ms"),
        min_insync_replicas=(
            min_insync_replicas(configs, broker)
            if topic.min_insync_replicas is None
            else topic.min_insync_replicas
        ),
        compression=_compression(configs, broker),
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        member_producer_expiration_ms=member_producer_expiration_ms(broker),
        producers_max=broker.max_producers_per_partition,
        flush=FlushPolicy(broker.log_flush),
    )


def _compression(configs: Mapping[str, str], broker: BrokerConfig) -> Compression | None:
    """Return the codec that a topic's batches get; None if they keep the producer's."""
    kind = str(topic_value("compression.type", configs, broker))
    if kind == PRODUCER:
        return None
    if kind == "uncompressed":
        return Compression(Codec.NONE)
    level = None
    if kind != "snappy":
        level = int(topic_value(f"compression.{kind}.level", configs, broker))
    if kind == "lz4" and level == LZ4_DEFAULT:
        level = None
    return Compression(Codec[kind.upper()], level)


def member_producer_expiration_ms(broker: BrokerConfig) -> int:
    """Return the time after which a partition forgets a producer of a transaction group.

    Without verification, the state in the partition is all that refuses a late batch.
    """
    # invariant transaction-groups 7: A late batch of a member that is forgotten is refused by the
    # coordinator, which the leader asks. Where that is switched off, members are forgotten as late
    # as others.
    # plant members are forgotten soon although nothing verifies their batches
    if not broker.transaction_partition_verification_enable:
        return broker.producer_id_expiration_ms
    return min(broker.producer_id_expiration_ms, broker.transaction_group_id_expiration_ms)
