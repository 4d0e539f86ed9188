"""One partition of one topic, by name."""

import re
from typing import Final, NamedTuple

_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)", re.ASCII)


class TopicPartition(NamedTuple):
    """Sorts by topic, then partition; prints as Kafka's tools print it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partition_of(directory_name: str) -> TopicPartition | None:
    """Return the partition whose directory is called so, or None if there can be none."""
    found = _DIRECTORY.fullmatch(directory_name)
    return None if found is None else TopicPartition(found[1], int(found[2]))
