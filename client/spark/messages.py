"""The message of a task to the driver when it has finished writing.

It has the encoded records themselves, or names the transaction in which the task has written them.
It has a version, so a driver refuses messages of a form that it does not know.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from odradek.client.producing.detached import DetachedTransaction
from odradek.client.spark.errors import CommitRefused
from odradek.late import dataclass

MESSAGE_VERSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBatch:
    """A record batch, with its topic and partition."""

    topic: str
    partition: int
    record_count: int
    data: bytes
    rows: Any = field(default=None, compare=False)
    """The numbers of the rows in the task, as an array. They do not travel in messages."""


@dataclass(kw_only=True)
class TaskMessage(WriterCommitMessage):
    """The result of one finished task: records for the driver to write, or an open transaction.

    `write_id` is the id of the streaming query, or of the batch write. `query_id` is the query in
    whose foreachBatch it was written, which only tasks know; None if there is none. `batch_id` is
    the number of the micro-batch, or the version of a batch write, or None for a batch write
    without version. If `is_late`, the task wrote nothing because it found its batch committed.
    """

    write_id: str
    batch_id: int | None
    query_id: str | None = None
    batches: tuple[TopicBatch, ...] = ()
    transaction: DetachedTransaction | None = None
    records_written: int = 0
    """The records in the transaction."""
    is_late: bool = False
    version: int = MESSAGE_VERSION

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def record_count(self) -> int:
        return self.records_written + sum(batch.record_count for batch in self.batches)


def checked(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Return the messages of all tasks of one write.

    Raises `CommitRefused` if a message is missing, has another form, or is of another write.
    """
    found = []
    for number, message in enumerate(messages):
        if not isinstance(message, TaskMessage):
            raise CommitRefused(
                f"Task {number} of {len(messages)} has no result to commit: nothing is written."
            )
        if message.version != MESSAGE_VERSION:
            raise CommitRefused(
                f"Task {number} answered with version {message.version} of the message, and this "
                f"driver knows version {MESSAGE_VERSION}: install the same version of odradek on "
                "the driver and on every executor."
            )
        found.append(message)
    ids = {(message.write_id, message.query_id, message.batch_id) for message in found}
    if len(ids) != 1:
        raise CommitRefused(f"The tasks belong to different writes: {sorted(map(str, ids))}.")
    return found
