"""One partition that this broker leads: it accepts batches, makes them durable, and serves readers.

Offsets, in this order:

    log start <= last stable offset <= high watermark <= log end

- *high watermark*: below it records are as durable as `log.flush` demands: on disk with `ack`,
  appended with `os`.
- *last stable offset*: below it every transaction is decided, and its marker is below the high
  watermark. It is computed whenever one of its causes changes, so that a reader takes both numbers
  in one step and reads within them (KAFKA-9807).

Appends are synchronous, and `Background` flushes them at once. Waiting until they are on disk is a
call of its own (`flushed`, `call_when_flushed`); all waiters share an fsync. Nothing here sleeps or
polls: waiting readers (`watch.py`) are woken when the high watermark or the last stable offset has
moved.
"""

import errno
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final
from uuid import UUID

from odradek.broker.env import Buffer, Clock, inline
from odradek.broker.partitions.answers import Appended, ReadResult
from odradek.broker.partitions.background import Background
from odradek.broker.partitions.group_commit import GroupCommit
from odradek.broker.partitions.maintenance import MAP_BYTES, Maintenance
from odradek.broker.partitions.openers import Openers
from odradek.broker.partitions.watch import Watch
from odradek.broker.storage import scan
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.compaction.cleaner import Offload, Result
from odradek.broker.storage.compaction.plan import Plan
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.log import Log
from odradek.broker.storage.producers import ProducerEntry
from odradek.broker.storage.timestamps import (
    TimestampOffset,
    largest_timestamp,
    offset_for_timestamp,
)
from odradek.broker.storage.validation import check_client_batch
from odradek.protocol.batch import BatchHeader, TimestampType, read_header, set_append_time
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import NO_TIMESTAMP, Record, encode_batch

NO_APPEND_TIME: Final = -1
NOBODY: Final = -1


