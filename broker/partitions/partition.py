"""One replica of a partition. As its leader it accepts batches and serves readers.

Offsets, in this order:

    log start <= last stable offset <= high watermark <= log end

- *high watermark*: below it records are as durable as they will be: every in-sync replica has them,
  on disk with `log.flush=ack`, appended with `os`.
- *last stable offset*: below it every transaction is decided, and its marker is below the high
  watermark. It is computed whenever one of its causes changes, so that a reader takes both numbers
  in one step and reads within them (KAFKA-9807).

Appends are synchronous, and `Background` flushes them at once. Waiting until they are below the
high watermark is a call of its own (`flushed`, `call_when_flushed`); all waiters share an fsync.
Nothing here sleeps or polls: waiting readers (`watch.py`) are woken when the high watermark or the
last stable offset has moved.

A replica leads while it has a `Lead` (`lead.py`), for one leader epoch. Without one it refuses
clients with NOT_LEADER_OR_FOLLOWER; what waited when the lead ended is refused, too.
"""

import errno
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

import trio

from odradek.broker.env import Buffer, Clock, inline
from odradek.broker.partitions.answers import Appended, ReadResult
from odradek.broker.partitions.background import Background
from odradek.broker.partitions.barrier import read_barrier
from odradek.broker.partitions.group_commit import GroupCommit
from odradek.broker.partitions.lead import Lead
from odradek.broker.partitions.maintenance import MAP_BYTES, Maintenance
from odradek.broker.partitions.marking import append_markers
from odradek.broker.partitions.marks import Marks
from odradek.broker.partitions.openers import Openers
from odradek.broker.partitions.reads import check_range, read_batches
from odradek.broker.storage import scan
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.compaction.cleaner import Offload, Result
from odradek.broker.storage.compaction.plan import Plan
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.log import Log
from odradek.broker.storage.marking import NewMarker
from odradek.broker.storage.producers import ProducerEntry
from odradek.broker.storage.validation import check_client_batch
from odradek.broker.topic_partition import TopicIdPartition
from odradek.protocol.batch import BatchHeader, TimestampType, read_header, set_append_time
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import BatchBuilder, Record, batch_of, with_timestamps

NO_APPEND_TIME: Final = -1
NO_EPOCH: Final = -1


