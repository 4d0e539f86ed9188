"""The leader of one partition for one leader epoch: all that only a leader may do.

`Partition.leader` returns it, or raises NOT_LEADER_OR_FOLLOWER. What a request does in one lead it
does through one `Leader`. After the end of the lead, that of another one may stand in its log, so a
`Leader` is never used again: it appends nothing more, and everything that waits for it fails.

Appends are synchronous, and are flushed at once in the background. `wait_committed` is a call of
its own: it waits until the high watermark covers what was appended; all waiters share an fsync.

`prove_lead` is a read barrier. A leader that was cut off does not know that another has been
elected. What it remembers may be old: a consumer that got an old position from it would process
records twice. So an answer that others must be able to rely on waits until enough in-sync replicas
for min.insync.replicas have fetched in this leader epoch since the request came. Another leader
needs one of them, and that one would have refused to fetch in the older epoch any more. A follower
fetches at least twice a second. While a barrier waits, the leader answers fetches at once, so that
the next ones come.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

import trio

from odradek.broker.environment.env import Buffer, Clock
from odradek.broker.partitions.answers import Appended, ReadResult
from odradek.broker.partitions.in_sync_view import Contact, InSyncView
from odradek.broker.partitions.marks import Marks
from odradek.broker.partitions.openers import Openers
from odradek.broker.partitions.reads import check_range, read_batches
from odradek.broker.partitions.traffic import TopicTraffic
from odradek.broker.partitions.upkeep.maintenance import Maintenance
from odradek.broker.partitions.waiters import Waiters
from odradek.broker.storage import scan
from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.config import FlushPolicy
from odradek.broker.storage.decompressor import Decompressor
from odradek.broker.storage.log import Log
from odradek.broker.storage.marking import NewMarker
from odradek.broker.storage.validation import check_client_batch, check_marker_fields
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.batch import BatchHeader, TimestampType, read_header, set_append_time
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.plain_produce import Join, join
from odradek.protocol.record import BatchBuilder

NO_APPEND_TIME: Final = -1
NO_EPOCH: Final = -1
PATIENCE_SECONDS: Final = 3.0
"""The time for a proof that the broker still leads."""


class Leader:
    """The lead of one partition. Methods that append or look something up do not wait."""

    def __init__(
        self,
        *,
        by_id: TopicIdPartition,
        view: InSyncView,
        log: Log,
        marks: Marks,
        maintenance: Maintenance,
        openers: Openers,
        decompressor: Decompressor,
        clock: Clock,
        traffic: TopicTraffic,
    ) -> None:
        self.by_id: Final = by_id
        self.view: Final = view
        self.leader_epoch: Final = view.leader_epoch
        self.log: Final = log
        self.marks: Final = marks
        self.maintenance: Final = maintenance
        self.openers: Final = openers
        self.decompressor: Final = decompressor
        self.is_over = False
        self.deletions: Final[dict[trio.Event, None]] = {}
        """Set when a follower reports another log start (`deletion.py`)."""
        self.barriers: Final[dict[trio.Event, None]] = {}
        """Set at the next fetch of a follower."""
        self._waiters = Waiters(self._is_decided)
        self._clock = clock
        self.traffic: Final = traffic

    def __repr__(self) -> str:
        return f"<Leader of {self.log.name} in epoch {self.leader_epoch}>"

    def check(self) -> None:
        """Raise KafkaError: NOT_LEADER_OR_FOLLOWER after the lead, and as `Log.check_available`."""
        self.log.check_available()
        if self.is_over:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.log.name} had another leader after epoch {self.leader_epoch}",
            )

    def check_in_sync(self) -> None:
        """Raise KafkaError: NOT_ENOUGH_REPLICAS, and as `check`."""
        self.check()
        self.view.check_in_sync(self.log.config.min_insync_replicas)

    def end(self) -> None:
        """End the lead. What waits for it fails."""
        self.is_over = True
        self.give_up()

    def give_up(self) -> None:
        """Wake everything that waits: what it waits for will not happen."""
        self._waiters.release_all()
        for event in (*self.barriers, *self.deletions):
            event.set()
        self.marks.wake()

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
        self.check()
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

    def append_together(
        self, batches: list[memoryview], headers: list[BatchHeader], now_ms: int, join: Join = join
    ) -> list[int | KafkaError]:
        """Append good batches of producers, in their order, by one write if that can be.

        Return for each its base offset, or why it was not appended: KAFKA_STORAGE_ERROR, as all
        that follow. The caller has checked them in this turn of the loop, as `append_from_client`
        does (`lane.py`).
        """
        log, offsets = self.log, list[int | KafkaError]()
        if log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            for batch in batches:
                set_append_time(batch, now_ms)
            headers = [header._replace(max_timestamp=now_ms) for header in headers]
        try:
            first = log.append_together(
                batches, headers, leader_epoch=self.leader_epoch, now_ms=now_ms, join=join
            )
        except KafkaError as error:
            return [error.with_traceback(None)] * len(batches)
        if first is None:
            for batch, header in zip(batches, headers, strict=True):
                # What follows a batch that was not appended is refused, too: its sequence was
                # checked as that of the next one.
                failed = offsets and isinstance(offsets[-1], KafkaError)
                offsets.append(offsets[-1] if failed else self._offset_of(batch, header, now_ms))
        else:
            for header in headers:
                offsets.append(first)
                first += header.last_offset_delta + 1
        self._note_appended()
        return offsets

    def _offset_of(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int | KafkaError:
        """Append one batch, and return its base offset or why it was not appended."""
        try:
            return self.log.append(
                batch,
                header,
                timestamp_ms=header.max_timestamp,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
            )
        except KafkaError as error:
            return error.with_traceback(None)

    def append_batch(
        self,
        batch: BatchBuilder,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        verified_after: int | None = None,
        flush_later: bool = False,
    ) -> Appended:
        """Append a batch of the broker's own records, which is not built yet.

        With a producer id a coordinator writes for that producer: without sequences, but fenced by
        epoch. `flush_later` is as in `StatePartition.append_batch`. Raises KafkaError:
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
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
        return self._append(
            built, header, header.max_timestamp, NO_APPEND_TIME, now_ms, flush_later=flush_later
        )

    # invariant transaction-groups 5: The markers of a group for one partition are appended by one
    # write, count together, and reach a follower together.
    # plant a follower has some markers of a group and not the others
    # plant the markers of a group are written with others between
    # plant a marker of a group counts before the others
    def append_markers(self, markers: Sequence[NewMarker]) -> list[Appended | KafkaError | None]:
        """Append markers of different producers by one write: all of them count, or none.

        The result has for each marker where it is; None if it repeats the last one, and was not
        appended; or why it was refused: TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH, and
        UNKNOWN_SERVER_ERROR for a marker without producer id, epoch or transaction version. Raises
        KafkaError, and nothing is appended: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION,
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS.
        """
        self.check_in_sync()
        results: list[Appended | KafkaError | None] = [None] * len(markers)
        new: list[int] = []
        for number, marker in enumerate(markers):
            try:
                if self._is_new(marker):
                    new.append(number)
            except KafkaError as error:
                results[number] = error
        if new:
            appended = self._append_new_markers([markers[number] for number in new])
            for number, result in zip(new, appended, strict=True):
                results[number] = result
        return results

    def _is_new(self, marker: NewMarker) -> bool:
        """Return False for a repeat. Raises KafkaError for a marker that is refused."""
        check_marker_fields(marker.producer_id, marker.producer_epoch, marker.transaction_version)
        return self.log.producers.check_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )

    def _append_new_markers(self, markers: Sequence[NewMarker]) -> list[Appended]:
        log = self.log
        first = log.append_markers(
            markers, leader_epoch=self.leader_epoch, now_ms=self._clock.wall_ms()
        )
        if len(markers) > 1:
            log.producers.end_together(first, log.log_end_offset)
        return [
            self._finish_append(offset, offset, NO_APPEND_TIME)
            for offset in range(first, log.log_end_offset)
        ]

    def _append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        timestamp_ms: int,
        append_time_ms: int,
        now_ms: int,
        *,
        flush_later: bool = False,
    ) -> Appended:
        base_offset = self.log.append(
            batch,
            header,
            timestamp_ms=timestamp_ms,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        last_offset = base_offset + header.last_offset_delta
        return self._finish_append(
            base_offset, last_offset, append_time_ms, flush_later=flush_later
        )

    def _finish_append(
        self,
        base_offset: int,
        last_offset: int,
        append_time_ms: int,
        *,
        flush_later: bool = False,
    ) -> Appended:
        """Start what follows from an append, and return its result."""
        self._note_appended(flush_later=flush_later)
        return Appended(
            base_offset=base_offset,
            last_offset=last_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=self.log.log_start_offset,
            leader_epoch=self.leader_epoch,
        )

    def _note_appended(self, *, flush_later: bool = False) -> None:
        self.maintenance.on_appended(flush_later=flush_later)
        if self.log.config.flush is FlushPolicy.OS:
            self.update_visible()
        self.marks.followers.notify()

    # how far it counts

    async def wait_committed(self, next_offset: int | None = None) -> None:
        """Return when everything below `next_offset` is below the high watermark.

        Without an offset, everything that is here now is meant. Raises KafkaError:
        KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, after which the records may or may not be
        stored; UNKNOWN_TOPIC_OR_PARTITION if the partition is deleted meanwhile.
        """
        self.check()
        if next_offset is None:
            next_offset = self.log.log_end_offset
        assert next_offset <= self.log.log_end_offset, (next_offset, self)
        if self.marks.high_watermark < next_offset:
            await self.maintenance.wait_flushed(next_offset)
        while not self._is_decided(next_offset):
            decided = trio.Event()
            self._waiters.add(next_offset, decided.set)
            await decided.wait()
        self.check()

    def call_when_committed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when what has been appended so far counts, or cannot any more.

        It costs no task. `Background` starts the flush. The callback may come early;
        `wait_committed` then waits for the rest, or raises.
        """
        self._waiters.add(self.log.log_end_offset, callback)

    def has_committed(self, appended: Appended, *, by_all: bool = True) -> bool:
        """Return True if a batch counts: below the high watermark, or else on this disk alone."""
        return self.counts_below(appended.last_offset + 1, by_all=by_all)

    def counts_below(self, next_offset: int, *, by_all: bool = True) -> bool:
        """Return True if everything below an offset counts, as `has_committed` has it."""
        end = self.marks.high_watermark if by_all else self.marks.own_offset
        return end >= next_offset and not self.is_over

    def _is_decided(self, next_offset: int) -> bool:
        """Return True if waiting for `next_offset` is of no use any more."""
        if self.marks.high_watermark >= next_offset or self.is_over:
            return True
        return self.log.failure is not None or self.log.is_deleted

    def update_visible(self) -> None:
        """Compute high watermark and last stable offset, and wake readers if either has moved."""
        marks = self.marks
        high_watermark = marks.high_watermark
        if marks.may_move():
            minimum = self.log.config.min_insync_replicas
            high_watermark = self.view.high_watermark(marks.own_offset, high_watermark, minimum)
        if marks.move(high_watermark):
            self._waiters.release()
        for moved in self.deletions:  # a follower may have gone
            moved.set()
        # The marks never move again. What waits must wake up to raise the failure.
        if self.log.failure is not None:
            self.give_up()

    def on_fetched(
        self,
        node: int,
        next_offset: int,
        log_start_offset: int,
        *,
        broker_epoch: int,
        contact: Contact,
    ) -> None:
        """Note the fetch of a follower that has a replica."""
        progress = self.view.followers[node]
        progress.broker_epoch = broker_epoch
        progress.contact = contact
        self.view.note_fetched(node, next_offset, self.log.log_end_offset, contact.at)
        progress.log_start_offset = log_start_offset
        for fetched in self.barriers:
            fetched.set()
        self.update_visible()  # and the deletions that wait for another log start

    # proof

    # invariant tenures 3
    async def prove_lead(self) -> None:
        """Wait for proof that this broker leads after the call. One replica needs none.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER if the lead ends, or if there is no proof in
        PATIENCE_SECONDS; and as `check`.
        """
        self.check()
        view = self.view
        if view.is_alone:
            return
        since, minimum = view.fetch_count, self.log.config.min_insync_replicas
        with trio.move_on_after(PATIENCE_SECONDS):
            while not (self.is_over or view.has_heard(since, minimum)):
                fetched = trio.Event()
                self.barriers[fetched] = None
                self.marks.followers.notify()
                try:
                    await fetched.wait()
                finally:
                    del self.barriers[fetched]
        self.check()
        if not view.has_heard(since, minimum):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"too few followers of {self.log.name} fetch from this broker to prove that it "
                "still leads",
            )

    # reading

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, min_one: bool = True
    ) -> ReadResult:
        """Return whole batches from the one with `offset` on, as far as this reader may see.

        At most `max_bytes`, but with `min_one` at least one batch. Raises KafkaError:
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.check()
        log, marks = self.log, self.marks
        # Taken once: the marks may move while the disk is read, and the answer must agree with
        # itself.
        high_watermark, last_stable_offset = marks.high_watermark, marks.last_stable_offset
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

    async def runs(self, from_offset: int = 0) -> AsyncGenerator[Buffer, None]:
        """Yield every batch that is here at the time of the call, in order, many at once.

        Raises KafkaError.
        """
        self.check()
        async with aclosing(scan.runs(self.log, from_offset, self.log.log_end_offset)) as found:
            async for run in found:
                yield run

    # producers, as `Admission` asks for them

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return True if the producer has an open transaction here in that epoch."""
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
