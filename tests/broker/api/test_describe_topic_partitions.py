"""DescribeTopicPartitions, as a real Kafka answers it (with --peers): topics in pages."""

import pytest

from odradek.protocol.apis.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicCursor,
    TopicRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import unique
from tests.broker.api.topics import TOPIC_OPERATIONS, topic_of
from tests.broker.asks import topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode


def pages(
    client: RawClient, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, ErrorCode, list[int]]], tuple[str, int] | None]:
    """Return the topics of an answer (name, code, partitions), and the next cursor."""
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else TopicCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request)
    found = [
        (
            topic.name,
            ErrorCode(topic.error_code),
            [partition.partition_index for partition in topic.partitions],
        )
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return found, following and (following.topic_name, following.partition_index)


@pytest.fixture
def two(either: RawClient) -> tuple[str, str]:
    """Two topics, in the order of their names, of three partitions each."""
    prefix = unique("pages")
    first, second = topic_of(either, 3, f"{prefix}-a"), topic_of(either, 3, f"{prefix}-b")
    return first, second


def test_a_topic_is_described_as_in_metadata(either: RawClient) -> None:
    topic = topic_of(either, 2)
    request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name=topic),))
    (found,) = either.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request).topics
    assert (found.topic_id, found.is_internal) == (topic_metadata(either, topic).topic_id, False)
    assert found.topic_authorized_operations == TOPIC_OPERATIONS
    for index, partition in enumerate(found.partitions):
        assert (partition.error_code, partition.partition_index) == (E.NONE, index)
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert partition.replica_nodes == partition.isr_nodes == (1,)
        assert partition.eligible_leader_replicas == partition.last_known_elr == ()
        assert partition.offline_replicas == ()


def test_pages_go_through_the_topics_in_the_order_of_names(
    either: RawClient, two: tuple[str, str]
) -> None:
    first, second = two
    assert pages(either, second, first, first, limit=2) == (
        [(first, E.NONE, [0, 1])],
        (first, 2),
    )
    assert pages(either, first, second, limit=2, cursor=(first, 2)) == (
        [(first, E.NONE, [2]), (second, E.NONE, [0])],
        (second, 1),
    )
    assert pages(either, first, second, limit=3) == ([(first, E.NONE, [0, 1, 2])], (second, 0))
    assert pages(either, first, second, cursor=(second, 1)) == ([(second, E.NONE, [1, 2])], None)
    assert pages(either, second, cursor=(second, 9)) == ([(second, E.NONE, [])], None)
    assert pages(either, first, second, limit=0) == ([(first, E.NONE, [0])], (first, 1))
    assert pages(either, first, second, limit=-5) == ([(first, E.NONE, [0])], (first, 1))


def test_an_empty_list_asks_for_all_topics(either: RawClient, two: tuple[str, str]) -> None:
    first, second = two
    found, _ = pages(either)
    assert (first, E.NONE, [0, 1, 2]) in found
    assert [name for name, _, _ in found] == sorted(name for name, _, _ in found)
    later, _ = pages(either, cursor=(second, 2))
    assert later[0] == (second, E.NONE, [2])
    assert first not in [name for name, _, _ in later]
    absent = f"{first}0"  # between the two
    assert pages(either, cursor=(absent, 5))[0][0] == (second, E.NONE, [0, 1, 2])


def test_topics_that_do_not_exist_are_refused_beside_the_others(
    either: RawClient, two: tuple[str, str]
) -> None:
    first, _ = two
    assert pages(either, first, "absent", "a/b", limit=3) == (
        [
            ("a/b", E.INVALID_TOPIC_EXCEPTION, []),
            ("absent", E.UNKNOWN_TOPIC_OR_PARTITION, []),
            (first, E.NONE, [0, 1, 2]),
        ],
        None,
    )


def test_a_cursor_must_be_one_of_a_page_before(either: RawClient, two: tuple[str, str]) -> None:
    first, second = two
    for cursor in ((f"{second}-other", 0), (first, -1)):
        found, following = pages(either, first, second, cursor=cursor)
        assert found == [(first, E.INVALID_REQUEST, []), (second, E.INVALID_REQUEST, [])]
        assert following is None
    assert pages(either, cursor=(first, -1)) == ([], None)


def test_ten_thousand_topics_are_answered(client: RawClient) -> None:
    topic = topic_of(client)
    names = [f"absent-{index}" for index in range(10_000)]
    found, following = pages(client, *names, topic)
    assert (len(found), following) == (10_001, None)
    assert (topic, E.NONE, [0]) in found


@pytest.mark.slow
def test_an_answer_has_at_most_two_thousand_partitions(client: RawClient) -> None:
    topic = topic_of(client, 2_500)
    ((_, _, first),), following = pages(client, topic, limit=2**31 - 1)
    assert (len(first), following) == (2_000, (topic, 2_000))
    ((_, _, rest),), following = pages(client, topic, cursor=following)
    assert (first + rest, following) == (list(range(2_500)), None)
