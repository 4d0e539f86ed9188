"""The stream reader: the start of a stream, and the end of each micro-batch.

Spark writes the end of every micro-batch into its checkpoint before it runs the batch, and a batch
begins at the end of the previous one. The first batch has no previous one. If Spark runs it again,
it calls `initialOffset` again, and "latest" (or, after a clean-up, "earliest") has moved. The
records in between would be lost without an error. So the start of the stream is kept beside the end
of the first batch (`INITIAL`), and a replay begins there.

The ids of the topics are beside their offsets, too. A topic with another id than before was deleted
and made anew. That is a loss, and where losses are allowed it is read from its beginning.
"""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.client.spark.columns import check_read_schema
from odradek.client.spark.errors import sentence_first
from odradek.client.spark.offsets import (
    INITIAL,
    Offsets,
    TopicIds,
    count_new,
    from_json,
    ids_from_json,
    limit_rows,
    made_anew,
    to_json,
    without_topics,
)
from odradek.client.spark.options import ReadOptions
from odradek.client.spark.reader import PartitionOffsets, plan_tasks, read_partition

JsonOffsets = dict[str, Any]


class Ends(NamedTuple):
    """The ends of partitions, and the ids of their topics."""

    offsets: Offsets
    ids: TopicIds


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query, in a process of its own on the driver. Tasks get a copy of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, include_headers=options.include_headers)
        self._options = options
        self._broker: PartitionOffsets | None = None
        self._initial: JsonOffsets | None = None
        self._target: Ends | None = None
        self._newest: Offsets | None = None
        self._triggered_at = -math.inf
        """When the latest micro-batch began, by the monotonic clock."""

    def _connected(self) -> PartitionOffsets:
        # Not in __init__: this object is pickled, and Spark does not always call stop().
        if self._broker is None:
            self._broker = PartitionOffsets(self._options).__enter__()
        return self._broker

    @sentence_first
    def initialOffset(self) -> JsonOffsets:
        """Return where the options let the stream begin, the same at every call."""
        if self._initial is None:
            broker = self._connected()
            partitions = broker.partitions()
            ids = broker.ids(partitions)
            self._initial = to_json(broker.starting(partitions, broker.known(partitions)), ids)
        return self._initial | {INITIAL: self._initial}

    def getDefaultReadLimit(self) -> ReadLimit:
        max_rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    @sentence_first
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    @sentence_first
    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Return the end of the next micro-batch; `start` if there are no new records."""
        latest = self._latest() if self._target is None else self._target
        # invariant spark 4
        anew = made_anew(ids_from_json(start), latest.ids)
        begin, end = without_topics(from_json(start), anew), latest.offsets
        if self._is_delayed(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            new = sorted(end.keys() - begin.keys())
            end = limit_rows(self._connected().earliest(new) | begin, end, limit.max_rows)
        if end == begin and not anew:
            return start
        # With the ids: the first batch of a topic that was made anew may end at the same offsets.
        is_first = INITIAL in start and start == start[INITIAL] | {INITIAL: start[INITIAL]}
        return to_json(end, latest.ids) | ({INITIAL: start[INITIAL]} if is_first else {})

    def _is_delayed(self, begin: Offsets, end: Offsets) -> bool:
        """Return True if a micro-batch waits for more records (minOffsetsPerTrigger).

        The first one does not wait, nor does a query that reads what there is and ends.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        is_late = now - self._triggered_at >= self._options.max_trigger_delay_ms / 1000
        if count_new(begin, end) < least and not is_late:
            return True
        self._triggered_at = now
        return False

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return the ends of the partitions when the latest micro-batch was planned."""
        return None if self._newest is None else to_json(self._newest)

    def _latest(self) -> "Ends":
        # A deleted topic has no end. The plan of the batch reports the loss.
        broker = self._connected()
        partitions = broker.partitions(allow_missing=True)
        ids = broker.ids(partitions)
        self._newest = broker.latest(partitions)
        return Ends(self._newest, ids)

    @sentence_first
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        if start == end:  # only another source of the query has new records
            return []
        before = end.get(INITIAL, start)
        begin, until, planned = from_json(before), from_json(end), ids_from_json(end)
        broker = self._connected()
        there = broker.partitions(allow_missing=True)
        now = broker.ids(there)
        # invariant spark 4: An offset in Spark's checkpoint belongs to a topic with an id. The
        # offsets of a topic that is gone are a loss, and never read from the next topic of its
        # name.
        # plant a stream reads a topic that was made anew from the old offset
        # plant a stream begins a batch at the offset of a topic that is gone
        # plant a task reads the offsets of a topic that is gone from the next one of its name
        begun_anew = made_anew(ids_from_json(before), planned)
        gone = made_anew(planned, now)
        losses = [
            f"the topic {topic} was deleted and made anew after {_ends(begin, topic)} was read"
            for topic in sorted(begun_anew)
        ]
        losses += [
            f"the topic {topic} was deleted and made anew, and what this batch had of it is gone"
            for topic in sorted(gone)
        ]
        begin = without_topics(begin, begun_anew | gone)
        until = without_topics(until, gone)
        earliest = broker.earliest(sorted(set(there) & until.keys()))
        return plan_tasks(self._options, begin, until, earliest, now | planned, losses)

    @sentence_first
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from read_partition(self._options, partition)

    def commit(self, end: JsonOffsets) -> None:
        """Do nothing: only Spark's checkpoint keeps the position."""

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None


def _ends(offsets: Offsets, topic: str) -> str:
    """Return in words where the partitions of a topic were read up to."""
    return ", ".join(
        f"offset {offset} of partition {name.partition}"
        for name, offset in sorted(offsets.items())
        if name.topic == topic
    )
