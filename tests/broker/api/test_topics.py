"""Topics and what is told of them: CreateTopics, DeleteTopics, CreatePartitions, Metadata,
DescribeConfigs, DescribeCluster, FindCoordinator."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    METADATA,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from tests.broker.asks import batch, create_topic, fetch, produce, topic_metadata
from tests.broker.raw import RawClient

E = ErrorCode
BAD_NAMES = ["", ".", "..", "../../etc/passwd", "a/b", "a\0b", "x" * 250, "ünïcode", "a b"]


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def directories(broker: RunningBroker) -> set[Path]:
    """Those of the broker, and where the worst of the names would lead; others are not its own."""
    own = broker.data_dir
    outside = [above / "etc" for above in own.parents[:2]]
    return {path for path in (*own.rglob("*"), *outside) if path.is_dir()}


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_a_bad_name_is_refused_everywhere_and_makes_no_directory(
    client: RawClient, shared_broker: RunningBroker, bad: str
) -> None:
    before = directories(shared_broker)
    assert create_topic(client, bad).error_code == E.INVALID_TOPIC_EXCEPTION
    told = topic_metadata(client, bad, may_create=True)
    assert told.error_code == E.INVALID_TOPIC_EXCEPTION
    assert produce(client, bad, batch(b"x")).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert directories(shared_broker) == before


def test_names_that_differ_in_a_dot_are_two_topics(client: RawClient) -> None:
    assert create_topic(client, "some.name").error_code == E.NONE
    assert create_topic(client, "some_name").error_code == E.NONE


def test_a_topic_that_is_asked_for_is_made_with_four_partitions(
    client: RawClient, name: str
) -> None:
    assert topic_metadata(client, name).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    made = topic_metadata(client, name, may_create=True)
    assert made.error_code == E.NONE
    assert [p.leader_id for p in made.partitions] == [1, 1, 1, 1]
    assert produce(client, name, batch(b"x"), partition=3).error_code == E.NONE


def test_auto_creation_can_be_switched_off(name: str) -> None:
    with (
        run_broker(config={"auto.create.topics.enable": "false"}) as broker,
        RawClient(broker) as client,
    ):
        told = topic_metadata(client, name, may_create=True)
        assert told.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(14))
def test_null_asks_for_every_topic_and_an_empty_list_for_none(
    client: RawClient, name: str, version: int
) -> None:
    create_topic(client, name)
    everything: Any = () if version == 0 else None
    answer = client.ask(METADATA, version, MetadataRequest(topics=everything))
    assert name in [topic.name for topic in answer.topics]
    assert [(b.node_id, b.host) for b in answer.brokers] == [(1, "127.0.0.1")]
    if version >= 1:
        assert answer.controller_id == 1
        assert client.ask(METADATA, version, MetadataRequest(topics=())).topics == ()


def test_topics_are_found_by_id(client: RawClient, name: str) -> None:
    topic_id = create_topic(client, name).topic_id
    for wanted, code in ((topic_id, E.NONE), (uuid.UUID(int=9), E.UNKNOWN_TOPIC_ID)):
        request = MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=wanted),))
        topic = client.ask(METADATA, 12, request).topics[0]
        assert (topic.error_code, topic.topic_id) == (code, wanted)
        assert topic.name == (name if code == E.NONE else None)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_in_every_version(client: RawClient, name: str, version: int) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    made = client.ask(CREATE_TOPICS, version, CreateTopicsRequest(topics=(topic,))).topics[0]
    assert (made.error_code, made.error_message) == (E.NONE, None)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        assert {c.name: c.value for c in made.configs}["cleanup.policy"] == "delete"
    if version >= 7:
        assert made.topic_id == topic_metadata(client, name).topic_id
    again = client.ask(CREATE_TOPICS, version, CreateTopicsRequest(topics=(topic,))).topics[0]
    assert again.error_code == E.TOPIC_ALREADY_EXISTS
    assert again.error_message


def test_a_topic_named_twice_is_refused_once_and_not_made(client: RawClient, name: str) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    answer = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic, topic)))
    assert [result.error_code for result in answer.topics] == [E.INVALID_REQUEST]
    assert topic_metadata(client, name).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_checking_alone_makes_nothing(client: RawClient, name: str) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=3, replication_factor=1, assignments=(), configs=()
    )
    request = CreateTopicsRequest(topics=(topic,), validate_only=True)
    made = client.ask(CREATE_TOPICS, 7, request).topics[0]
    assert (made.error_code, made.num_partitions) == (E.NONE, 3)
    assert topic_metadata(client, name).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, E.INVALID_PARTITIONS),
        (-5, 1, E.INVALID_PARTITIONS),
        (10**9, 1, E.INVALID_PARTITIONS),
        (1, 0, E.INVALID_REPLICATION_FACTOR),
        (1, 3, E.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_are_refused(
    client: RawClient, name: str, partitions: int, factor: int, code: ErrorCode
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=(),
        configs=(),
    )
    answer = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
    assert answer.topics[0].error_code == code


@pytest.mark.parametrize(
    ("setting", "value"),
    [("cleanup.policy", "none"), ("retention", "1"), ("segment.bytes", "x")],
)
def test_a_setting_that_is_not_honoured_is_refused_in_words(
    client: RawClient, name: str, setting: str, value: str
) -> None:
    refused = create_topic(client, name, 1, {setting: value})
    assert refused.error_code == E.INVALID_CONFIG
    assert setting in refused.error_message


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_the_brokers(client: RawClient, internal: str) -> None:
    assert create_topic(client, internal).error_code == E.INVALID_TOPIC_EXCEPTION
    made = topic_metadata(client, internal, may_create=True)
    assert (made.error_code, made.is_internal, len(made.partitions)) == (E.NONE, True, 50)
    request = DeleteTopicsRequest(topic_names=(internal,), timeout_ms=1)
    assert client.ask(DELETE_TOPICS, 5, request).responses[0].error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 7))
def test_a_deleted_topic_is_gone_with_its_records(
    client: RawClient, name: str, version: int
) -> None:
    create_topic(client, name)
    produce(client, name, batch(b"old"))
    state = DeleteTopicState(name=name, topic_id=ZERO_UUID)
    request = DeleteTopicsRequest(
        topics=(state,) if version >= 6 else (),
        topic_names=(name,) if version < 6 else (),
        timeout_ms=1,
    )
    assert client.ask(DELETE_TOPICS, version, request).responses[0].error_code == E.NONE
    assert fetch(client, name, 0).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    gone = client.ask(DELETE_TOPICS, version, request).responses[0]
    assert gone.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(client, name)
    assert fetch(client, name, 0).high_watermark == 0


def test_a_topic_is_deleted_by_id(client: RawClient, name: str) -> None:
    topic_id = create_topic(client, name).topic_id

    def delete(**state: Any) -> Any:
        request = DeleteTopicsRequest(topics=(DeleteTopicState(**state),), timeout_ms=1)
        return client.ask(DELETE_TOPICS, 6, request).responses[0]

    assert delete(name=name, topic_id=topic_id).error_code == E.INVALID_REQUEST
    assert delete(name=None, topic_id=ZERO_UUID).error_code == E.INVALID_REQUEST
    deleted = delete(name=None, topic_id=topic_id)
    assert (deleted.error_code, deleted.name) == (E.NONE, name)
    assert delete(name=None, topic_id=topic_id).error_code == E.UNKNOWN_TOPIC_ID


def test_a_topic_grows_and_does_not_shrink(client: RawClient, name: str) -> None:
    create_topic(client, name, 2)

    def grow(count: int) -> Any:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1, validate_only=False)
        return client.ask(CREATE_PARTITIONS, 3, request).results[0]

    assert grow(4).error_code == E.NONE
    assert len(topic_metadata(client, name).partitions) == 4
    assert produce(client, name, batch(b"x"), partition=3).error_code == E.NONE
    assert [grow(count).error_code for count in (4, 1, 0)] == [E.INVALID_PARTITIONS] * 3


def configs(client: RawClient, kind: int, name: str, **options: Any) -> Any:
    keys = options.pop("keys", None)
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=(resource,), **options)
    return client.ask(DESCRIBE_CONFIGS, 4, request).results[0]


def test_the_settings_of_a_topic_say_where_they_come_from(client: RawClient, name: str) -> None:
    create_topic(client, name, 1, {"retention.ms": "12345"})
    found = {c.name: c for c in configs(client, 2, name, include_synonyms=True).configs}
    own, inherited = found["retention.ms"], found["retention.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("12345", 1, False)
    assert [(s.name, s.source) for s in own.synonyms] == [
        ("retention.ms", 1),
        ("log.retention.ms", 5),
    ]
    assert (inherited.value, inherited.config_source) == ("-1", 5)
    assert {c.name for c in configs(client, 2, name, keys=("retention.ms", "x")).configs} == {
        "retention.ms"
    }
    assert configs(client, 2, "nowhere").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert configs(client, 2, "a/b").error_code == E.INVALID_TOPIC_EXCEPTION


def test_the_settings_of_the_broker_are_told(client: RawClient) -> None:
    found = {c.name: c.value for c in configs(client, 4, "1").configs}
    assert found["num.partitions"] == "4"
    assert found["auto.create.topics.enable"] == "true"
    assert configs(client, 4, "").configs == ()
    assert configs(client, 4, "2").error_code == E.INVALID_REQUEST
    assert configs(client, 99, "x").error_code == E.INVALID_REQUEST


def test_the_cluster_is_one_broker(client: RawClient, shared_broker: RunningBroker) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    told = client.ask(DESCRIBE_CLUSTER, 2, request)
    assert [(b.broker_id, b.port) for b in told.brokers] == [(1, shared_broker.port)]
    assert told.cluster_id == client.ask(METADATA, 12, MetadataRequest(topics=())).cluster_id
    controllers = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=2
    )
    assert client.ask(DESCRIBE_CLUSTER, 2, controllers).error_code == E.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_this_broker_coordinates_everything(
    client: RawClient, shared_broker: RunningBroker, version: int, key_type: int
) -> None:
    if version == 0 and key_type == 1:
        return
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("a", ""))
        found = client.ask(FIND_COORDINATOR, version, request).coordinators
        assert [each.key for each in found] == ["a", ""]
    else:
        request = FindCoordinatorRequest(key="a", key_type=key_type)
        found = [client.ask(FIND_COORDINATOR, version, request)]
    for each in found:
        assert (each.error_code, each.node_id, each.port) == (E.NONE, 1, shared_broker.port)


def test_there_is_nobody_for_other_kinds_of_keys(client: RawClient) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=("a",))
    found = client.ask(FIND_COORDINATOR, 6, request).coordinators[0]
    assert (found.error_code, found.node_id) == (E.INVALID_REQUEST, -1)


def test_what_clients_are_told_to_connect_to_can_be_said() -> None:
    advertised = {"advertised.listeners": "PLAINTEXT://broker.example:1234"}
    with run_broker(config=advertised) as broker, RawClient(broker) as client:
        told = client.ask(METADATA, 12, MetadataRequest(topics=())).brokers[0]
        assert (told.host, told.port) == ("broker.example", 1234)


def test_every_way_to_make_partitions_ends_at_the_bound_with_a_sentence(tmp_path: Path) -> None:
    limits = {"max.broker.partitions": "6", "num.partitions": "4"}
    with run_broker(data_dir=tmp_path, config=limits) as broker, RawClient(broker) as client:
        assert topic_metadata(client, "made", may_create=True).error_code == ErrorCode.NONE
        refused = topic_metadata(client, "too-many", may_create=True)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        created = create_topic(client, "too-many", 3)
        assert created.error_code == ErrorCode.POLICY_VIOLATION
        assert "max.broker.partitions, which is 6" in created.error_message
        growth = CreatePartitionsTopic(name="made", count=7, assignments=None)
        request = CreatePartitionsRequest(topics=(growth,), timeout_ms=1000, validate_only=False)
        grown = client.ask(CREATE_PARTITIONS, 3, request).results[0]
        assert grown.error_code == ErrorCode.POLICY_VIOLATION
        assert "max.broker.partitions, which is 6" in grown.error_message
        assert create_topic(client, "small", 2).error_code == ErrorCode.NONE
