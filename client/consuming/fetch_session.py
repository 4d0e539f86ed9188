"""The fetch session of a consumer with one broker (KIP-227), as the consumer sees it.

The first fetch lists every partition, and the broker gives the session an id. A later fetch lists
the partitions that are read from elsewhere than in the fetch before, and those that are not read
any more. The answer has only partitions with news. Any doubt begins a new session: after a request
whose answer was not read, neither side knows what the other one has. A broker that gives no id
(none is kept, or all its slots are taken) is sent the whole list each time.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from odradek.client.types import TopicPartition
from odradek.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from odradek.protocol.errors import ErrorCode

NEW_SESSION: Final = 0
NO_ID: Final = 0
LAST_EPOCH: Final = 2**31 - 1
LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Answers after which a new session begins."""


class ConsumerFetchSession:
    """The partitions that one broker knows to be read from it."""

    def __init__(self) -> None:
        self._id = NO_ID
        self._epoch = NEW_SESSION
        """The session epoch of the next fetch."""
        self._sent_epoch = NEW_SESSION
        self._sent: Mapping[TopicPartition, FetchPartition] = {}

    def request(
        self, plain: FetchRequest, wanted: Mapping[TopicPartition, FetchPartition]
    ) -> FetchRequest:
        """Return `plain` with what the broker does not know of `wanted`.

        Call `answered` with the answer. Without it the next fetch begins a new session.
        """
        known = {} if self._epoch == NEW_SESSION else self._sent
        listed: dict[str, list[FetchPartition]] = {}
        for name, place in wanted.items():
            if known.get(name) != place:
                listed.setdefault(name.topic, []).append(place)
        forgotten: dict[str, list[int]] = {}
        for name in known:
            if name not in wanted:
                forgotten.setdefault(name.topic, []).append(name.partition)
        request = replace(
            plain,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=tuple(
                FetchTopic(topic=topic, partitions=tuple(places))
                for topic, places in listed.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic=topic, partitions=tuple(indexes))
                for topic, indexes in forgotten.items()
            ),
        )
        self._sent = wanted
        self._sent_epoch, self._epoch = self._epoch, NEW_SESSION
        return request

    def answered(self, answer: FetchResponse) -> bool:
        """Go on with the session. Return False if it is lost, and the fetch must be sent again."""
        if answer.error_code in LOST:
            if answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_ID
            return False
        self._id = answer.session_id
        if answer.error_code == ErrorCode.NONE and self._id != NO_ID:
            self._epoch = 1 if self._sent_epoch == LAST_EPOCH else self._sent_epoch + 1
        return True
