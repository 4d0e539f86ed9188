"""The fetch session of a consumer with one broker (KIP-227), as the consumer sees it.

The first fetch lists every partition, and the broker gives the session an id. A later fetch lists
the partitions that are read from elsewhere than in the fetch before, and those that are not read
any more. The answer has only partitions with news. Any doubt begins a new session: after a request
whose answer was not read, neither side knows what the other one has. A broker that gives no id
(none is kept, or all its slots are taken) is sent the whole list each time.

A partition of a topic that was made anew is another one, if the topics have ids: it is listed
beside the one that is not read any more.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from odradek.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID

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


class FetchedPlace(NamedTuple):
    """A partition as a session knows it. The id is zero if topics are asked for by name."""

    topic: str
    topic_id: UUID
    partition: int


class ConsumerFetchSession:
    """The partitions that one broker knows to be read from it."""

    def __init__(self) -> None:
        self._id = NO_ID
        self._epoch = NEW_SESSION
        """The session epoch of the next fetch."""
        self._sent_epoch = NEW_SESSION
        self._sent: Mapping[FetchedPlace, FetchPartition] = {}
        self._is_by_id = False

    def request(
        self, plain: FetchRequest, wanted: Mapping[FetchedPlace, FetchPartition]
    ) -> FetchRequest:
        """Return `plain` with what the broker does not know of `wanted`.

        Call `answered` with the answer. Without it the next fetch begins a new session.
        """
        is_by_id = all(place.topic_id != ZERO_UUID for place in wanted)
        if is_by_id is not self._is_by_id:
            self._is_by_id, self._epoch = is_by_id, NEW_SESSION
        known = {} if self._epoch == NEW_SESSION else self._sent
        listed: dict[tuple[str, UUID], list[FetchPartition]] = {}
        for place, asked in wanted.items():
            if known.get(place) != asked:
                listed.setdefault((place.topic, place.topic_id), []).append(asked)
        forgotten: dict[tuple[str, UUID], list[int]] = {}
        for place in known:
            if place not in wanted:
                forgotten.setdefault((place.topic, place.topic_id), []).append(place.partition)
        request = replace(
            plain,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=tuple(
                FetchTopic(topic=topic, topic_id=topic_id, partitions=tuple(places))
                for (topic, topic_id), places in listed.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=tuple(indexes))
                for (topic, topic_id), indexes in forgotten.items()
            ),
        )
        self._sent = wanted
        self._sent_epoch, self._epoch = self._epoch, NEW_SESSION
        return request

    def on_answered(self, answer: FetchResponse) -> bool:
        """Note an answer. Return False if the session is lost, and the fetch must be sent again."""
        if answer.error_code in LOST:
            if answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_ID
            return False
        self._id = answer.session_id
        if answer.error_code == ErrorCode.NONE and self._id != NO_ID:
            self._epoch = 1 if self._sent_epoch == LAST_EPOCH else self._sent_epoch + 1
        return True
