"""One replica that follows a leader, in one leader epoch."""

import logging
from typing import Final
from uuid import UUID

import trio

from odradek.broker.environment.env import Buffer
from odradek.broker.partitions.partition import Partition
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.fetch import PartitionData
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode, KafkaError, name_of

LOGGER: Final = logging.getLogger(__name__)
NO_EPOCH: Final = -1
PAUSE_SECONDS: Final = 0.1
"""The time for which a partition is not fetched after an error. An election may be under way."""


class Follower:
    """The following of one partition. It ends when the role of the replica changes."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.where = TopicPartition(partition.topic, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.paused_until = 0.0
        self.fetch_offset = 0
        self._is_over = False
        self._taking = trio.Lock()

    @property
    def key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.where.partition

    @property
    def is_on_disk(self) -> bool:
        """True if this replica has all that it has written on disk, as `log.flush` demands.

        An earlier role may have left batches that are not: those of a lead, or of another leader.
        """
        return self.partition.marks.own_offset >= self.partition.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record here; -1 if there is none."""
        log = self.partition.log
        return log.epochs.at(log.log_end_offset - 1) if log.log_end_offset else NO_EPOCH

    async def end(self) -> None:
        """Take no more answers; on return none is being taken."""
        self._is_over = True
        async with self._taking:
            pass

    async def take(self, data: PartitionData, now_ms: int) -> bool:
        """Write what an answer has. Return True if it must be flushed."""
        async with self._taking:
            if self._is_over or self.fetch_offset != self.partition.log_end_offset:
                return False
            try:
                return await self._take(data, now_ms)
            # An OSError is that of a checkpoint, for which the disk is too full, say.
            except (KafkaError, OSError) as error:
                LOGGER.warning("%s cannot be copied: %s", self.where, error)
                self._pause()
                return False

    async def _take(self, data: PartitionData, now_ms: int) -> bool:
        partition, log = self.partition, self.partition.log
        log.check_available()
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_place(data)
            return False
        if data.error_code != ErrorCode.NONE:
            LOGGER.debug("%s: the leader answers %s", self.where, name_of(data.error_code))
            self._pause()
            return False
        if data.diverging_epoch.epoch != NO_EPOCH:
            await self._cut(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return False
        if data.records:
            await self._append(data.records, now_ms)
            partition.maintenance.on_appended()
        await self._follow_start(data)
        return bool(data.records)

    async def _append(self, records: Buffer, now_ms: int) -> None:
        partition, log = self.partition, self.partition.log
        is_empty = log.log_start_offset == log.log_end_offset
        if is_empty and read_header(records).base_offset < log.log_end_offset:
            await partition.maintenance.append_around_start(records)
        else:
            log.append_replicated(records, now_ms=now_ms)

    async def _follow_start(self, data: PartitionData) -> None:
        """Delete what the leader has deleted, or it would be there again after an election."""
        log = self.partition.log
        start = min(data.log_start_offset, log.log_end_offset)
        # Also if an earlier answer had it, and it could not be saved.
        if start > log.saver.saved_log_start_offset:
            self.learn(data)
            await self.partition.maintenance.delete_before(start)

    async def _find_place(self, data: PartitionData) -> None:
        """Move to where the leader's log is: this replica's end is outside of it (KAFKA-20961)."""
        log = self.partition.log
        if log.log_end_offset < data.log_start_offset:
            LOGGER.warning(
                "%s: the leader's log begins at %d, beyond the end here, %d: this replica begins "
                "anew",
                self.where,
                data.log_start_offset,
                log.log_end_offset,
            )
            await self.partition.maintenance.start_anew_at(data.log_start_offset)
        else:
            self._pause()

    async def _cut(self, epoch: int, end_offset: int) -> None:
        """Cut the log where it parts from the leader's, as far as one answer shows (KIP-279)."""
        partition = self.partition
        own_epoch, own_end = partition.log.epochs.end_offset(epoch, partition.log_end_offset)
        target = min(own_end, end_offset) if own_epoch == epoch else own_end
        target = max(target, partition.log_start_offset)
        if target < partition.high_watermark:
            LOGGER.error(
                "%s is cut at %d, below its high watermark %d: acknowledged records are not on its "
                "leader",
                self.where,
                target,
                partition.high_watermark,
            )
        LOGGER.info(
            "%s is cut from %d to %d, where it parts from its leader's log",
            self.where,
            partition.log_end_offset,
            target,
        )
        await partition.maintenance.truncate_to(target)

    def _pause(self) -> None:
        self.paused_until = trio.current_time() + PAUSE_SECONDS

    async def flush(self) -> None:
        """Return when what was written is on disk, or cannot get there."""
        try:
            await self.partition.wait_flushed(self.partition.log_end_offset)
        except KafkaError as error:
            LOGGER.warning("%s cannot be flushed: %s", self.where, error)
            self._pause()

    def learn(self, data: PartitionData) -> None:
        """Take the leader's high watermark, as far as this replica has what is below it."""
        if not self._is_over and data.error_code == ErrorCode.NONE:
            assert self.partition.leading is None, self.partition
            marks = self.partition.marks
            marks.move(max(marks.high_watermark, min(data.high_watermark, marks.own_offset)))
