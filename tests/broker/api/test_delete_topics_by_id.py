"""DeleteTopics by id, as a real Kafka answers it (with --peers)."""

import uuid

from odradek.protocol.apis.topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from tests.broker.api.producing import until
from tests.broker.api.topics import topic_of
from tests.broker.asks import topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode


def test_topics_are_deleted_by_id(either: RawClient) -> None:
    topic = topic_of(either)
    topic_id, absent = topic_metadata(either, topic).topic_id, uuid.uuid4()
    states = tuple(DeleteTopicState(name=None, topic_id=each) for each in (absent, topic_id))
    request = DeleteTopicsRequest(topics=states, timeout_ms=60_000)
    results = either.ask(DELETE_TOPICS, 6, request).responses
    found = {each.topic_id: (each.name, ErrorCode(each.error_code)) for each in results}
    assert found == {absent: (None, E.UNKNOWN_TOPIC_ID), topic_id: (topic, E.NONE)}
    until(
        lambda: topic_metadata(either, topic).error_code,
        lambda code: code == E.UNKNOWN_TOPIC_OR_PARTITION,
    )


def test_a_topic_that_is_given_by_name_and_by_id_is_not_deleted(either: RawClient) -> None:
    topic = topic_of(either)
    topic_id = topic_metadata(either, topic).topic_id
    by_id = DeleteTopicState(name=None, topic_id=topic_id)
    states = (by_id, DeleteTopicState(name=topic, topic_id=ZERO_UUID))
    request = DeleteTopicsRequest(topics=states, timeout_ms=60_000)
    (refused,) = either.ask(DELETE_TOPICS, 6, request).responses
    assert (refused.name, refused.topic_id) == (topic, topic_id)
    assert refused.error_code == E.INVALID_REQUEST
    assert topic_metadata(either, topic).topic_id == topic_id
