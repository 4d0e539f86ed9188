"""DescribeQuorum (key 55), versions 0-2, flexible from 0.

- 1: when each replica fetched, and was caught up. 2: error messages, directory ids, and the
  addresses of the voters.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    uint16,
    uuid,
)


@message
class QuorumPartition:
    partition_index: int = int32()


@message
class QuorumTopic:
    topic_name: str = string()
    partitions: tuple[QuorumPartition, ...] = array(QuorumPartition)


@message
class DescribeQuorumRequest:
    topics: tuple[QuorumTopic, ...] = array(QuorumTopic)


@message
class QuorumReplica:
    replica_id: int = int32()
    replica_directory_id: UUID = uuid(default=ZERO_UUID, since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(default=-1, since=1)
    last_caught_up_timestamp: int = int64(default=-1, since=1)


@message
class QuorumPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default="", since=2, nullable=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: tuple[QuorumReplica, ...] = array(QuorumReplica)
    observers: tuple[QuorumReplica, ...] = array(QuorumReplica)


@message
class QuorumTopicResponse:
    topic_name: str = string()
    partitions: tuple[QuorumPartitionResponse, ...] = array(QuorumPartitionResponse)


@message
class QuorumListener:
    name: str = string(since=2)
    host: str = string(since=2)
    port: int = uint16(since=2)


@message
class QuorumNode:
    node_id: int = int32(since=2)
    listeners: tuple[QuorumListener, ...] = array(QuorumListener, since=2)


@message
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(default="", since=2, nullable=2)
    topics: tuple[QuorumTopicResponse, ...] = array(QuorumTopicResponse)
    nodes: tuple[QuorumNode, ...] = array(QuorumNode, default=(), since=2)


DESCRIBE_QUORUM: Final = Api(
    key=55,
    name="DescribeQuorum",
    min_version=0,
    max_version=2,
    flexible_from=0,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
)
