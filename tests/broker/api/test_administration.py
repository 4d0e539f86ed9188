"""What administrators' tools ask for, as a real Kafka answers it (with --peers): directories, the
quorum, features, quotas, topics in pages, authorised operations, deletion by id."""

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from odradek.protocol.apis.group import DESCRIBE_GROUPS, DescribeGroupsRequest
from odradek.protocol.apis.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    METADATA,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from odradek.protocol.apis.quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from odradek.protocol.apis.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicCursor,
    TopicRequest,
)
from odradek.protocol.apis.topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import settled, unique, until
from tests.broker.asks import batch, create_topic, fetch, produce, topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode
NO_OPERATIONS = -(2**31)
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
GROUP_OPERATIONS = 3400
DOWNGRADE, UNSAFE = 2, 3


def topic_of(client: RawClient, partitions: int = 1, name: str | None = None) -> str:
    """Make a topic and wait until it is led."""
    name = name or unique("admin")
    assert create_topic(client, name, partitions).error_code == E.NONE
    for number in range(partitions):
        settled(partial(fetch, client, name, 0, partition=number))
    return name


# DescribeLogDirs


def directories(client: RawClient, version: int, *wanted: tuple[str, Sequence[int]]) -> Any:
    topics = tuple(
        DescribableLogDirTopic(topic=topic, partitions=tuple(indexes)) for topic, indexes in wanted
    )
    request = DescribeLogDirsRequest(topics=topics or None)
    answer = client.ask(DESCRIBE_LOG_DIRS, version, request)
    assert answer.error_code == E.NONE
    return answer.results


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_the_size_of_each_log_is_told(either: RawClient, version: int) -> None:
    topic = topic_of(either, 2)
    data = batch(b"x")
    assert produce(either, topic, bytearray(data)).error_code == E.NONE
    (result,) = directories(either, version, (topic, [0, 0, 9]), (unique("absent"), [0]))
    assert sizes(result) == {(topic, 0): len(data)}
    assert (result.error_code, result.is_cordoned) == (E.NONE, False)
    assert Path(result.log_dir).is_absolute()
    (partition,) = result.topics[0].partitions
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    if version >= 4:
        assert result.total_bytes > result.usable_bytes > 0
    (everything,) = directories(either, version)
    found = sizes(everything)
    assert (found[topic, 0], found[topic, 1]) == (len(data), 0)


def test_an_empty_list_of_topics_asks_for_none(either: RawClient) -> None:
    topic_of(either)
    request = DescribeLogDirsRequest(topics=())
    (result,) = either.ask(DESCRIBE_LOG_DIRS, 5, request).results
    assert result.topics == ()


def test_the_directory_is_the_brokers(client: RawClient, shared_broker: RunningBroker) -> None:
    (result,) = directories(client, 5)
    assert result.log_dir == str(shared_broker.data_dir)


# DescribeQuorum


def quorum(client: RawClient, version: int, *wanted: tuple[str, Sequence[int]]) -> Any:
    topics = tuple(
        QuorumTopic(
            topic_name=topic,
            partitions=tuple(QuorumPartition(partition_index=index) for index in indexes),
        )
        for topic, indexes in wanted
    )
    answer = client.ask(DESCRIBE_QUORUM, version, DescribeQuorumRequest(topics=topics))
    assert (answer.error_code, answer.error_message) == (E.NONE, "")
    return answer


@pytest.mark.parametrize("version", range(3))
def test_the_controller_is_the_one_voter(either: RawClient, version: int) -> None:
    answer = quorum(either, version, ("__cluster_metadata", [0]))
    ((partition,),) = [topic.partitions for topic in answer.topics]
    assert (partition.error_code, partition.error_message) == (E.NONE, "")
    assert partition.leader_id == 1
    assert partition.leader_epoch > 0
    assert partition.high_watermark > 0
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp
    assert (voter.last_fetch_timestamp > 0) == (version >= 1)
    assert partition.observers == ()
    assert [node.node_id for node in answer.nodes] == ([1] if version >= 2 else [])


@pytest.mark.parametrize(
    "wanted",
    [
        [("x", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [0]), ("x", [0, 1])],
        [],
    ],
)
def test_there_is_no_other_quorum(
    either: RawClient, wanted: list[tuple[str, Sequence[int]]]
) -> None:
    answer = quorum(either, 2, *wanted)
    found = [
        (topic.topic_name, [each.partition_index for each in topic.partitions])
        for topic in answer.topics
    ]
    assert found == wanted
    for topic in answer.topics:
        for each in topic.partitions:
            assert each.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
            assert each.error_message == "This server does not host this topic-partition."
            assert (each.leader_id, each.high_watermark, each.current_voters) == (0, 0, ())


# UpdateFeatures


def update(client: RawClient, version: int, *updates: tuple[str, int, int]) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        )
    )
    return client.ask(UPDATE_FEATURES, version, request)


