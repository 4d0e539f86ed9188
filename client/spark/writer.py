"""The writers: tasks encode their rows, and the driver commits the results.

A task's `write` runs on an executor, perhaps several times, perhaps twice at the same time
(speculation). It only asks a broker for the number of a topic's partitions, so an attempt that
fails or is not chosen leaves nothing behind. `commit` runs in another process, on another copy of
the writer. It gets the results of the chosen attempts, and knows only what they contain.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek.client.blocking import Producer
from odradek.client.config import ClientOptions
from odradek.client.spark.columns import check_write_schema
from odradek.client.spark.messages import CommitRefused, RelayMessage, checked
from odradek.client.spark.options import FIRST_CONNECT_MS, WriteOptions
from odradek.client.spark.relay import Relay
from odradek.client.spark.task_encoder import encode_rows

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

Messages = Sequence[WriterCommitMessage | None]


def encode_task(
    batches: Iterator[Any], options: WriteOptions, write_id: str, batch_id: int | None
) -> RelayMessage:
    """Encode a task's rows as the message that `commit` gets."""
    # Rows without keys begin with another partition in every task and micro-batch.
    first_partition = _task().partitionId() + (batch_id or 0)
    begins = batch_id is None or batch_id == 0 or options.application is not None
    client: ClientOptions = {**options.client}
    if begins:
        client["first_connect_ms"] = FIRST_CONNECT_MS
    with Producer(options.bootstrap, **client) as producer:
        encoded = encode_rows(
            batches,
            options,
            count_partitions=producer.partitions_for,
            first_partition=first_partition,
        )
    return RelayMessage(write_id=write_id, batch_id=batch_id, batches=encoded)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write() runs in a Spark task"
    return task


def _of_task(name: str) -> str:
    value = _task().getLocalProperty(name)
    assert value is not None, f"Spark sets {name} in every task of a streaming query"
    return value


class Committer:
    """The driver's side of batch and stream writers."""

    relay: ClassVar[type[Relay]] = Relay

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write_schema(schema, has_topic_option=options.topic is not None)
        self._options = options

    def commit_messages(self, messages: Messages, batch_id: int | None) -> None:
        """Write the results of all tasks in one transaction, unless they were written before.

        Raises `CommitRefused` if they are too large or not complete, and the errors of
        `Relay.commit`.
        """
        relayed = checked(messages)
        given = relayed[0]
        if given.batch_id != batch_id:
            raise CommitRefused(
                f"Spark commits batch {batch_id}, and tasks wrote {given.batch_id}."
            )
        size_bytes = sum(message.size_bytes for message in relayed)
        if size_bytes > self._options.relay_max_bytes:
            raise CommitRefused(
                f"This batch has {size_bytes} bytes of encoded records and relay.max.bytes is "
                f"{self._options.relay_max_bytes}: nothing is written. Read less at a time with "
                "maxOffsetsPerTrigger, write in several parts, or raise the option together with "
                "spark.driver.memory and spark.driver.maxResultSize."
            )
        batches = [batch for message in relayed for batch in message.batches]
        self.relay(self._options, given.write_id).commit(batch_id, batches)


class BatchWriter(Committer, DataSourceArrowWriter):
    """One batch write, made once on the driver. Tasks and commit get copies with the same id."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        application = options.application
        self._write_id = application.application_id if application else uuid.uuid4().hex
        self._version = application.version if application else None

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return encode_task(iterator, self._options, self._write_id, self._version)

    def commit(self, messages: Any) -> None:
        self.commit_messages(messages, self._version)

    def abort(self, messages: Any) -> None:
        """Do nothing: tasks have written nothing, and a decided commit stays."""


class StreamWriter(Committer, DataSourceStreamArrowWriter):
    """One micro-batch of a streaming query."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        batch_id = int(_of_task(BATCH_ID))
        return encode_task(iterator, self._options, _of_task(QUERY_ID), batch_id)

    def commit(self, messages: Any, batchId: int) -> None:
        self.commit_messages(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:
        """Do nothing.

        Spark also calls this after a commit that failed behind its decision, and the decision must
        stay.
        """
