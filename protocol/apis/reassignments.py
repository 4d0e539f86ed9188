"""The replicas of partitions move to other brokers.

AlterPartitionReassignments (key 45), versions 0-1, flexible from 0.

- 1: the request may forbid that the number of replicas changes.

ListPartitionReassignments (key 46), version 0, flexible.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int16, int32, message, string


@message
class ReassignablePartition:
    partition_index: int = int32()
    replicas: tuple[int, ...] | None = array("int32", default=None, nullable=0)


@message
class ReassignableTopic:
    name: str = string()
    partitions: tuple[ReassignablePartition, ...] = array(ReassignablePartition)


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    topics: tuple[ReassignableTopic, ...] = array(ReassignableTopic)


@message
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message
class ReassignableTopicResponse:
    name: str = string()
    partitions: tuple[ReassignablePartitionResponse, ...] = array(ReassignablePartitionResponse)


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: tuple[ReassignableTopicResponse, ...] = array(ReassignableTopicResponse)


@message
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: tuple[int, ...] = array("int32")


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable=0
    )


@message
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: tuple[int, ...] = array("int32")
    adding_replicas: tuple[int, ...] = array("int32")
    removing_replicas: tuple[int, ...] = array("int32")


@message
class OngoingTopicReassignment:
    name: str = string()
    partitions: tuple[OngoingPartitionReassignment, ...] = array(OngoingPartitionReassignment)


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topics: tuple[OngoingTopicReassignment, ...] = array(OngoingTopicReassignment)


ALTER_PARTITION_REASSIGNMENTS: Final = Api(
    key=45,
    name="AlterPartitionReassignments",
    min_version=0,
    max_version=1,
    flexible_from=0,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
)
LIST_PARTITION_REASSIGNMENTS: Final = Api(
    key=46,
    name="ListPartitionReassignments",
    min_version=0,
    max_version=0,
    flexible_from=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
