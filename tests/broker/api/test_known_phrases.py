"""Refusals begin with Kafka's own words, which scripts look for; what to do comes after them.

The words are those of Kafka 4.3's controller, of its broker, and of `Errors.java`.
"""

from collections.abc import Sequence

import pytest

from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.schema import ZERO_UUID
from tests.broker.asks import batch, create_topic, produce_request
from tests.broker.raw import RawClient

NOT_HERE = "This server does not host this topic-partition."
TOPIC, BROKER = 2, 4


def wanted(
    name: str,
    partitions: int = 1,
    replicas: int = -1,
    assigned: Sequence[int] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=(1,)) for index in assigned
        ),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs),
    )


def refusals_of_creating(client: RawClient, *topics: CreatableTopic) -> list[str]:
    answer = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    return [one.error_message for one in answer.topics]


def asked_cluster(client: RawClient, endpoint_type: int) -> DescribeClusterResponse:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )
    answer: DescribeClusterResponse = client.ask(DESCRIBE_CLUSTER, 1, request)
    return answer


def has_phrase_and_more(said: str | None, phrase: str) -> bool:
    return said is not None and said.startswith(phrase) and len(said) > len(phrase)


@pytest.mark.parametrize(
    ("topic", "phrase"),
    [
        (wanted("there"), "Topic 'there' already exists."),
        (wanted(""), "Topic name is invalid: the empty string is not allowed"),
        (wanted(".."), "Topic name is invalid: '.' or '..' is not allowed"),
        (
            wanted("a b"),
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        (wanted("x" * 250), "Topic name is invalid: the length of 'xxx"),
        (wanted("__consumer_offsets"), "Creation of internal topic __consumer_offsets is prohib"),
        (wanted("n", 0), "Number of partitions was set to an invalid non-positive value."),
        (
            wanted("n", 1, 3),
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
            "cannot be reached because only 1 broker(s) are registered.",
        ),
        (
            wanted("n", 1, 0),
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            wanted("n", 1, -1, [0]),
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            wanted("n", -1, 1, [0]),
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        ),
        (wanted("n", configs=[("retention", "1")]), "Unknown topic config name: retention"),
        (
            wanted("n", configs=[("retention.ms", "x")]),
            "Invalid value x for configuration retention.ms:",
        ),
        (
            wanted("n", configs=[("retention.ms", None)]),
            "Null value not supported for topic configs: retention.ms",
        ),
    ],
)
def test_a_topic_that_cannot_be_created(
    client: RawClient, topic: CreatableTopic, phrase: str
) -> None:
    create_topic(client, "there")
    (said,) = refusals_of_creating(client, topic)
    assert has_phrase_and_more(said, phrase), said


def test_more_replicas_than_brokers_is_also_said_in_the_older_words(client: RawClient) -> None:
    (said,) = refusals_of_creating(client, wanted("n", 1, 3))
    assert "Replication factor: 3 larger than available brokers: 1." in said


def test_a_topic_that_is_named_twice(client: RawClient) -> None:
    for said in refusals_of_creating(client, wanted("twice"), wanted("twice")):
        assert has_phrase_and_more(said, "Duplicate topic name.")


@pytest.mark.parametrize(
    ("name", "count", "phrase"),
    [
        ("grows", 2, "Topic already has 2 partition(s)."),
        ("grows", 1, "Topic currently has 2 partitions, which is higher than the requested 1."),
        ("grows-not", 2, NOT_HERE),
    ],
)
def test_partitions_that_cannot_be_added(
    client: RawClient, name: str, count: int, phrase: str
) -> None:
    create_topic(client, "grows", 2)
    asked = CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = client.ask(
        CREATE_PARTITIONS,
        3,
        CreatePartitionsRequest(topics=(asked,), timeout_ms=1_000, validate_only=False),
    )
    assert has_phrase_and_more(answer.results[0].error_message, phrase), answer


def test_a_topic_that_cannot_be_deleted(client: RawClient) -> None:
    some_id = ZERO_UUID.__class__(int=7)
    cases = {
        ("not-there", ZERO_UUID): NOT_HERE,
        (None, ZERO_UUID): "Neither topic name nor id were specified.",
        ("both", some_id): "You may not specify both topic name and topic id.",
        (None, some_id): "This server does not host this topic ID.",
    }
    asked = tuple(DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in cases)
    answer = client.ask(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=asked, timeout_ms=1_000))
    for one, phrase in zip(answer.responses, cases.values(), strict=True):
        assert has_phrase_and_more(one.error_message, phrase), one


@pytest.mark.parametrize(
    ("kind", "name", "phrase"),
    [
        (TOPIC, "not-there", NOT_HERE),
        (TOPIC, "a b", "Topic name is invalid: 'a b' contains"),
        (BROKER, "7", "Unexpected broker id, expected 1 or empty string, but received"),
    ],
)
def test_what_has_no_settings(client: RawClient, kind: int, name: str, phrase: str) -> None:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(asked,)))
    assert has_phrase_and_more(answer.results[0].error_message, phrase), answer


def test_endpoints_that_are_not_here(client: RawClient) -> None:
    controllers = asked_cluster(client, 2)
    wrong_kind = (
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
        "CONTROLLER"
    )
    assert has_phrase_and_more(controllers.error_message, wrong_kind)
    others = asked_cluster(client, 3)
    assert has_phrase_and_more(others.error_message, "Unsupported endpoint type 3")


@pytest.mark.parametrize(
    ("size", "settings", "phrase"),
    [
        (
            2_000,
            {"max.message.bytes": "1000"},
            "The request included a message larger than the max message size the server will "
            "accept.",
        ),
        (
            20_000,
            {"segment.bytes": "16384"},
            "The request included message batch larger than the configured segment size on the "
            "server.",
        ),
    ],
)
def test_records_that_are_too_large(
    client: RawClient, size: int, settings: dict[str, str], phrase: str
) -> None:
    create_topic(client, f"small-{size}", 1, settings)
    answer = client.ask(PRODUCE, 12, produce_request(f"small-{size}", batch(b"x" * size)))
    (partition,) = answer.responses[0].partition_responses
    assert has_phrase_and_more(partition.error_message, phrase), partition
