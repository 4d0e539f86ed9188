"""What a request names several times is answered as Kafka answers it, at the cost of one."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.apis.group import DESCRIBE_GROUPS, DescribeGroupsRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.schema import ZERO_UUID
from tests.broker.asks import create_topic, topic_metadata
from tests.broker.group.wire import WireClient
from tests.broker.raw import RawClient

BROKER_RESOURCE = 4
ANSWER_MAX_BYTES = 1024 * 1024


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"twice-{uuid4().hex[:8]}"
    assert create_topic(client, name, 3).error_code == E.NONE
    return name


def test_metadata_answers_a_topic_once(client: RawClient, topic: str) -> None:
    """A topic of 10,000 partitions named 300 times took 16 s and 592 MB."""
    by_name = MetadataRequestTopic(name=topic)
    nobody = MetadataRequestTopic(name="nobody")
    request = MetadataRequest(
        topics=(by_name, nobody, by_name, nobody), allow_auto_topic_creation=False
    )
    answer = client.ask(METADATA, 12, request)
    assert [found.name for found in answer.topics] == [topic, "nobody"]


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_to_delete_is_refused_once_and_stays(
    client: RawClient, topic: str, version: int
) -> None:
    state = DeleteTopicState(name=topic, topic_id=ZERO_UUID)
    request = DeleteTopicsRequest(
        topics=(state, state), topic_names=(topic, topic), timeout_ms=1000
    )
    (result,) = client.ask(DELETE_TOPICS, version, request).responses
    assert result.error_code == E.INVALID_REQUEST
    assert topic_metadata(client, topic).error_code == E.NONE


def test_a_topic_to_grow_is_refused_once(client: RawClient, topic: str) -> None:
    grown = CreatePartitionsTopic(name=topic, count=5, assignments=None)
    request = CreatePartitionsRequest(topics=(grown, grown), timeout_ms=1000, validate_only=False)
    (result,) = client.ask(CREATE_PARTITIONS, 3, request).results
    assert result.error_code == E.INVALID_REQUEST
    assert len(topic_metadata(client, topic).partitions) == 3


def test_configs_groups_and_offsets_are_answered_as_often_as_they_are_asked_for(
    client: RawClient, topic: str
) -> None:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=("cleanup.policy",)
    )
    whole = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    configs = client.ask(
        DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(resource, whole, resource))
    ).results
    assert configs[0] == configs[2]
    assert [config.name for config in configs[0].configs] == ["cleanup.policy"]
    assert len(configs[1].configs) > 1

    groups = client.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=("a", "b", "a"))).groups
    assert [group.group_id for group in groups] == ["a", "b", "a"]

    named = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "a")]
    offsets = client.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=tuple(named))).groups
    assert [group.group_id for group in offsets] == ["a", "b", "a"]


@pytest.fixture
def sparing(tmp_path: Path) -> Iterator[RunningBroker]:
    config = {"socket.response.max.bytes": str(ANSWER_MAX_BYTES)}
    with run_broker(data_dir=tmp_path, config=config) as broker:
        yield broker


def test_an_answer_that_would_be_too_large_is_not_made_and_one_line_says_so(
    sparing: RunningBroker,
) -> None:
    """One of more than 2 GiB was made, and then there was a traceback."""
    broker = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None
    )
    with RawClient(sparing) as client:
        few = client.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(broker,) * 2))
        assert len(few.results) == 2
        client.request(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(broker,) * 10_000))
        assert client.is_closed_by_broker()
    with RawClient(sparing) as other:
        assert len(other.ask(METADATA, 12, MetadataRequest(topics=None)).brokers) == 1
    (line,) = [line for line in sparing.log.splitlines() if "socket.response.max.bytes" in line]
    assert "DescribeConfigs" in line
    assert "Traceback" not in sparing.log


OFTEN = 1_000
NAMED_OFTEN = {
    7: OffsetFetchRequest(
        group_id="noted",
        topics=(OffsetFetchRequestTopic(name="noted", partition_indexes=(0,) * OFTEN),),
    ),
    8: OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id="noted",
                topics=(OffsetFetchRequestTopics(name="noted", partition_indexes=(0,) * OFTEN),),
            ),
        )
    ),
    9: OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="noted", topics=None),) * OFTEN),
}


@pytest.mark.parametrize("version", NAMED_OFTEN)
def test_the_metadata_of_offsets_counts_before_an_answer_is_built(
    sparing: RunningBroker, version: int
) -> None:
    """4 KB for an index of four bytes: a request of 1 MB was answered with 800 MB."""
    with WireClient(sparing.address) as client:
        client.coordinator_of("noted")
        client.create_topic("noted")
        assert client.commit("noted", "noted", 5, metadata="x" * 4_000) == E.NONE
        assert client.fetch("noted", "noted").committed_offset == 5
        client.request(OFFSET_FETCH, version, NAMED_OFTEN[version])
        assert client.is_closed_by_broker()
    assert "an answer to OffsetFetch of about 4" in sparing.log
