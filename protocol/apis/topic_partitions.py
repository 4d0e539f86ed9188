"""DescribeTopicPartitions (key 75), version 0, flexible: topics in pages (KIP-966).

A cursor names the partition with which the next page begins.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@message
class TopicCursor:
    topic_name: str = string()
    partition_index: int = int32()


@message
class TopicRequest:
    name: str = string()


@message
class DescribeTopicPartitionsRequest:
    topics: tuple[TopicRequest, ...] = array(TopicRequest)
    response_partition_limit: int = int32(default=2_000)
    cursor: TopicCursor | None = struct(TopicCursor, default=None, nullable=0)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: tuple[int, ...] = array("int32")
    isr_nodes: tuple[int, ...] = array("int32")
    eligible_leader_replicas: tuple[int, ...] | None = array("int32", default=None, nullable=0)
    last_known_elr: tuple[int, ...] | None = array("int32", default=None, nullable=0)
    offline_replicas: tuple[int, ...] = array("int32")


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: UUID = uuid()
    is_internal: bool = boolean(default=False)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-(2**31))


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32(default=0)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = array(
        DescribeTopicPartitionsResponseTopic
    )
    next_cursor: TopicCursor | None = struct(TopicCursor, default=None, nullable=0)


DESCRIBE_TOPIC_PARTITIONS: Final = Api(
    key=75,
    name="DescribeTopicPartitions",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
