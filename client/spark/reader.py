"""The batch reader: the partitions of the topics, their ends, and the records of a range as Arrow.

A task reads one range of one partition, the offsets [start, end), which the driver has planned. The
end was the last stable offset at that time, so every transaction before it has ended, and a task
never waits for a transaction. A range may have fewer records than offsets, because markers and
aborted records have offsets too.

A range belongs to a topic with an id. A task looks at the topic's id before it reads and when it
has read. An id never comes back, so if it is the same, everything between was of this topic.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, Self

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek.client.blocking import Admin, Consumer
from odradek.client.config import MIB, ClientOptions, ConsumerOptions
from odradek.client.errors import OffsetOutOfRange, TimedOut
from odradek.client.spark.batch_decoder import Batch, decode, records_section
from odradek.client.spark.columns import arrow_schema, check_read_schema, to_arrow
from odradek.client.spark.errors import sentence_first
from odradek.client.spark.offsets import (
    DataLossError,
    OffsetRange,
    Offsets,
    TopicIds,
    at_times,
    for_each,
    plan_ranges,
    report_losses,
    resolve,
    split_plan,
    split_ranges,
)
from odradek.client.spark.option_names import near_to
from odradek.client.spark.options import FIRST_CONNECT_MS, ReadOptions, Topics
from odradek.client.spark.topic_ids import find_topic_id, find_topic_ids
from odradek.client.types import DECISIONS_DEFAULT, FetchedBatch, TopicPartition
from odradek.protocol.batch import BatchHeader
from odradek.protocol.errors import KafkaError

CHUNK_BYTES: Final = 4 * MIB
"""The bytes that are decoded at once into one Arrow batch for Spark: about 30,000 small rows."""
LOGGER: Final = logging.getLogger("odradek.spark")
FETCH_TIMEOUT_MS: Final = 1_000
"""The time without records after which a task asks why none came."""


class UnreadableRecords(RuntimeError):
    """Record batches contradict themselves. The message has their place, and what to do."""


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range


class PartitionOffsets:
    """The partitions of a read and their offsets, from the broker. It is a context manager."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._topics = options.topics
        client: ClientOptions = {**options.client, "first_connect_ms": FIRST_CONNECT_MS}
        consumer: ConsumerOptions = {**client, **options.consumer}
        self._consumer = Consumer(options.bootstrap, **consumer)
        self._admin = Admin(options.bootstrap, **client)

    def __enter__(self) -> Self:
        self._consumer.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._consumer.close)
            stack.callback(self._admin.close)

    def partitions(self, *, allow_missing: bool = False) -> list[TopicPartition]:
        """Return the partitions to read, as they are now.

        Raises `TopicMissing`, or `Refused` if the user may not see a topic. With `allow_missing`, a
        topic that does not exist has no partitions.
        """
        if self._topics.assigned is not None:
            return [TopicPartition(*assigned) for assigned in self._topics.assigned]
        there = self._consumer.topics(internal=self._topics.pattern is None)
        unseen = [name for name in self._topics.subscribed or () if name not in there]
        if unseen:  # a list leaves out what the user may not see; by name, the broker says so
            find_topic_ids(self._admin, unseen)
        return [
            TopicPartition(name, partition)
            for name in choose_topics(self._topics, there, allow_missing=allow_missing)
            for partition in sorted(self._consumer.partitions_for(name))
        ]

    def ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        """Return the ids of the topics, as far as the broker has some.

        Ask for them before offsets: if a topic is made anew in between, its tasks find another id.
        """
        return find_topic_ids(self._admin, [partition.topic for partition in partitions])

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._consumer.beginning_offsets(list(partitions))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the last stable offset of each partition, or the end with read_uncommitted."""
        return self._consumer.end_offsets(list(partitions))

    def known(self, partitions: list[TopicPartition]) -> dict[str, Offsets]:
        """Return the `earliest` and the `latest` offsets."""
        return {"earliest": self.earliest(partitions), "latest": self.latest(partitions)}

    def starting(self, partitions: list[TopicPartition], known: dict[str, Offsets]) -> Offsets:
        """Return where a read begins. Raises `OffsetError`."""
        options = self._options
        if options.starting_times_ms is not None:
            return self._at_times(
                options.starting_times_ms,
                partitions,
                latest=known["latest"],
                option="startingOffsetsByTimestamp",
                is_latest_else=options.is_latest_without_match,
            )
        return resolve(options.starting_offsets, partitions, option="startingOffsets", **known)

    def ending(self, partitions: list[TopicPartition], known: dict[str, Offsets]) -> Offsets:
        """Return where a batch read ends. Raises `OffsetError`."""
        options = self._options
        if options.ending_times_ms is not None:
            return self._at_times(
                options.ending_times_ms,
                partitions,
                latest=known["latest"],
                option="endingOffsetsByTimestamp",
                is_latest_else=True,
            )
        return resolve(options.ending_offsets, partitions, option="endingOffsets", **known)

    def _at_times(
        self,
        times_ms: int | Offsets,
        partitions: list[TopicPartition],
        *,
        latest: Offsets,
        option: str,
        is_latest_else: bool,
    ) -> Offsets:
        wanted = for_each(times_ms, partitions, option=option)
        places = self._consumer.offsets_for_times(wanted)
        found = {name: place.offset if place else None for name, place in places.items()}
        return at_times(wanted, found, latest=latest, is_latest_else=is_latest_else)


class TopicMissing(ValueError):
    """A topic to read does not exist. The message names it."""


def choose_topics(topics: Topics, there: list[str], *, allow_missing: bool) -> list[str]:
    """Return the existing topics that the options choose. Raises `TopicMissing`."""
    if topics.pattern is not None:
        found = [name for name in there if topics.pattern.fullmatch(name)]
        return [name for name in found if name != DECISIONS_DEFAULT]
    wanted = sorted(topics.subscribed or ())
    missing = [name for name in wanted if name not in there]
    if missing and not allow_missing:
        near = near_to(missing[0], there)
        raise TopicMissing(
            f"There is no topic {', '.join(missing)}: create it, or correct the option subscribe"
            + (f" (did you mean {near}?)." if near else ".")
        )
    return [name for name in wanted if name not in missing]


class BatchReader(DataSourceReader):
    """A read from offsets to offsets, both fixed when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, include_headers=options.include_headers)
        self._options = options

    @sentence_first
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with PartitionOffsets(options) as broker:
            partitions = broker.partitions()
            ids = broker.ids(partitions)
            known = broker.known(partitions)
            start, end = broker.starting(partitions, known), broker.ending(partitions, known)
        return plan_tasks(options, start, end, known["earliest"], ids)

    @sentence_first
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from read_partition(self._options, partition)


