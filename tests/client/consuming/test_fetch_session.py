"""What a consumer lists in its fetches, and when it begins a new session."""

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.client.consuming.fetch_session import LAST_EPOCH, ConsumerFetchSession, FetchedPlace
from odradek.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID

A, B = FetchedPlace("a", ZERO_UUID, 0), FetchedPlace("b", ZERO_UUID, 3)
OLD, NEW = UUID(int=1), UUID(int=2)
PLAIN = FetchRequest(max_wait_ms=500, min_bytes=1, topics=())


def at(**offsets: int) -> dict[FetchedPlace, FetchPartition]:
    """Offsets of partitions a-0 and b-3."""
    names = {"a": A, "b": B}
    return {
        names[key]: FetchPartition(
            partition=names[key].partition, fetch_offset=offset, partition_max_bytes=100
        )
        for key, offset in offsets.items()
    }


def listed(request: FetchRequest) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, place.partition, place.fetch_offset)
        for topic in request.topics
        for place in topic.partitions
    ]


def begun() -> ConsumerFetchSession:
    session = ConsumerFetchSession()
    request = session.request(PLAIN, at(a=1, b=2))
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert listed(request) == [("a", 0, 1), ("b", 3, 2)]
    assert session.on_answered(FetchResponse(session_id=7, responses=()))
    return session


def test_only_what_has_changed_is_listed_and_what_is_not_read_is_forgotten() -> None:
    session = begun()
    request = session.request(PLAIN, at(a=1, b=5))
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert listed(request) == [("b", 3, 5)]
    assert request.forgotten_topics_data == ()
    assert session.on_answered(FetchResponse(session_id=7, responses=()))
    request = session.request(PLAIN, at(b=5))
    assert request.session_epoch == 2
    assert listed(request) == []
    [forgotten] = request.forgotten_topics_data
    assert (forgotten.topic, forgotten.partitions) == ("a", (0,))


def test_a_fetch_whose_answer_was_not_read_is_followed_by_a_new_session() -> None:
    session = begun()
    session.request(PLAIN, at(a=1, b=5))
    request = session.request(PLAIN, at(a=1, b=5))
    assert (request.session_id, request.session_epoch) == (7, 0), "it ends the one before"
    assert len(listed(request)) == 2


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_session_that_is_lost_is_begun_anew(code: ErrorCode, session_id: int) -> None:
    session = begun()
    session.request(PLAIN, at(a=1, b=2))
    assert not session.on_answered(FetchResponse(error_code=code, responses=()))
    request = session.request(PLAIN, at(a=1, b=2))
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert len(listed(request)) == 2


def test_a_broker_without_room_for_a_session_is_sent_the_whole_list_each_time() -> None:
    session = ConsumerFetchSession()
    for _ in range(3):
        request = session.request(PLAIN, at(a=1, b=2))
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert len(listed(request)) == 2
        assert session.on_answered(FetchResponse(session_id=0, responses=()))


def test_epoch_one_follows_the_last_one() -> None:
    session = begun()
    session._epoch = LAST_EPOCH
    assert session.request(PLAIN, at(a=1, b=2)).session_epoch == LAST_EPOCH
    session.on_answered(FetchResponse(session_id=7, responses=()))
    assert session.request(PLAIN, at(a=1, b=2)).session_epoch == 1


def test_a_topic_that_was_made_anew_is_listed_although_its_offset_is_the_same() -> None:
    session = ConsumerFetchSession()
    (place,) = at(a=5).values()
    session.request(PLAIN, {A._replace(topic_id=OLD): place})
    session.on_answered(FetchResponse(session_id=7, responses=()))
    request = session.request(PLAIN, {A._replace(topic_id=NEW): replace(place)})
    assert request.session_epoch == 1
    assert [topic.topic_id for topic in request.topics] == [NEW]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [OLD]


def test_a_session_that_began_with_names_does_not_go_on_with_ids() -> None:
    session = begun()
    request = session.request(
        PLAIN, {place._replace(topic_id=NEW): asked for place, asked in at(a=1).items()}
    )
    assert (request.session_id, request.session_epoch) == (7, 0)
