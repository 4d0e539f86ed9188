"""The batches of a Produce request while it is served: their records, their codec."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.partitions.partitions import Appended, Partition
from odradek.broker.storage.recompression import recompressed
from odradek.broker.storage.record_check import (
    RecordRules,
    RefusedRecord,
    RefusedRecords,
    check_records,
)
from odradek.broker.storage.validation import check_client_batch
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.turns import Turns
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.protocol.apis.produce import BatchIndexAndErrorMessage
from odradek.protocol.batch import BatchHeader
from odradek.protocol.errors import ErrorCode, KafkaError

NO_OFFSET: Final = -1
NO_RECORDS: Final = memoryview(b"")
NAMES_RECORDS_FROM: Final = 8
"""The first version whose answer names the records for which a batch is refused."""
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
    partition: Partition | None = None
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
    is_settled: bool = False
    """True once the batch is on disk, or has failed to get there."""

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def producer(self) -> ProducerIdAndEpoch | None:
        """The producer of a transactional batch; None for any other batch."""
        header = self.header
        if header is None or not self.is_transactional:
            return None
        return ProducerIdAndEpoch(
            producer_id=header.producer_id, producer_epoch=header.producer_epoch
        )

    @property
    def may_be_named(self) -> bool:
        """True if the batch is refused for some of its records that are not known yet."""
        return (
            self.error is not None
            and self.error.code is ErrorCode.INVALID_TIMESTAMP
            and not self.refused_records
        )

    def named(self) -> tuple[BatchIndexAndErrorMessage, ...]:
        """Return the records for which the batch is refused, as an answer has them."""
        return tuple(
            [
                BatchIndexAndErrorMessage(
                    batch_index=each.index, batch_index_error_message=each.why
                )
                for each in self.refused_records
            ]
        )


async def check_records_of(context: RequestContext, batch: Batch, turns: Turns) -> None:
    """Check the records of a batch for a compacted log, which must have keys.

    This may wait. So it comes before everything that must not be interrupted, as the sequence check
    and the append. Requests keep their order: the connection takes none meanwhile.
    """
    partition = batch.partition
    if batch.error is not None or partition is None:
        return
    now_ms = context.core.clock.wall_ms()
    try:
        header = check_client_batch(batch.records, partition.config, now_ms)
        await _check(header, batch, partition, now_ms, turns)
    except KafkaError as error:
        batch.records_error = error.with_traceback(None)


async def name_refused(context: RequestContext, batches: Sequence[Batch], turns: Turns) -> None:
    """Name the records of batches that were refused for a timestamp in their header."""
    for batch in batches:
        await turns.take()
        partition, header = batch.partition, batch.header
        if partition is None or header is None or not batch.may_be_named:
            continue
        try:
            await _check(header, batch, partition, context.core.clock.wall_ms(), turns)
        except RefusedRecords as error:
            batch.error = error.with_traceback(None)
        except KafkaError:
            batch.refused_records = ()  # they cannot be read: the refusal stays as it is
        batch.records = NO_RECORDS


async def _check(
    header: BatchHeader, batch: Batch, partition: Partition, now_ms: int, turns: Turns
) -> None:
    """Check the records of a batch, and note those that are named. Raises KafkaError."""
    rules = RecordRules(where=batch.where, config=partition.config, now_ms=now_ms)
    try:
        await check_records(header, batch.records, rules, partition.decompressor, turns)
    except RefusedRecords as error:
        batch.refused_records = error.records
        raise


async def recompress_some(context: RequestContext, batches: Sequence[Batch], start: int) -> int:
    """Give batches from `start` on the codec of their topics. Return the end of those.

    Requests keep their order while it waits. The end comes early if the
    batches have become large: they are in memory until they are appended.
    """
    made_bytes = 0
    for number in range(start, min(start + BATCHES_AT_ONCE, len(batches))):
        batch = batches[number]
        if batch.error is None and batch.partition is not None:
            made_bytes += await _recompress(context, batch)
        if made_bytes >= RECOMPRESSED_MAX_BYTES:
            return number + 1
    return min(start + BATCHES_AT_ONCE, len(batches))


async def _recompress(context: RequestContext, batch: Batch) -> int:
    """Give a batch the codec of its topic. Return the size of a new batch, 0 without one."""
    assert batch.partition is not None
    config = batch.partition.config
    wanted, header = config.compression, batch.header
    if wanted is None or header is None or header.codec == wanted.codec:
        return 0
    try:
        header = check_client_batch(batch.records, config, context.core.clock.wall_ms())
        batch.records = memoryview(
            await recompressed(
                header,
                batch.records,
                wanted,
                batch.partition.decompressor,
                max_message_bytes=config.max_message_bytes,
            )
        )
    except KafkaError as error:
        batch.records_error = batch.records_error or error.with_traceback(None)
        return 0
    return len(batch.records)
