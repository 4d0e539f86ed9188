"""What a client learns of its cluster."""

from uuid import UUID

from odradek.client import Refused, Retriable, TopicPartition
from odradek.client.cluster.metadata import LeaderAndEpoch, Metadata, Node
from odradek.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.errors import ErrorCode

FIRST, SECOND = UUID(int=1), UUID(int=2)


def answer(
    *leaders: tuple[int, int],
    topic_id: UUID = FIRST,
    port: int = 9092,
    code: ErrorCode = ErrorCode.NONE,
) -> MetadataResponse:
    """One topic whose partitions are led by (node id, leader epoch)."""
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="a", port=port),),
        controller_id=1,
        topics=(
            MetadataResponseTopic(
                error_code=code,
                name="t",
                topic_id=topic_id,
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=node_id,
                        leader_epoch=epoch,
                        replica_nodes=(),
                        isr_nodes=(),
                    )
                    for index, (node_id, epoch) in enumerate(leaders)
                ),
            ),
        ),
    )


def test_a_broker_that_lags_behind_does_not_take_us_back() -> None:
    metadata = Metadata()
    metadata.learn(answer((1, 5)), 0)
    metadata.learn(answer((2, 4)), 1)
    assert metadata.leader("t", 0) == LeaderAndEpoch(1, 5)
    metadata.learn(answer((2, 6)), 2)
    assert metadata.leader("t", 0) == LeaderAndEpoch(2, 6)


def test_a_refusal_names_a_leader_only_if_it_is_newer_and_has_an_address() -> None:
    metadata = Metadata()
    metadata.learn(answer((1, 5)), 0)
    place = TopicPartition("t", 0)
    two = Node(2, "b", 9092)
    assert not metadata.learn_leader(place, LeaderAndEpoch(2, 5), [two])
    assert not metadata.learn_leader(place, LeaderAndEpoch(2, 6), [])
    assert not metadata.learn_leader(place, LeaderAndEpoch(2, 6), [Node(2, "", 9092)])
    assert not metadata.learn_leader(place, LeaderAndEpoch(-1, -1), [two])
    assert not metadata.learn_leader(TopicPartition("u", 0), LeaderAndEpoch(2, 6), [two])
    assert metadata.leader("t", 0) == LeaderAndEpoch(1, 5)
    assert metadata.learn_leader(place, LeaderAndEpoch(2, 6), [two])
    assert metadata.leader("t", 0) == LeaderAndEpoch(2, 6)
    assert metadata.nodes[2] == two


def test_a_topic_made_anew_begins_anew() -> None:
    metadata = Metadata()
    metadata.learn(answer((1, 5)), 0)
    metadata.learn(answer((2, 0), topic_id=SECOND), 1)
    assert metadata.leader("t", 0) == LeaderAndEpoch(2, 0)


def test_a_partition_without_a_leader_is_not_one_that_is_not_there() -> None:
    metadata = Metadata()
    metadata.learn(answer((-1, 3)), 0)
    assert metadata.leader("t", 0) is None
    assert isinstance(metadata.no_leader(TopicPartition("t", 0)), Retriable)
    assert isinstance(metadata.no_leader(TopicPartition("t", 1)), Refused)
    assert isinstance(metadata.no_leader(TopicPartition("unknown", 0)), Retriable)


def test_a_deleted_topic_is_forgotten() -> None:
    metadata = Metadata()
    metadata.learn(answer((1, 0)), 0)
    metadata.learn(answer(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 1)
    assert metadata.topics == {}
    assert metadata.topic_errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    metadata.learn(answer((1, 0), topic_id=SECOND), 2)
    assert metadata.topic_errors == {}


def test_a_node_that_has_moved_is_named() -> None:
    metadata = Metadata()
    assert metadata.learn(answer((1, 0)), 0) == []
    assert metadata.learn(answer((1, 0)), 1) == []
    assert metadata.learn(answer((1, 0), port=9093), 2) == [1]