class Partition:
    """One partition, made by `Partitions`. Methods that append or look something up do not wait."""

    def __init__(
        self,
        *,
        topic: str,
        index: int,
        log: Log,
        clock: Clock,
        background: Background,
        decompressor: Decompressor,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = log.topic_id
        self.by_id = TopicIdPartition.of(topic, index, log.topic_id)
        self.log = log
        self.lead: Lead | None = None
        self.leader_epoch = NO_EPOCH
        self.marks = Marks(log, self._counts)
        self.openers = Openers(log.producers)
        self.background = background
        self.decompressor = decompressor
        self._clock = clock
        self.commit = GroupCommit(self)
        self.maintenance = Maintenance(self, self.commit, clock)

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

    def check_available(self) -> None:
        """Raise KafkaError: NOT_LEADER_OR_FOLLOWER, and as `Log.check_available`."""
        self.log.check_available()
        if self.lead is None:
            message = f"{self.topic}-{self.index} is not led by this broker"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def check_in_sync(self) -> None:
        """Raise KafkaError: NOT_ENOUGH_REPLICAS, and as `check_available`."""
        self.check_available()
        assert self.lead is not None
        self.lead.check_in_sync(self.log.config.min_insync_replicas)

    def configure(self, config: LogConfig) -> None:
        """Have other settings from now on."""
        self.log.config = self.log.reader.config = config
        self.log.producers.limit_to(config.producers_max, self.log.name)
        self.update_visible()  # min.insync.replicas may be smaller
        self.marks.followers.notify()

    # the role

    def begin_lead(self, lead: Lead) -> None:
        """Lead the partition in a new leader epoch. Everything that waits in an older one fails."""
        assert lead.leader_epoch >= self.leader_epoch, (lead, self.leader_epoch)
        self._end_lead()
        self.log.epochs.assign(lead.leader_epoch, self.log_end_offset)
        lead.start_offset = self.log_end_offset
        self.lead = lead
        self.leader_epoch = lead.leader_epoch
        self.update_visible()

    def end_lead(self, leader_epoch: int) -> None:
        """Lead no more: the partition has another leader, or none, in `leader_epoch`."""
        assert leader_epoch >= self.leader_epoch, (leader_epoch, self.leader_epoch)
        self._end_lead()
        self.leader_epoch = leader_epoch

    def _end_lead(self) -> None:
        self.lead = None
        self.marks.give_up()

    def learn_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to what the leader has said, as far as this replica has it."""
        assert self.lead is None, self
        self.marks.move(max(self.marks.high_watermark, min(offset, self.own_offset)))

    def take_offline(self, reason: str) -> None:
        """Refuse everything from now on with KAFKA_STORAGE_ERROR: its stored data is damaged.

        `reason` is one sentence for the log: what is wrong, and where. Only the first counts.
        """
        self.log.is_damaged = True
        self.log.fail(OSError(errno.EIO, reason))
        self.marks.give_up()

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
        self.check_available()
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
                    leader_epoch=self.leader_epoch,
                    is_duplicate=True,
                )
        timestamp_ms, append_time_ms = header.max_timestamp, NO_APPEND_TIME
        if log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            set_append_time(batch, now_ms)
            timestamp_ms = append_time_ms = now_ms
        return self._append(batch, header, timestamp_ms, append_time_ms, now_ms)

    def append_records(self, records: Sequence[Record]) -> Appended:
        """Append own records as `append_batch` does. One without a timestamp gets the time."""
        return self.append_batch(batch_of(with_timestamps(records, self._clock.wall_ms())))

    def append_batch(
        self,
        batch: BatchBuilder,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        verified_after: int | None = None,
    ) -> Appended:
        """Append a batch of the broker's own records, which is not built yet.

        With a producer id a coordinator writes for that producer: without sequences, but fenced by
        epoch. Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.check_in_sync()
        now_ms = self._clock.wall_ms()
        built = batch.build(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        header = read_header(built)
        if producer_id >= 0:
            self.log.producers.check_coordinator(header, verified_after=verified_after)
        return self._append(built, header, header.max_timestamp, NO_APPEND_TIME, now_ms)

    def append_marker(self, marker: NewMarker) -> Appended | None:
        """Append a transaction marker. Return None if it repeats the last one; nothing is appended.

        Raises KafkaError, and nothing is appended: what `append_markers` returns or raises.
        """
        (result,) = append_markers(self, [marker])
        if isinstance(result, KafkaError):
            raise result
        return result

    def append_new_markers(self, markers: Sequence[NewMarker]) -> list[Appended]:
        """Append markers that `append_markers` has checked. Raises KafkaError."""
        first = self.log.append_markers(
            markers, leader_epoch=self.leader_epoch, now_ms=self._clock.wall_ms()
        )
        if len(markers) > 1:
            self.log.producers.end_together(first, self.log_end_offset)
        return [
            self._appended(offset, offset, NO_APPEND_TIME)
            for offset in range(first, self.log_end_offset)
        ]

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
        self.marks.followers.notify()
        return Appended(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=self.log.log_start_offset,
            leader_epoch=self.leader_epoch,
        )

    # durability

    async def flushed(self, next_offset: int, *, leader_epoch: int | None = None) -> None:
        """Return when everything below `next_offset` is below the high watermark.

        What was appended in `leader_epoch` counts only while this broker leads in it: afterwards
        another batch may stand in its place. Without it the current epoch is meant.

        Raises KafkaError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, after which the records may
        or may not be stored; UNKNOWN_TOPIC_OR_PARTITION if the partition is deleted meanwhile.
        """
        self.check_available()
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        self._check_epoch(epoch)
        assert next_offset <= self.log_end_offset, (next_offset, self)
        if self.marks.high_watermark < next_offset:
            await self.on_disk(next_offset)
        while self.marks.high_watermark < next_offset and self._is_still_led(epoch):
            counts = trio.Event()
            self.marks.waiters.add(next_offset, counts.set)
            await counts.wait()
        self.check_available()
        self._check_epoch(epoch)

    async def settled(self) -> None:
        """Return when everything that is here now is below the high watermark. See `flushed`."""
        await self.flushed(self.log_end_offset)

    async def prove_lead(self) -> None:
        """Wait for proof that this broker leads after the call. Raises as `read_barrier`."""
        await read_barrier(self)

    def has_committed(self, appended: Appended, *, by_all: bool = True) -> bool:
        """Return True if a batch counts: below the high watermark, or else on this disk alone."""
        end = self.marks.high_watermark if by_all else self.own_offset
        return end > appended.last_offset and self.leader_epoch == appended.leader_epoch

    async def on_disk(self, next_offset: int) -> None:
        """Return when this replica has everything below `next_offset`, as `log.flush` demands.

        Raises KafkaError, as `GroupCommit.flush`.
        """
        if self.log.config.flush is FlushPolicy.ACK:
            await self.commit.flush(next_offset)

    def _is_still_led(self, leader_epoch: int) -> bool:
        is_usable = self.log.failure is None and not self.log.is_deleted
        return is_usable and self.lead is not None and self.leader_epoch == leader_epoch

    def _check_epoch(self, leader_epoch: int) -> None:
        if self.leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic}-{self.index} had another leader after epoch {leader_epoch}",
            )

    def call_when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when what has been appended so far counts, or cannot any more.

        It costs no task. `Background` starts the flush. The callback may come early; `flushed`
        then waits for the rest, or raises.
        """
        self.marks.waiters.add(self.log_end_offset, callback)

    def _counts(self, next_offset: int) -> bool:
        """Return True if waiting for `next_offset` is of no use any more."""
        return self.marks.high_watermark >= next_offset or not self._is_still_led(self.leader_epoch)

    def flush_ended(self) -> None:
        """Go on after an fsync, or a failed one. Called by `GroupCommit`."""
        self.background.flush(self)  # first, as a thread is quicker than those that wait
        self.update_visible()

    async def flush(self) -> None:
        """Wait until what was appended before the call is on disk. Raises as `flushed`."""
        await self.commit.flush(self.log_end_offset)

    async def checkpoint(self) -> None:
        """See `Maintenance.checkpoint`."""
        await self.maintenance.checkpoint()

    async def enforce_retention(self) -> None:
        """See `Maintenance.enforce_retention`."""
        await self.maintenance.enforce_retention(self.marks.last_stable_offset)

    def plan_compaction(self) -> Plan | None:
        """See `Maintenance.plan`."""
        return self.maintenance.plan(self.marks.last_stable_offset)

    async def compact(
        self, plan: Plan, *, map_bytes: int = MAP_BYTES, offload: Offload = inline
    ) -> Result | None:
        """See `Maintenance.compact`."""
        return await self.maintenance.compact(plan, map_bytes=map_bytes, offload=offload)

    async def close(self) -> None:
        """See `Maintenance.close`."""
        await self.maintenance.close()

    async def discard(self) -> None:
        """Refuse every request from now on, as the topic is deleted, and wake the waiting readers.

        On return the directory is not used any more.
        """
        self.log.is_deleted = True
        self.marks.give_up()
        await self.maintenance.discard()

    # what readers see

    @property
    def own_offset(self) -> int:
        """Everything below it is as durable here as `log.flush` demands."""
        log = self.log
        return log.log_end_offset if log.config.flush is FlushPolicy.OS else log.flushed_offset

    def update_visible(self) -> None:
        """Compute high watermark and last stable offset, and wake readers if either has moved."""
        high_watermark = self.marks.high_watermark
        if self.lead is not None:
            minimum = self.log.config.min_insync_replicas
            high_watermark = self.lead.high_watermark(self.own_offset, high_watermark, minimum)
        self.marks.move(high_watermark)
        if self.marks.deletions:  # a follower may have gone
            self.marks.start_reported()
        # The marks never move again. What waits must wake up to raise the failure.
        if self.log.failure is not None:
            self.marks.give_up()

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
        high_watermark, last_stable_offset = self.high_watermark, self.last_stable_offset
        log_start_offset = log.log_start_offset
        check_range(log, offset)
        to_offset = last_stable_offset if read_committed else high_watermark
        records: Buffer = b""
        aborted: tuple[AbortedTxn, ...] = ()
        if offset < to_offset:
            records, aborted = await read_batches(
                log, offset, max_bytes, to_offset, read_committed=read_committed, min_one=min_one
            )
        return ReadResult(
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            records=records,
            aborted=aborted,
        )

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

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch` and its end offset; (-1, -1) without one."""
        return self.log.epochs.end_offset(epoch, self.log_end_offset)

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

    def coordinator_epoch(self, producer_id: int) -> int:
        """Return the coordinator epoch of the producer's last marker; -1 without one."""
        entry = self.log.producers.entries.get(producer_id)
        return NO_EPOCH if entry is None else entry.coordinator_epoch

    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction here, the earliest transaction first."""
        return self.log.producers.open_transactions()

    def producers(self) -> list[ProducerEntry]:
        """Return all producers that the partition knows."""
        return list(self.log.producers.entries.values())
