"""The writers: tasks write their rows (`task_writer.py`), and the driver commits (`commit.py`).

A task's `write` runs on an executor, perhaps several times, perhaps twice at the same time
(speculation). `commit` runs in another process, on another copy of the writer. It gets the results
of the chosen attempts, and knows only what they contain.
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

from odradek.client.blocking import TransactionGroup
from odradek.client.spark.columns import check_write_schema
from odradek.client.spark.commit import BatchCommit
from odradek.client.spark.errors import CommitRefused, sentence_first
from odradek.client.spark.members import Attempt, abort_each, group_of
from odradek.client.spark.messages import TaskMessage, checked
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.task_writer import TaskWriter

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"

Messages = Sequence[WriterCommitMessage | None]


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write() runs in a Spark task"
    return task


def _of_task(name: str) -> str:
    value = _task().getLocalProperty(name)
    assert value is not None, f"Spark sets {name} in every task of a streaming query"
    return value


class Committer:
    """The common part of batch and stream writers, on both sides."""

    task_writer: ClassVar[type[TaskWriter]] = TaskWriter
    batch_commit: ClassVar[type[BatchCommit]] = BatchCommit

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write_schema(schema, has_topic_option=options.topic is not None)
        self._options = options

    def write_task(
        self,
        batches: Iterator[Any],
        write_id: str,
        batch_id: int | None,
        run: str,
        query_id: str | None = None,
    ) -> TaskMessage:
        """Write a task's rows."""
        task = _task()
        attempt = Attempt(
            write_id=write_id,
            query_id=query_id,
            batch_id=batch_id,
            run=run,
            partition=task.partitionId(),
            attempt=task.taskAttemptId(),
        )
        begins = not batch_id or self._options.application is not None
        return self.task_writer(self._options, attempt, begins=begins).write(batches)

    def commit_messages(self, messages: Messages, batch_id: int | None) -> None:
        """Make the results of all tasks visible at once, unless they were committed before.

        Raises `CommitRefused` if they are too large or not complete, and the errors of
        `BatchCommit.commit`.
        """
        results = checked(messages)
        given = results[0]
        if given.batch_id != batch_id:
            raise CommitRefused(
                f"Spark commits batch {batch_id}, and tasks wrote {given.batch_id}."
            )
        size_bytes = sum(message.size_bytes for message in results)
        if size_bytes > self._options.relay_max_bytes:
            raise CommitRefused(
                f"This batch has {size_bytes} bytes of encoded records and relay.max.bytes is "
                f"{self._options.relay_max_bytes}: nothing is written. Read less at a time with "
                "maxOffsetsPerTrigger, write in several parts, or raise the option together with "
                "spark.driver.memory and spark.driver.maxResultSize. A broker with transaction "
                "groups has no such limit."
            )
        commit = self.batch_commit(self._options, given.write_id, given.query_id)
        commit.commit(batch_id, results)

    def abort_messages(self, messages: Messages) -> None:
        """Abort what the tasks of a batch have left open.

        Spark also calls this after a commit that failed behind its decision. The decision stays:
        the broker refuses to abort a transaction that is decided.
        """
        results = [message for message in messages if isinstance(message, TaskMessage)]
        members = [each.transaction for each in results if each.transaction is not None]
        if members:
            name = group_of(members[0].transactional_id)
            with TransactionGroup(self._options.bootstrap, name, **self._options.client) as group:
                abort_each(group, members)


class BatchWriter(Committer, DataSourceArrowWriter):
    """One batch write, made once on the driver. Tasks and commit get copies with the same id."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        application = options.application
        self._run = uuid.uuid4().hex
        self._write_id = application.application_id if application else self._run
        self._version = application.version if application else None

    @sentence_first
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        # In foreachBatch a task sees the query. Without an application nobody asks for it later.
        query_id = _task().getLocalProperty(QUERY_ID) if self._options.application else None
        return self.write_task(iterator, self._write_id, self._version, self._run, query_id)

    @sentence_first
    def commit(self, messages: Any) -> None:
        self.commit_messages(messages, self._version)

    @sentence_first
    def abort(self, messages: Any) -> None:
        self.abort_messages(messages)


class StreamWriter(Committer, DataSourceStreamArrowWriter):
    """One micro-batch of a streaming query."""

    @sentence_first
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        batch_id = int(_of_task(BATCH_ID))
        return self.write_task(iterator, _of_task(QUERY_ID), batch_id, _of_task(RUN_ID))

    @sentence_first
    def commit(self, messages: Any, batchId: int) -> None:
        self.commit_messages(messages, batchId)

    @sentence_first
    def abort(self, messages: Any, batchId: int) -> None:
        self.abort_messages(messages)
