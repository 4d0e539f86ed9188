"""Reading: which partitions there are, how far they go, and the records of a range as Arrow.

A task reads one range of one partition, offsets [start, end), that was planned on the driver. The
end was the last stable offset then, so everything before it is decided, and a task never waits for
a transaction. What a range has may be less than it is long: markers and aborted records have
offsets too.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Self

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek.client.blocking import Consumer
from odradek.client.config import MIB, ConsumerOptions
from odradek.client.consuming.fetched import damaged
from odradek.client.errors import OffsetOutOfRange
from odradek.client.spark.batch_decoder import Batch, decode, records_section
from odradek.client.spark.columns import arrow_schema, check_read_schema, to_arrow
from odradek.client.spark.offsets import (
    OffsetRange,
    Offsets,
    plan_ranges,
    report_losses,
    resolve,
    split_plan,
)
from odradek.client.spark.options import FIRST_CONNECT_MS, ReadOptions, Topics
from odradek.client.types import DECISIONS_DEFAULT, FetchedBatch, TopicPartition
from odradek.protocol.errors import KafkaError

CHUNK_BYTES: Final = 4 * MIB
"""How much is decoded at once and handed to Spark as one Arrow batch: about 30,000 small rows."""
FETCH_TIMEOUT_MS: Final = 1_000
"""After how long without records a task asks what is the matter."""


class RangePartition(InputPartition):
    """One task's work."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range


class PartitionOffsets:
    """What the broker says about partitions; holds a connection. A context manager."""

    def __init__(self, options: ReadOptions) -> None:
        self._topics = options.topics
        begun: ConsumerOptions = {**options.consumer, "first_connect_ms": FIRST_CONNECT_MS}
        self._consumer = Consumer(options.bootstrap, **begun)

    def __enter__(self) -> Self:
        self._consumer.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def partitions(self, *, allow_missing: bool = False) -> list[TopicPartition]:
        """The partitions that are to be read, as they are now.

        Raises `TopicMissing`; with `allow_missing`, a topic that is not there has no partitions.
        """
        if self._topics.assigned is not None:
            return [TopicPartition(*assigned) for assigned in self._topics.assigned]
        there = self._consumer.topics()
        return [
            TopicPartition(name, partition)
            for name in choose_topics(self._topics, there, allow_missing=allow_missing)
            for partition in sorted(self._consumer.partitions_for(name))
        ]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._consumer.beginning_offsets(list(partitions))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Up to where records are decided (the last stable offset), or stored if uncommitted."""
        return self._consumer.end_offsets(list(partitions))


class TopicMissing(ValueError):
    """A topic that is to be read does not exist; the message names it."""


def choose_topics(topics: Topics, there: list[str], *, allow_missing: bool) -> list[str]:
    """Those of the topics there are that were asked for. Raises `TopicMissing`."""
    if topics.pattern is not None:
        found = [name for name in there if topics.pattern.fullmatch(name)]
        return [name for name in found if name != DECISIONS_DEFAULT]
    wanted = sorted(topics.subscribed or ())
    missing = [name for name in wanted if name not in there]
    if missing and not allow_missing:
        raise TopicMissing(
            f"There is no topic {', '.join(missing)}: create it, or correct the option subscribe."
        )
    return [name for name in wanted if name not in missing]


class BatchReader(DataSourceReader):
    """A read from offsets to offsets, both fixed when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, include_headers=options.include_headers)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with PartitionOffsets(options) as broker:
            partitions = broker.partitions()
            earliest, latest = broker.earliest(partitions), broker.latest(partitions)
        known = {"earliest": earliest, "latest": latest}
        start = resolve(options.starting_offsets, partitions, option="startingOffsets", **known)
        end = resolve(options.ending_offsets, partitions, option="endingOffsets", **known)
        return plan_tasks(options, start, end, earliest)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, partition)


def plan_tasks(
    options: ReadOptions, start: Offsets, end: Offsets, earliest: Offsets
) -> list[InputPartition]:
    """A task for every range. Raises `DataLossError` for what is gone, unless that is allowed."""
    ranges, losses = split_plan(plan_ranges(start, end, earliest=earliest))
    if options.fail_on_data_loss:
        report_losses(losses)
    return [RangePartition(offsets) for offsets in ranges]


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[Any]:
    """A range's records as `pa.RecordBatch`es; none where nothing was planned."""
    if not isinstance(partition, RangePartition):
        return
    wanted = partition.offset_range
    schema = arrow_schema(include_headers=options.include_headers)
    for chunk in chunks(fetch_range(options, wanted)):
        for records in decode(
            chunk,
            start_offset=wanted.start,
            end_offset=wanted.end,
            with_headers=options.include_headers,
        ):
            if len(records):
                yield to_arrow(records, wanted, schema)


def chunks(batches: Iterable[FetchedBatch]) -> Iterator[list[Batch]]:
    """Batches decompressed, and so many together as make an Arrow batch of a good size."""
    chunk: list[Batch] = []
    size_bytes = 0
    for batch in batches:
        try:
            section = records_section(batch.header, batch.data)
        except KafkaError as error:
            name = TopicPartition(batch.topic, batch.partition)
            raise damaged(name, batch.header, error) from None
        chunk.append((batch.header, section))
        size_bytes += len(section)
        if size_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def fetch_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[FetchedBatch]:
    """The batches that have offsets of a range; the first and the last may have others as well."""
    partition = wanted.topic_partition
    consumer_options: ConsumerOptions = {**options.consumer, "auto_offset_reset": "error"}
    with Consumer(options.bootstrap, **consumer_options) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, wanted.start)
        position, waited_ms = wanted.start, 0
        while position < wanted.end:
            try:
                batches = consumer.fetch_batches(FETCH_TIMEOUT_MS)
            except OffsetOutOfRange:
                position = _skip_lost(options, consumer, wanted, position)
                consumer.seek(partition, position)
                continue
            yield from (batch for batch in batches if batch.header.base_offset < wanted.end)
            before, position = position, consumer.position(partition)
            waited_ms = 0 if position > before else waited_ms + FETCH_TIMEOUT_MS
            if waited_ms and _is_gone(options, consumer, wanted, position, waited_ms):
                return


def _skip_lost(options: ReadOptions, consumer: Consumer, wanted: OffsetRange, position: int) -> int:
    """Where to go on when `position` is gone. Raises `DataLossError` unless that is allowed."""
    partition = wanted.topic_partition
    earliest = consumer.beginning_offsets([partition])[partition]
    following = min(earliest, wanted.end) if earliest > position else wanted.end
    if options.fail_on_data_loss:
        report_losses([f"{partition} lost offsets {position} to {following - 1} meanwhile"])
    return following


def _is_gone(
    options: ReadOptions, consumer: Consumer, wanted: OffsetRange, position: int, waited_ms: int
) -> bool:
    """Nothing comes: whether that is because the end of the range is no longer there.

    Raises `DataLossError` if so and that is not allowed, `TimeoutError` if it is there and still
    does not come for as long as the option kafkaConsumer.pollTimeoutMs allows.
    """
    partition = wanted.topic_partition
    end = consumer.end_offsets([partition])[partition]
    if end < wanted.end:
        if options.fail_on_data_loss:
            report_losses([f"{partition} ends at offset {end} and had {wanted.end} offsets before"])
        return bool(end <= position)
    if waited_ms >= options.poll_timeout_ms:
        raise TimeoutError(
            f"{partition} gave no record from offset {position} on for {waited_ms} ms: look at the "
            "broker, or raise kafkaConsumer.pollTimeoutMs."
        )
    return False
