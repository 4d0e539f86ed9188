"""Membership of consumer groups of the new protocol (KIP-848).

ConsumerGroupHeartbeat (key 68), versions 0-1, flexible. One request joins, leaves, extends the
session, changes the subscription and acknowledges revoked partitions. A field that has not changed
since the last heartbeat is null (or -1).

- Member epoch 0 joins, -1 leaves, -2 leaves for a while as a static member.
- 1: a regular expression to subscribe with; the client makes its member id.

ConsumerGroupDescribe (key 69), versions 0-1, flexible. 1: the type of each member.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@message
class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array("int32")


@message
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: tuple[str, ...] | None = array("string", default=None, nullable=0)
    subscribed_topic_regex: str | None = string(default=None, since=1, nullable=1)
    server_assignor: str | None = string(default=None, nullable=0)
    topic_partitions: tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...] | None = array(
        ConsumerGroupHeartbeatRequestTopicPartitions, default=None, nullable=0
    )


@message
class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array("int32")


@message
class ConsumerGroupHeartbeatResponseAssignment:
    topic_partitions: tuple[ConsumerGroupHeartbeatResponseTopicPartitions, ...] = array(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    member_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = struct(
        ConsumerGroupHeartbeatResponseAssignment, default=None, nullable=0
    )


@message
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...] = array("string")
    include_authorized_operations: bool = boolean()


@message
class ConsumerGroupDescribeTopicPartitions:
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class ConsumerGroupDescribeAssignment:
    topic_partitions: tuple[ConsumerGroupDescribeTopicPartitions, ...] = array(
        ConsumerGroupDescribeTopicPartitions
    )


@message
class ConsumerGroupDescribeMember:
    member_id: str = string()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: tuple[str, ...] = array("string")
    subscribed_topic_regex: str | None = string(default=None, nullable=0)
    assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = struct(ConsumerGroupDescribeAssignment)
    member_type: int = int8(default=-1, since=1)


@message
class ConsumerGroupDescribeGroup:
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: tuple[ConsumerGroupDescribeMember, ...] = array(ConsumerGroupDescribeMember)
    authorized_operations: int = int32(default=-(2**31))


@message
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32(default=0)
    groups: tuple[ConsumerGroupDescribeGroup, ...] = array(ConsumerGroupDescribeGroup)


CONSUMER_GROUP_HEARTBEAT: Final = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    min_version=0,
    max_version=1,
    flexible_from=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)
CONSUMER_GROUP_DESCRIBE: Final = Api(
    key=69,
    name="ConsumerGroupDescribe",
    min_version=0,
    max_version=1,
    flexible_from=0,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