def plan_tasks(
    options: ReadOptions,
    start: Offsets,
    end: Offsets,
    earliest: Offsets,
    ids: TopicIds,
    losses: Iterable[str] = (),
) -> list[InputPartition]:
    """Return a task for each range. Raises `DataLossError` for a loss, unless that is allowed.

    `losses` are those that the caller has found.
    """
    ranges, more = split_plan(plan_ranges(start, end, earliest=earliest))
    note_losses(options, [*losses, *more])
    split = split_ranges(
        [replace(offsets, topic_id=ids.get(offsets.topic)) for offsets in ranges],
        min_ranges=options.min_partitions,
        max_offsets=options.max_records_per_partition,
    )
    return [RangePartition(offsets) for offsets in split]


def note_losses(options: ReadOptions, losses: list[str]) -> None:
    """Raise `DataLossError` if there are losses, or log them if they are allowed."""
    if options.fail_on_data_loss:
        report_losses(losses)
    for loss in losses:
        LOGGER.warning("%s; the read goes on with what is left (failOnDataLoss is false)", loss)


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[Any]:
    """Yield a range's records as `pa.RecordBatch`es; none if the range is empty."""
    if not isinstance(partition, RangePartition):
        return
    wanted = partition.offset_range
    schema = arrow_schema(include_headers=options.include_headers)
    for chunk in chunks(fetch_range(options, wanted)):
        try:
            for records in decode(
                chunk,
                start_offset=wanted.start,
                end_offset=wanted.end,
                with_headers=options.include_headers,
            ):
                if len(records):
                    yield to_arrow(records, wanted, schema)
        except KafkaError as error:
            first, last = chunk[0][0], chunk[-1][0]
            raise _unreadable(wanted.topic_partition, first, last, error) from None


