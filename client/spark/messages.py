"""What a task tells the driver when it has finished writing.

The relay's message has the records themselves, encoded. Version and kind stand in front of it so
that a message of another form, such as one that names a transaction of the task's own, can be told
apart by a driver that knows both and refused by one that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

MESSAGE_VERSION: Final = 1
RELAY: Final = "relay"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBatch:
    """A record batch and where it goes."""

    topic: str
    partition: int
    record_count: int
    data: bytes


@dataclass(kw_only=True)
class RelayMessage(WriterCommitMessage):
    """One finished task's records, in order for each partition.

    `write_id` says whose they are: a streaming query's id, or a batch write's. `batch_id` is the
    micro-batch's, or a batch write's version; None where a batch write has none.
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
    """What the tasks report cannot be committed; the message says why and what to do."""


def checked(messages: Sequence[WriterCommitMessage | None]) -> list[RelayMessage]:
    """The messages of every task of one write. Raises `CommitRefused` if one is missing or odd."""
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
