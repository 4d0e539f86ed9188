"""Brokers, topics and their leaders.

Metadata (key 3), versions 0-13, flexible from 9.

- 0: an empty list means all topics. Since version 1 null means all, and an empty list means none.
- 4: the client may forbid the automatic creation of topics. Before, it is always allowed.
- 5: offline replicas. 7: leader epochs. 8: authorized operations of topics, and up to version 10 of
  the cluster, which DescribeCluster returns since.
- 10: topic ids. Since version 12 a request may name a topic by its id, with a null name.
- 13: an error for the whole request.

DescribeCluster (key 60), versions 0-2, flexible from 0.

- 1: the endpoint type, brokers or controllers. 2: fenced brokers on request.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    uuid,
)


@message
class MetadataRequestTopic:
    topic_id: UUID = uuid(default=ZERO_UUID, since=10)
    name: str | None = string(nullable=10)


@message
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(default=True, since=4)
    include_cluster_authorized_operations: bool = boolean(default=False, since=8, until=10)
    include_topic_authorized_operations: bool = boolean(default=False, since=8)


@message
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, since=1, nullable=1)


@message
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, since=7)
    replica_nodes: tuple[int, ...] = array("int32")
    isr_nodes: tuple[int, ...] = array("int32")
    offline_replicas: tuple[int, ...] = array("int32", default=(), since=5)


@message
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: UUID = uuid(default=ZERO_UUID, since=10)
    is_internal: bool = boolean(default=False, since=1)
    partitions: tuple[MetadataResponsePartition, ...] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(default=-(2**31), since=8)
    is_new: bool = boolean(default=False, since=9, tag=10_000)
    """True if this request has created the topic. Only Odradek returns it."""


@message
class MetadataResponse:
    throttle_time_ms: int = int32(default=0, since=3)
    brokers: tuple[MetadataResponseBroker, ...] = array(MetadataResponseBroker)
    cluster_id: str | None = string(default=None, since=2, nullable=2)
    controller_id: int = int32(default=-1, since=1)
    topics: tuple[MetadataResponseTopic, ...] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(default=-(2**31), since=8, until=10)
    error_code: int = int16(default=0, since=13)


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(default=1, since=1)
    include_fenced_brokers: bool = boolean(default=False, since=2)


@message
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=0)
    is_fenced: bool = boolean(default=False, since=2)


@message
class DescribeClusterResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    endpoint_type: int = int8(default=1, since=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))


METADATA: Final = Api(
    key=3,
    name="Metadata",
    min_version=0,
    max_version=13,
    flexible_from=9,
    request=MetadataRequest,
    response=MetadataResponse,
)
DESCRIBE_CLUSTER: Final = Api(
    key=60,
    name="DescribeCluster",
    min_version=0,
    max_version=2,
    flexible_from=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)
