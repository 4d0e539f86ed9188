"""One partition of one topic, by the topic's name, or by its name and id."""

import re
from collections.abc import Collection
from typing import Final, NamedTuple, Self
from uuid import UUID

from odradek.protocol.schema import ZERO_UUID

NO_ID: Final = ZERO_UUID.bytes
_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)", re.ASCII)


class TopicPartition(NamedTuple):
    """Sorts by topic, then partition; prints as Kafka's tools print it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition of one topic and of no other: a topic that is made anew has another id.

    The id is zero if it is not known: an earlier version of the broker has named the partition.
    """

    topic: str
    partition: int
    id_bytes: bytes
    """The topic's id. Requests have tens of thousands of partitions, which are kept in sets, and to
    hash or compare a UUID takes a call of Python."""

    @classmethod
    def of(cls, topic: str, partition: int, topic_id: UUID) -> Self:
        return cls(topic, partition, topic_id.bytes)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def topic_id(self) -> UUID:
        return UUID(bytes=self.id_bytes)

    @property
    def by_name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def may_be_of(self, topic_id: UUID) -> bool:
        """Return True unless it is known to be a partition of another topic."""
        # invariant markers 2
        return self.id_bytes in (NO_ID, topic_id.bytes)

    def is_in(self, partitions: Collection["TopicIdPartition"]) -> bool:
        """Return True if `partitions` has this one, or has it without an id."""
        return self in partitions or self._replace(id_bytes=NO_ID) in partitions


def partition_of(directory_name: str) -> TopicPartition | None:
    """Return the partition whose directory is called so, or None if there can be none."""
    found = _DIRECTORY.fullmatch(directory_name)
    return None if found is None else TopicPartition(found[1], int(found[2]))
