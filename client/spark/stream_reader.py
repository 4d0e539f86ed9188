"""Reading as a stream: where it begins, how far a micro-batch goes, what a restart must find again.

Spark writes the end of every micro-batch into its checkpoint before it runs it, and the beginning
is the end of the one before it. Only the first has none: Spark asks `initialOffset` again when it
runs that batch again, and "latest" is elsewhere by then, or "earliest" after a clean-up. What came
between would be lost, silently. So where the stream began stands beside the end of the first batch
(`INITIAL`), and a replay begins there.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.client.spark.columns import check_read_schema
from odradek.client.spark.offsets import (
    INITIAL,
    Offsets,
    from_json,
    limit_rows,
    resolve,
    to_json,
)
from odradek.client.spark.options import ReadOptions
from odradek.client.spark.reader import PartitionOffsets, plan_tasks, read_partition

JsonOffsets = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as its query, in a process of its own on the driver; tasks get a copy of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, include_headers=options.include_headers)
        self._options = options
        self._broker: PartitionOffsets | None = None
        self._initial: Offsets | None = None
        self._target: Offsets | None = None

    def _connected(self) -> PartitionOffsets:
        # Not made in __init__: this object is pickled, and Spark never calls stop() for certain.
        if self._broker is None:
            self._broker = PartitionOffsets(self._options).__enter__()
        return self._broker

    def initialOffset(self) -> JsonOffsets:
        """Where the option startingOffsets says; the same however often Spark asks."""
        if self._initial is None:
            broker = self._connected()
            partitions = broker.partitions()
            self._initial = resolve(
                self._options.starting_offsets,
                partitions,
                earliest=broker.earliest(partitions),
                latest=broker.latest(partitions),
                option="startingOffsets",
            )
        initial = to_json(self._initial)
        return initial | {INITIAL: initial}

    def getDefaultReadLimit(self) -> ReadLimit:
        max_rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """How far the next micro-batch goes; `start` itself if there is nothing new."""
        begin = from_json(start)
        end = self._latest() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            new = sorted(end.keys() - begin.keys())
            end = limit_rows(self._connected().earliest(new) | begin, end, limit.max_rows)
        if end == begin:
            return start
        is_first = INITIAL in start and from_json(start[INITIAL]) == begin
        return to_json(end) | ({INITIAL: start[INITIAL]} if is_first else {})

    def _latest(self) -> Offsets:
        # A topic that is gone has no end; the plan of the batch will say that it is lost.
        broker = self._connected()
        return broker.latest(broker.partitions(allow_missing=True))

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        if start == end:  # another source of the query has something new, and this one not
            return []
        begin, until = from_json(end.get(INITIAL, start)), from_json(end)
        broker = self._connected()
        there = set(broker.partitions(allow_missing=True))
        earliest = broker.earliest(sorted(there & until.keys()))
        return plan_tasks(self._options, begin, until, earliest)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, partition)

    def commit(self, end: JsonOffsets) -> None:
        """Nothing to do: Spark's checkpoint is the only place that keeps the position."""

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None
