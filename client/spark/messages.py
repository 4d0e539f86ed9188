"""The message of a task to the driver when it has finished writing.

The relay's message has the encoded records themselves. It begins with kind and version, so a driver
recognises messages of other forms, such as one that names a transaction of the task, and refuses
those that it does not know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

MESSAGE_VERSION: Final = 1
RELAY: Final = "relay"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBatch:
    """A record batch, with its topic and partition."""

    topic: str
    partition: int
    record_count: int
    data: bytes


@dataclass(kw_only=True)
class RelayMessage(WriterCommitMessage):
    """The records of one finished task, in order for each partition.

    `write_id` is the id of the streaming query, or of the batch write. `batch_id` is the number of
    the micro-batch, or the version of a batch write, or None for a batch write without version.
    """

    write_id: str
    batch_id: int | None
    batches: tuple[TopicBatch, ...]
    version: int = MESSAGE_VERSION
    kind: str = RELAY

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)


class CommitRefused(RuntimeError):
    """The messages of the tasks cannot be committed. The message states why and what to do."""


def checked(messages: Sequence[WriterCommitMessage | None]) -> list[RelayMessage]:
    """Return the messages of all tasks of one write.

    Raises `CommitRefused` if a message is missing, has another form, or is of another write.
    """
    relayed = []
    for number, message in enumerate(messages):
        if not isinstance(message, RelayMessage):
            raise CommitRefused(
                f"Task {number} of {len(messages)} has no result to commit: nothing is written."
            )
        if (message.version, message.kind) != (MESSAGE_VERSION, RELAY):
            raise CommitRefused(
                f"Task {number} answered with {message.kind} version {message.version}, and this "
                f"driver knows {RELAY} version {MESSAGE_VERSION}: install the same version of "
                "odradek on the driver and on every executor."
            )
        relayed.append(message)
    ids = {(message.write_id, message.batch_id) for message in relayed}
    if len(ids) != 1:
        raise CommitRefused(f"The tasks belong to different writes: {sorted(map(str, ids))}.")
    return relayed
