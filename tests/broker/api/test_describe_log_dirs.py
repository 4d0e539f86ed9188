"""DescribeLogDirs, as a real Kafka answers it (with --peers)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import unique
from tests.broker.api.topics import topic_of
from tests.broker.asks import batch, produce
from tests.broker.raw import RawClient

E = ErrorCode


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
