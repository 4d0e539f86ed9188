"""The encoder of a task's rows to record batches, sorted by topic and partition.

Some MiB of rows are collected before they are sorted and encoded, because small pieces over many
partitions would make small batches.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.config import MIB, system_wall_ms
from odradek.client.spark.batch_encoder import (
    HeaderWithoutKey,
    RecordColumns,
    RecordTooLarge,
    binary_sizes,
    encode,
    encode_headers,
)
from odradek.client.spark.messages import TopicBatch
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.partitioner import murmur2_positive, sticky_partitions
from odradek.client.spark.refused_rows import WrongRow, place_of
from odradek.client.spark.varints import Int64s

COLLECT_BYTES: Final = 8 * MIB
COLUMNS: Final = ("key", "value", "headers", "topic", "partition")


def encode_rows(
    batches: Iterable[Any],
    options: WriteOptions,
    *,
    count_partitions: Callable[[str], int],
    first_partition: int,
    task: int = 0,
) -> Iterator[TopicBatch]:
    """Yield all rows of `batches` (`pa.RecordBatch`es) as record batches.

    `count_partitions` returns the number of a topic's partitions. Rows without keys begin with
    partition `first_partition`. Raises `WrongRow`, with the place of the row in task `task`.
    """
    counts: dict[str, int] = {}
    first_row = 0
    for table in collect(batches):
        rows = Rows(table, options, first_row, task)
        first_row += table.num_rows
        for topic in rows.topics:
            if topic not in counts:
                counts[topic] = count_partitions(topic)
        yield from rows.encode(counts, first_partition)


def collect(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the columns to write in `pa.Table`s of about `COLLECT_BYTES`, each in one chunk."""
    pending: list[Any] = []
    size_bytes = 0
    for batch in batches:
        batch = batch.select([name for name in COLUMNS if name in batch.schema.names])
        if pending and size_bytes + batch.nbytes > COLLECT_BYTES:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending, size_bytes = [], 0
        if batch.num_rows:
            pending.append(batch)
            size_bytes += batch.nbytes
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


class Rows:
    """Some rows of a task, which it sorts by partition."""

    def __init__(self, table: Any, options: WriteOptions, first_row: int, task: int) -> None:
        """Read the rows of a table. The first one is row `first_row` of the task."""
        self._options = options
        self._first_row = first_row
        self._task = task
        self._count = table.num_rows
        columns = {name: table.column(name).chunk(0) for name in table.column_names}
        self._records = RecordColumns(
            key=_as_binary(columns.get("key")),
            value=_as_binary(columns["value"]),
        )
        if options.include_headers and "headers" in columns:
            headers = self._encode_headers(columns["headers"])
            self._records = replace(self._records, headers=headers)
        self._partitions = columns.get("partition")
        self._topic_of_row, self.topics = self._find_topics(columns.get("topic"))

    def _encode_headers(self, column: Any) -> Any:
        try:
            return encode_headers(column)
        except HeaderWithoutKey as error:
            raise WrongRow(
                f"{self._place(error.index)} has a header without a key: give every header a key, "
                "or leave that header out."
            ) from None

    def _find_topics(self, column: Any) -> tuple[Int64s, list[str]]:
        """Return the topic of each row as an index, and the list of the topics."""
        if self._options.topic is not None:
            return np.zeros(self._count, dtype=np.int64), [self._options.topic]
        if column is None or column.null_count:
            row = 0 if column is None else int(pc.index(column.is_null(), True).as_py())
            raise WrongRow(
                f"{self._place(row)} has no topic: set the option topic, or fill the column topic."
            )
        encoded = pc.dictionary_encode(column)
        indices: Int64s = encoded.indices.to_numpy().astype(np.int64)
        return indices, encoded.dictionary.to_pylist()

    def encode(self, partition_counts: dict[str, int], first: int) -> Iterator[TopicBatch]:
        """Yield the record batches, those of one partition in the order of the rows."""
        counts = np.array([partition_counts[topic] for topic in self.topics], dtype=np.int64)
        partitions = self._route(counts[self._topic_of_row], first)
        timestamp_ms = system_wall_ms()
        for topic, partition, records, rows in self._split(partitions):
            try:
                batches = encode(
                    records,
                    timestamp_ms=timestamp_ms,
                    batch_max_bytes=self._options.batch_max_bytes,
                    batch_full_bytes=self._options.batch_full_bytes,
                    codec=self._options.codec,
                )
            except RecordTooLarge as error:
                raise WrongRow(
                    f"{self._place(int(rows[error.index]))} is too large for topic {topic}, "
                    f"{error}: make it smaller, or raise kafka.max.request.size and the topic's "
                    "max.message.bytes."
                ) from None
            start = 0
            for batch in batches:
                end = start + batch.record_count
                yield TopicBatch(
                    topic=topic,
                    partition=partition,
                    record_count=batch.record_count,
                    data=batch.data,
                    rows=self._first_row + rows[start:end],
                )
                start = end

    def _route(self, partition_counts: Int64s, first: int) -> Int64s:
        """Return the partition of each row: from its column, its key, or a sticky run."""
        sizes = np.maximum(binary_sizes(self._records.value), 0)
        routed = sticky_partitions(sizes, partition_counts, first)
        keys = self._records.key
        if keys is not None and keys.null_count < self._count:
            has_key = keys.is_valid().to_numpy(zero_copy_only=False)
            routed = np.where(has_key, murmur2_positive(keys) % partition_counts, routed)
        if self._partitions is not None and self._partitions.null_count < self._count:
            given = pc.fill_null(self._partitions, 0).to_numpy().astype(np.int64)
            is_given = self._partitions.is_valid().to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(is_given & ((given < 0) | (given >= partition_counts)))
            if len(wrong):
                row = int(wrong[0])
                raise WrongRow(
                    f"{self._place(row)} goes to partition {given[row]} of topic "
                    f"{self.topics[self._topic_of_row[row]]}, which has {partition_counts[row]}: "
                    "correct the column partition, or leave it null to go by the key."
                )
            routed = np.where(is_given, given, routed)
        return routed

    def _place(self, row: int) -> str:
        """Return the words for a row of these, to begin a sentence with."""
        keys = self._records.key
        key = None if keys is None else keys[row].as_py()
        place = place_of(self._first_row + row, self._task, key)
        return place[0].upper() + place[1:]

    def _split(self, partitions: Int64s) -> Iterator[tuple[str, int, RecordColumns, Int64s]]:
        """Yield the records of each topic and partition, and the numbers of their rows here."""
        groups = (self._topic_of_row << 32) | partitions
        records = self._records
        order = np.arange(self._count)
        if groups.min() != groups.max():
            order = np.argsort(groups, kind="stable")
            groups, records = groups[order], records.take(order)
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        for start, end in zip(starts, [*starts[1:], self._count], strict=True):
            group = int(groups[start])
            topic = self.topics[group >> 32]
            of_group = records.slice(int(start), int(end - start))
            yield topic, group & 0xFFFFFFFF, of_group, order[start:end]


def _as_binary(column: Any) -> Any:
    return None if column is None else column.cast(pa.binary())
