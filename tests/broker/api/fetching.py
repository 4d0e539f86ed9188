"""A client with a fetch session, that lists what it is told to list."""

from typing import Any
from uuid import UUID

from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from odradek.protocol.schema import ZERO_UUID
from tests.broker.raw import RawClient

Place = tuple[str | UUID, int, int]
"""Topic, partition and offset."""
PARTITION_MAX_BYTES = 1 << 20


def in_topics(places: tuple[Place, ...], max_bytes: int) -> tuple[FetchTopic, ...]:
    """One topic entry for each place: their order is that of the partitions, then."""
    return tuple(
        FetchTopic(
            topic="" if isinstance(topic, UUID) else topic,
            topic_id=topic if isinstance(topic, UUID) else ZERO_UUID,
            partitions=(
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes),
            ),
        )
        for topic, index, offset in places
    )


class SessionClient:
    """Its session goes on from answer to answer, unless a test changes `session_id` or `epoch`."""

    def __init__(self, client: RawClient, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def request(
        self,
        *places: Place,
        forgotten: tuple[tuple[str | UUID, int], ...] = (),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        isolation_level: int = 0,
    ) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=in_topics(places, partition_max_bytes),
            forgotten_topics_data=tuple(
                ForgottenTopic(
                    topic="" if isinstance(topic, UUID) else topic,
                    topic_id=topic if isinstance(topic, UUID) else ZERO_UUID,
                    partitions=(index,),
                )
                for topic, index in forgotten
            ),
        )

    def fetch(self, *places: Place, **options: Any) -> Any:
        """The whole answer. The next fetch goes on with its session."""
        answer = self.client.ask(FETCH, self.version, self.request(*places, **options))
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer

    def news(self, *places: Place, **options: Any) -> dict[tuple[str | UUID, int], Any]:
        """What an answer has, by topic and partition, in its order."""
        return in_answer(self.fetch(*places, **options))


def in_answer(answer: Any) -> dict[tuple[str | UUID, int], Any]:
    assert answer.error_code == 0, answer
    return {
        (topic.topic or topic.topic_id, data.partition_index): data
        for topic in answer.responses
        for data in topic.partitions
    }