class Partition:
    """One partition, made by `Partitions`. Methods that append or look something up do not wait."""

    def __init__(
        self,
        *,
        topic: str,
        index: int,
        log: Log,
        leader_epoch: int,
        clock: Clock,
        background: Background,
        decompressor: Decompressor,
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.watches: dict[Watch, None] = {}
        self.openers = Openers(log.producers)
        self.background = background
        self.decompressor = decompressor
        self._clock = clock
        self._commit = GroupCommit(self)
        self._maintenance = Maintenance(self, self._commit, clock)
        self._high_watermark = log.log_end_offset
        self._last_stable_offset = log.log_end_offset
        self.update_visible()

    def __repr__(self) -> str:
        return (
            f"<Partition {self.topic}-{self.index}: {self.log_start_offset} <= "
            f"{self.last_stable_offset} <= {self.high_watermark} <= {self.log_end_offset}>"
        )

    @property
    def topic_id(self) -> UUID:
        return self.log.topic_id

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
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._last_stable_offset

    def check_available(self) -> None:
        """See `Log.check_available`."""
        self.log.check_available()

    def take_offline(self, reason: str) -> None:
        """Refuse everything from now on with KAFKA_STORAGE_ERROR: its stored data is damaged.

        `reason` is one sentence for the log: what is wrong, and where. Only the first counts.
        """
        self.log.is_damaged = True
        self.log.fail(OSError(errno.EIO, reason))
        self._notify()

    # appending

    def append_from_client(
        self,
        batch: memoryview,
        *,
        transaction_version: int | None = None,
        verified_after: int | None = None,
    ) -> Appended:
        """Append one batch as a producer sent it; `batch` is changed in place.

        `transaction_version` is that of the client, if the batch is part of a transaction.
        `verified_after` is that of the `Verdict` which admitted the batch. If a marker was written
        since, the batch is refused (KAFKA-14884).

        Raises KafkaError, and nothing is appended: what `check_client_batch` and
        `Producers.check_client` say, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
        """
        log = self.log
        log.check_available()
        now_ms = self._clock.wall_ms()
        header = check_client_batch(batch, log.config, now_ms)
        if header.producer_id >= 0:
            repeated = log.producers.check_client(
                header, transaction_version=transaction_version, verified_after=verified_after
            )
            if repeated is not None:
                return Appended(
                    base_offset=repeated.base_offset,
                    last_offset=repeated.last_offset,
                    log_append_time_ms=repeated.timestamp_ms,
                    log_start_offset=log.log_start_offset,
                    is_duplicate=True,
                )
        timestamp_ms, append_time_ms = header.max_timestamp, NO_APPEND_TIME
        if log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            set_append_time(batch, now_ms)
            timestamp_ms = append_time_ms = now_ms
        return self._append(batch, header, timestamp_ms, append_time_ms, now_ms)

    def append_records(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        verified_after: int | None = None,
    ) -> Appended:
        """Append the broker's own records as one batch. A record without timestamp gets the time.

        With a producer id a coordinator writes for that producer: without sequences, but fenced by
        epoch. Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.check_available()
        now_ms = self._clock.wall_ms()
        batch = encode_batch(
            [
                record
                if record.timestamp_ms != NO_TIMESTAMP
                else record._replace(timestamp_ms=now_ms)
                for record in records
            ],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        header = read_header(batch)
        if producer_id >= 0:
            self.log.producers.check_coordinator(header, verified_after=verified_after)
        return self._append(batch, header, header.max_timestamp, NO_APPEND_TIME, now_ms)

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int = 0,
    ) -> Appended | None:
        """Append a transaction marker. Return None if it repeats the last one; nothing is appended.

        Raises KafkaError, and nothing is appended: TRANSACTION_COORDINATOR_FENCED,
        INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, and
        UNKNOWN_SERVER_ERROR for a marker without producer id, epoch or transaction version.
        """
        self.check_available()
        if producer_id < 0 or producer_epoch == NOBODY or transaction_version == NOBODY:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"a marker of producer {producer_id} has epoch {producer_epoch} and transaction "
                f"version {transaction_version}",
            )
        if producer_epoch < 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"a marker has producer epoch {producer_epoch}"
            )
        is_new = self.log.producers.check_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        if not is_new:
            return None
        offset, _ = self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            committed=committed,
            leader_epoch=self.leader_epoch,
            now_ms=self._clock.wall_ms(),
        )
        return self._appended(offset, offset, NO_APPEND_TIME)

    def _append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        timestamp_ms: int,
        append_time_ms: int,
        now_ms: int,
    ) -> Appended:
        base_offset = self.log.append(
            batch,
            header,
            timestamp_ms=timestamp_ms,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        return self._appended(base_offset, base_offset + header.last_offset_delta, append_time_ms)

    def _appended(self, base_offset: int, last_offset: int, append_time_ms: int) -> Appended:
        self.background.appended(self)
        if self.log.config.flush is FlushPolicy.OS:
            self.update_visible()
        return Appended(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=self.log.log_start_offset,
        )

    # durability

    async def flushed(self, next_offset: int) -> None:
        """Return when everything below `next_offset` is below the high watermark.

        Raises KafkaError: KAFKA_STORAGE_ERROR, after which the records may or may not be stored;
        UNKNOWN_TOPIC_OR_PARTITION if the partition is deleted meanwhile.
        """
        assert next_offset <= self.log.log_end_offset, (next_offset, self)
        if self._high_watermark >= next_offset:
            self.check_available()
            return
        await self._commit.flush(next_offset)

    def call_when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when what has been appended so far counts, or cannot any more.

        It costs no task. `Background` starts the flush. The callback may come early; `flushed`
        then waits for the rest, or raises.
        """
        self._commit.call_when_flushed(callback)

    @property
    def is_flushing(self) -> bool:
        """True while an fsync runs. What is appended meanwhile is flushed by the next one."""
        return self._commit.is_running

    def start_flush(self) -> bool:
        """See `GroupCommit.start`."""
        return self._commit.start()

    def flush_ended(self) -> None:
        """Go on after an fsync, or a failed one. Called by `GroupCommit`."""
        self.background.flush(self)  # first, as a thread is quicker than those that wait
        self.update_visible()

    async def flush(self) -> None:
        """Wait until what was appended before the call is on disk. Raises as `flushed`."""
        await self._commit.flush(self.log_end_offset)

    async def checkpoint(self) -> None:
        """See `Maintenance.checkpoint`."""
        await self._maintenance.checkpoint()

    async def delete_before(self, offset: int) -> None:
        """See `Maintenance.delete_before`."""
        await self._maintenance.delete_before(offset)

    async def enforce_retention(self) -> None:
        """See `Maintenance.enforce_retention`."""
        await self._maintenance.enforce_retention(self._last_stable_offset)

    def plan_compaction(self) -> Plan | None:
        """See `Maintenance.plan`."""
        return self._maintenance.plan(self._last_stable_offset)

    async def compact(
        self, plan: Plan, *, map_bytes: int = MAP_BYTES, offload: Offload = inline
    ) -> Result | None:
        """See `Maintenance.compact`."""
        return await self._maintenance.compact(plan, map_bytes=map_bytes, offload=offload)

    async def close(self) -> None:
        """See `Maintenance.close`."""
        await self._maintenance.close()

    async def discard(self) -> None:
        """Refuse every request from now on, as the topic is deleted, and wake the waiting readers.

        On return the directory is not used any more.
        """
        self.log.is_deleted = True
        self._notify()
        await self._maintenance.discard()

    # what readers see

    def update_visible(self) -> None:
        """Compute high watermark and last stable offset, and wake readers if either has moved."""
        log = self.log
        is_os = log.config.flush is FlushPolicy.OS
        high_watermark = log.log_end_offset if is_os else log.flushed_offset
        log.producers.high_watermark_is(high_watermark)
        # Both marks follow from the same high watermark. With the old one here, a read_committed
        # consumer could read past the last stable offset (KAFKA-9807).
        first_unstable = log.producers.first_unstable_offset
        last_stable_offset = high_watermark
        if first_unstable is not None and first_unstable < high_watermark:
            last_stable_offset = max(first_unstable, log.log_start_offset)
        if (high_watermark, last_stable_offset) != (self._high_watermark, self._last_stable_offset):
            self._high_watermark = high_watermark
            self._last_stable_offset = last_stable_offset
            self._notify()
        # The marks never move again. Readers that wait must wake up to raise the failure.
        elif log.failure is not None:
            self._notify()

    def _notify(self) -> None:
        for watch in self.watches:
            watch.notify()

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, min_one: bool = True
    ) -> ReadResult:
        """Return whole batches from the one with `offset` on, as far as this reader may see.

        At most `max_bytes`, but with `min_one` at least one batch. Raises KafkaError:
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.check_available()
        log = self.log
        # Taken once: the marks may move while the disk is read, and the answer must agree with
        # itself.
        high_watermark, last_stable_offset = self._high_watermark, self._last_stable_offset
        log_start_offset = log.log_start_offset
        if not log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.index} has offsets {log_start_offset} to "
                f"{log.log_end_offset}, not {offset}",
            )
        to_offset = last_stable_offset if read_committed else high_watermark
        records: Buffer = b""
        aborted: tuple[AbortedTxn, ...] = ()
        if offset < to_offset:
            records, aborted = await self._read(
                offset, max_bytes, to_offset, read_committed=read_committed, min_one=min_one
            )
        return ReadResult(
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            records=records,
            aborted=aborted,
        )

    async def _read(
        self, offset: int, max_bytes: int, to_offset: int, *, read_committed: bool, min_one: bool
    ) -> tuple[Buffer, tuple[AbortedTxn, ...]]:
        """Return records and their aborted transactions, both from the same segments."""
        log = self.log
        while True:
            removal_count = log.reader.removal_count
            records, end_offset = await log.read(
                offset, max_bytes, to_offset=to_offset, min_one=min_one
            )
            if not (read_committed and records):
                return records, ()
            aborted = await log.aborted(offset, end_offset)
            if removal_count == log.reader.removal_count:
                return records, aborted

    async def batches(
        self, from_offset: int = 0
    ) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
        """Yield every batch that exists at the time of the call, in order. Raises KafkaError."""
        self.check_available()
        async with aclosing(scan.batches(self.log, from_offset, self.log_end_offset)) as found:
            async for batch in found:
                yield batch

    async def runs(self, from_offset: int = 0) -> AsyncGenerator[Buffer, None]:
        """Yield the same in runs of whole batches, for loading much quickly. Raises KafkaError."""
        self.check_available()
        async with aclosing(scan.runs(self.log, from_offset, self.log_end_offset)) as found:
            async for run in found:
                yield run

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, read_committed: bool = False
    ) -> TimestampOffset | None:
        """Return the first visible record at `timestamp_ms` or later (KAFKA-5522)."""
        self.check_available()
        end = self._end_for(read_committed)
        return await offset_for_timestamp(self.log, timestamp_ms, end, self.decompressor)

    async def max_timestamp(self, *, read_committed: bool = False) -> TimestampOffset | None:
        """Return the first visible record with the largest timestamp."""
        self.check_available()
        end = self._end_for(read_committed)
        return await largest_timestamp(self.log, end, self.decompressor)

    def _end_for(self, read_committed: bool) -> int:
        return self._last_stable_offset if read_committed else self._high_watermark

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch` and its end offset; (-1, -1) without one."""
        return self.log.epochs.end_offset(epoch, self.log_end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which `offset` was, or will be, appended."""
        return self.log.epochs.at(offset)

    # producers

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Return True if the producer has an open transaction here (in that epoch, if given)."""
        return self.log.producers.has_open_transaction(producer_id, producer_epoch)

    def has_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        """Return True if a later epoch of the producer was here, which fences this one."""
        return self.log.producers.has_newer_epoch(producer_id, producer_epoch)

    def last_marker_offset(self, producer_id: int) -> int:
        """Return where the producer's last marker is, or -1."""
        return self.log.producers.last_marker_offset(producer_id)

    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction here, the earliest transaction first."""
        return self.log.producers.open_transactions()

    def producers(self) -> list[ProducerEntry]:
        """Return all producers that the partition knows."""
        return list(self.log.producers.entries.values())

    def expire_producers(self) -> list[int]:
        """Forget producers that were silent for producer.id.expiration.ms, and return their ids."""
        before_ms = self._clock.wall_ms() - self.config.producer_id_expiration_ms
        return self.log.producers.expire(before_ms)
