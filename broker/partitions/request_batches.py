"""The batches of one request of a producer: what becomes of them, their records, their codec."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.environment.env import Clock
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.answers import Appended
from odradek.broker.partitions.leader import Leader
from odradek.broker.storage.recompression import recompressed
from odradek.broker.storage.record_check import (
    RecordRules,
    RefusedRecord,
    RefusedRecords,
    check_records,
)
from odradek.broker.storage.validation import check_client_batch
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.batch import BatchHeader
from odradek.protocol.errors import ErrorCode, KafkaError

NO_OFFSET: Final = -1
NO_RECORDS: Final = memoryview(b"")
BATCHES_AT_ONCE: Final = 100
"""Batches that are checked and appended without a checkpoint."""
RECOMPRESSED_MAX_BYTES: Final = 16 * 1024 * 1024
"""The bytes of batches with another codec that are in memory before they are appended."""


@dataclass(slots=True)
class Batch:
    """The records of a request for one partition, and what became of them."""

    topic: str
    index: int
    records: memoryview
    header: BatchHeader | None = None
    is_transactional: bool = False
    """What the header says. Kept, as it is asked several times for every small request."""
    leader: Leader | None = None
    appended: Appended | None = None
    error: KafkaError | None = None
    """Without its traceback, which refers to the batch and so to the whole request."""
    records_error: KafkaError | None = None
    """Why the log refuses the records. Refusals of the transaction come first."""
    refused_records: Sequence[RefusedRecord] = ()
    """The records for which the batch is refused, as far as they are named."""
    log_start_offset: int = NO_OFFSET
    """Answered with an error that the log itself has found."""
    verified_after: int | None = None
    """Of a transactional batch that was admitted: see `Verdict`."""
    by_all: bool = True
    """acks=all: the batch counts when all in-sync replicas have it, else when this one does."""
    has_outcome: bool = False
    """True once the batch is on disk, or has failed to get there."""

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def is_alone(self) -> bool:
        """Return True if the leader here has the only replica of the partition."""
        return self.leader is not None and self.leader.view.is_alone

    @property
    def has_followers(self) -> bool:
        """Return True if the leader here has not the only replica of the partition."""
        return self.leader is not None and not self.leader.view.is_alone

    @property
    def producer(self) -> tuple[int, int] | None:
        """The producer id and epoch of a transactional batch; None for any other batch."""
        header = self.header
        if header is None or not self.is_transactional:
            return None
        return header.producer_id, header.producer_epoch

    @property
    def may_be_named(self) -> bool:
        """True if the batch is refused for some of its records that are not known yet."""
        return (
            self.error is not None
            and self.error.code is ErrorCode.INVALID_TIMESTAMP
            and not self.refused_records
        )


async def check_records_of(clock: Clock, batch: Batch, turns: Turns) -> None:
    """Check the records of a batch for a compacted log, which must have keys.

    This may wait. So it comes before everything that must not be interrupted, as the sequence check
    and the append. Requests keep their order: the connection takes none meanwhile.
    """
    leader = batch.leader
    if batch.error is not None or leader is None:
        return
    now_ms = clock.wall_ms()
    try:
        header = check_client_batch(batch.records, leader.log.config, now_ms)
        await _check(header, batch, leader, now_ms, turns)
    except KafkaError as error:
        batch.records_error = error.with_traceback(None)


async def name_refused(clock: Clock, batches: Sequence[Batch], turns: Turns) -> None:
    """Name the records of batches that were refused for a timestamp in their header."""
    for batch in batches:
        await turns.take()
        leader, header = batch.leader, batch.header
        if leader is None or header is None or not batch.may_be_named:
            continue
        try:
            await _check(header, batch, leader, clock.wall_ms(), turns)
        except RefusedRecords as error:
            batch.error = error.with_traceback(None)
        except KafkaError:
            batch.refused_records = ()  # they cannot be read: the refusal stays as it is
        batch.records = NO_RECORDS


async def _check(
    header: BatchHeader, batch: Batch, leader: Leader, now_ms: int, turns: Turns
) -> None:
    """Check the records of a batch, and note those that are named. Raises KafkaError."""
    rules = RecordRules(where=batch.where, config=leader.log.config, now_ms=now_ms)
    try:
        await check_records(header, batch.records, rules, leader.decompressor, turns)
    except RefusedRecords as error:
        batch.refused_records = error.records
        raise


async def recompress_some(clock: Clock, batches: Sequence[Batch], start: int) -> int:
    """Recompress batches from `start` on that have another codec than their topic wants.

    Return the index behind the last batch that was looked at. That is early if the new batches are
    large: they are in memory until they are appended. Requests keep their order meanwhile.
    """
    made_bytes = 0
    for number in range(start, min(start + BATCHES_AT_ONCE, len(batches))):
        batch = batches[number]
        if batch.error is None and batch.leader is not None:
            made_bytes += await _recompress(clock, batch)
        if made_bytes >= RECOMPRESSED_MAX_BYTES:
            return number + 1
    return min(start + BATCHES_AT_ONCE, len(batches))


async def _recompress(clock: Clock, batch: Batch) -> int:
    """Return the size of the batch that was made, or 0 if the topic wants none or this codec."""
    assert batch.leader is not None
    config = batch.leader.log.config
    wanted, header = config.compression, batch.header
    if wanted is None or header is None or header.codec == wanted.codec:
        return 0
    try:
        header = check_client_batch(batch.records, config, clock.wall_ms())
        batch.records = memoryview(
            await recompressed(
                header,
                batch.records,
                wanted,
                batch.leader.decompressor,
                max_message_bytes=config.max_message_bytes,
            )
        )
    except KafkaError as error:
        batch.records_error = batch.records_error or error.with_traceback(None)
        return 0
    return len(batch.records)
