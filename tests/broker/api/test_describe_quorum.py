"""DescribeQuorum, as a real Kafka answers it (with --peers)."""

from collections.abc import Sequence
from typing import Any

import pytest

from odradek.protocol.apis.quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.raw import RawClient

E = ErrorCode


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
