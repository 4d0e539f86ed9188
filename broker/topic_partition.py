"""One partition of one topic, by name."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Sorts by topic, then partition; prints as Kafka's tools print it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