@pytest.mark.parametrize("version", range(3))
def test_the_levels_that_are_finalised_are_no_change(either: RawClient, version: int) -> None:
    answer = update(either, version, ("metadata.version", 30, 1), ("transaction.version", 2, 3))
    assert (answer.error_code, answer.error_message) == (E.NONE, None)
    found = [(each.feature, each.error_code, each.error_message) for each in answer.results]
    features = ("metadata.version", "transaction.version")
    assert found == ([(name, E.NONE, "NONE") for name in features] if version < 2 else [])
    assert update(either, version).error_code == E.NONE


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level", "kind", "phrase"),
    [
        ("nonsense", 1, 1, "feature nonsense. Local controller 1 does not support this feature."),
        ("nonsense", 0, 1, "Invalid update version 0 for feature nonsense. Feature nonsense not"),
        ("", 1, 1, "Invalid update version 1 for feature . Local controller 1 does not support"),
        ("metadata.version", 31, 1, "Local controller 1 only supports versions 7-30"),
        ("metadata.version", 7, 1, "Can't downgrade the version of this feature without setting"),
        ("transaction.version", 3, 1, "Local controller 1 only supports versions 0-2"),
        ("transaction.version", -1, 1, "A feature version cannot be less than 0."),
        ("transaction.version", 1, 1, "Can't downgrade the version of this feature without"),
    ],
)
def test_other_levels_are_refused(
    either: RawClient, version: int, name: str, level: int, kind: int, phrase: str
) -> None:
    answer = update(either, version, ("metadata.version", 30, 1), (name, level, kind))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert answer.error_message.startswith(
        "The update failed for all features since the following feature had an error: "
    )
    assert phrase in answer.error_message
    assert answer.results == ()


@pytest.mark.parametrize(("kind", "phrase"), [(DOWNGRADE, "downgrade"), (UNSAFE, "downgrade")])
def test_the_metadata_is_not_downgraded(either: RawClient, kind: int, phrase: str) -> None:
    answer = update(either, 2, ("metadata.version", 8, kind))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "Unsupported metadata.version downgrade from 30 to 8." in answer.error_message


def test_a_kind_of_change_that_does_not_exist(either: RawClient) -> None:
    answer = update(either, 1, ("metadata.version", 30, 9))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "The controller does not support the given upgrade type." in answer.error_message


def test_a_downgrade_that_kafka_would_make_is_refused_here(client: RawClient) -> None:
    for name in ("transaction.version", "transaction.groups"):
        answer = update(client, 2, (name, 1 if name == "transaction.version" else 0, DOWNGRADE))
        assert answer.error_code == E.INVALID_UPDATE_VERSION


# DescribeClientQuotas


def quotas(client: RawClient, version: int, *components: tuple[str, int, str | None]) -> Any:
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ),
        strict=True,
    )
    answer = client.ask(DESCRIBE_CLIENT_QUOTAS, version, request)
    return answer.error_code, answer.error_message, answer.entries


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    "components",
    [
        [],
        [("user", 0, "a"), ("client-id", 1, None)],
        [("ip", 2, None)],
    ],
)
def test_there_are_no_quotas(
    either: RawClient, version: int, components: list[tuple[str, int, str | None]]
) -> None:
    assert quotas(either, version, *components) == (E.NONE, "", ())


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 0, "x")], E.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 1, None)],
            E.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("host", 0, "a")], E.UNSUPPORTED_VERSION, "Unsupported entity type host"),
        (
            [("user", 0, None)],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", 1, "x")],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", 2, "x")],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 7, "x")], E.INVALID_REQUEST, "Unknown match type 7"),
        (
            [("ip", 0, "1"), ("user", 0, "a")],
            E.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        ),
    ],
)
def test_a_filter_of_quotas_is_checked(
    either: RawClient,
    components: list[tuple[str, int, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    assert quotas(either, 1, *components) == (code, message, None)


# DescribeTopicPartitions


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


def test_an_answer_has_at_most_two_thousand_partitions(client: RawClient) -> None:
    topic = topic_of(client, 2_500)
    ((_, _, first),), following = pages(client, topic, limit=2**31 - 1)
    assert (len(first), following) == (2_000, (topic, 2_000))
    ((_, _, rest),), following = pages(client, topic, cursor=following)
    assert (first + rest, following) == (list(range(2_500)), None)


# authorised operations


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_has_all_operations_if_they_are_asked_for(either: RawClient, version: int) -> None:
    topic = topic_of(either)
    topics = tuple(MetadataRequestTopic(name=name) for name in (topic, "absent", "a/b"))
    for is_asked in (True, False):
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=is_asked,
            include_cluster_authorized_operations=is_asked,
        )
        answer = either.ask(METADATA, version, request)
        expected = TOPIC_OPERATIONS if is_asked else NO_OPERATIONS
        assert [each.topic_authorized_operations for each in answer.topics] == [expected] * 3
        of_cluster = CLUSTER_OPERATIONS if is_asked and version <= 10 else NO_OPERATIONS
        assert answer.cluster_authorized_operations == of_cluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_has_all_operations_if_they_are_asked_for(
    either: RawClient, version: int
) -> None:
    for is_asked in (True, False):
        request = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
        answer = either.ask(DESCRIBE_CLUSTER, version, request)
        expected = CLUSTER_OPERATIONS if is_asked else NO_OPERATIONS
        assert answer.cluster_authorized_operations == expected


def test_a_group_has_all_operations_if_they_are_asked_for(either: RawClient) -> None:
    group = unique("group")
    request = FindCoordinatorRequest(key=group, key_type=0)
    settled(lambda: either.ask(FIND_COORDINATOR, 3, request))

    def described(is_asked: bool) -> Any:
        request = DescribeGroupsRequest(groups=(group,), include_authorized_operations=is_asked)
        answer = either.ask(DESCRIBE_GROUPS, 5, request)
        return answer.groups[0]

    found = until(lambda: described(True), lambda each: each.error_code == E.NONE)
    assert found.authorized_operations == GROUP_OPERATIONS
    assert described(False).authorized_operations == NO_OPERATIONS


# DeleteTopics by id


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