def chunks(batches: Iterable[FetchedBatch]) -> Iterator[list[Batch]]:
    """Yield lists of decompressed batches, each with about `CHUNK_BYTES`."""
    chunk: list[Batch] = []
    size_bytes = 0
    for batch in batches:
        try:
            section = records_section(batch.header, batch.data)
        except KafkaError as error:
            name = TopicPartition(batch.topic, batch.partition)
            raise _unreadable(name, batch.header, batch.header, error) from None
        chunk.append((batch.header, section))
        size_bytes += len(section)
        if size_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _unreadable(
    name: TopicPartition, first: BatchHeader, last: BatchHeader, why: KafkaError
) -> UnreadableRecords:
    return UnreadableRecords(
        f"{name} has records at offsets {first.base_offset} to {last.last_offset} that cannot be "
        f"read ({why}): to leave them out, begin behind them with startingOffsets, a stream with "
        "a new checkpoint, too."
    )


def fetch_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[FetchedBatch]:
    """Yield the batches with offsets of a range. The first and the last may have other offsets."""
    with Admin(options.bootstrap, **options.client) as admin:
        if _is_of_another_topic(admin, wanted):
            note_losses(options, [_lost_topic(wanted)])
            return
        yield from _fetch_range(options, wanted)
        if _is_of_another_topic(admin, wanted):
            # Some of the records may be of the new topic. Spark drops what a failed task has read.
            raise DataLossError(f"{_lost_topic(wanted)}, while a task read them: start it again.")


def _is_of_another_topic(admin: Admin, wanted: OffsetRange) -> bool:
    """Return True if the range belongs to a topic that was deleted and made anew."""
    if wanted.topic_id is None:
        return False
    now = find_topic_id(admin, wanted.topic)
    # invariant spark 4
    return now is not None and now != wanted.topic_id


def _lost_topic(wanted: OffsetRange) -> str:
    return (
        f"the topic {wanted.topic} was deleted and made anew, and offsets {wanted.start} to "
        f"{wanted.end - 1} of its partition {wanted.partition} are gone"
    )


def _fetch_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[FetchedBatch]:
    partition = wanted.topic_partition
    consumer_options: ConsumerOptions = {
        **options.client,
        **options.consumer,
        "auto_offset_reset": "error",
    }
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
    """Return the offset to continue at if `position` is gone. Raises `DataLossError` if it must."""
    partition = wanted.topic_partition
    earliest = consumer.beginning_offsets([partition])[partition]
    following = min(earliest, wanted.end) if earliest > position else wanted.end
    note_losses(options, [f"{partition} lost offsets {position} to {following - 1} meanwhile"])
    return following


def _is_gone(
    options: ReadOptions, consumer: Consumer, wanted: OffsetRange, position: int, waited_ms: int
) -> bool:
    """Return True if no record comes because the end of the range is gone.

    Raises `DataLossError` if it is gone and that is not allowed. Raises `TimedOut` if it exists
    and no record has come within the option kafkaConsumer.pollTimeoutMs.
    """
    partition = wanted.topic_partition
    end = consumer.end_offsets([partition])[partition]
    if end < wanted.end:
        if options.fail_on_data_loss or end <= position:
            note_losses(
                options, [f"{partition} ends at offset {end}, and this read ends at {wanted.end}"]
            )
        return bool(end <= position)
    if waited_ms >= options.poll_timeout_ms:
        raise TimedOut(
            f"{partition} gave no record from offset {position} on for {waited_ms} ms: look at the "
            "broker, or raise kafkaConsumer.pollTimeoutMs."
        )
    return False
