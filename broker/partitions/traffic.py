"""The counts of what clients write to topics and read from them, for `/metrics`.

They are plain attributes: a request pays an addition for each, whether or not anything reads them.
The lane counts once for a partition and turn (`Group.append` in `lane.py`).

They are by topic and not by partition. A partition that moves to another broker leaves its counts
here, because a sum that falls would look like a new start of the broker. They end with the last
partition of the topic on this broker.
"""

from collections.abc import Iterator
from typing import Final

from odradek.protocol.errors import ErrorCode

EXPECTED: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of a batch that are no failed Produce requests, as in Kafka."""


class TopicTraffic:
    """The counts of one topic since its first partition was opened."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "partition_count",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.partition_count = 0
        """The partitions of the topic that are open here."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produce_requests = 0
        """Batches that were sent: a request counts once for each of its partitions."""
        self.fetch_requests = 0
        """Reads of a partition for a Fetch, however often that looks for news meanwhile."""
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0


class Traffic:
    """The counts of all topics that have a partition here."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}

    def __iter__(self) -> Iterator[tuple[str, TopicTraffic]]:
        return iter(list(self._topics.items()))

    def on_opened(self, topic: str) -> TopicTraffic:
        """Return the counts of a topic that has a partition more."""
        traffic = self._topics.setdefault(topic, TopicTraffic())
        traffic.partition_count += 1
        return traffic

    def on_closed(self, topic: str) -> None:
        """Note that a topic has a partition less. Without any its counts end."""
        traffic = self._topics[topic]
        traffic.partition_count -= 1
        if not traffic.partition_count:
            del self._topics[topic]
