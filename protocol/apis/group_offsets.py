"""Offsets stored for a group.

OffsetCommit (key 8), versions 2-10, flexible from 8.

- 2-4: a retention time. Since version 5 the broker's configuration decides it.
- 6: leader epoch. 7: static members. 9: the errors of the new group protocol (KIP-848).
- 10: topic ids instead of names.

OffsetFetch (key 9), versions 1-10, flexible from 6.

- 2: null means all topics, and the response has an error for the whole group. 5: leader epoch.
- 7: require_stable: while an open transaction has offsets for a partition, the broker returns
  UNSTABLE_OFFSET_COMMIT (KIP-447).
- 8: several groups in a request, in new fields. 9: the member id and epoch of the client.
- 10: topic ids instead of names.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.api import Api
from odradek.protocol.schema import (
    ZERO_UUID,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)


@message
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=6)
    committed_metadata: str | None = string(nullable=0)


@message
class OffsetCommitRequestTopic:
    name: str = string(default="", until=9)
    topic_id: UUID = uuid(default=ZERO_UUID, since=10)
    partitions: tuple[OffsetCommitRequestPartition, ...] = array(OffsetCommitRequestPartition)


@message
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=7, nullable=7)
    retention_time_ms: int = int64(default=-1, until=4)
    topics: tuple[OffsetCommitRequestTopic, ...] = array(OffsetCommitRequestTopic)


@message
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class OffsetCommitResponseTopic:
    name: str = string(default="", until=9)
    topic_id: UUID = uuid(default=ZERO_UUID, since=10)
    partitions: tuple[OffsetCommitResponsePartition, ...] = array(OffsetCommitResponsePartition)


@message
class OffsetCommitResponse:
    throttle_time_ms: int = int32(default=0, since=3)
    topics: tuple[OffsetCommitResponseTopic, ...] = array(OffsetCommitResponseTopic)


@message
class OffsetFetchRequestTopic:
    name: str = string(until=7)
    partition_indexes: tuple[int, ...] = array("int32", until=7)


@message
class OffsetFetchRequestTopics:
    name: str = string(default="", since=8, until=9)
    topic_id: UUID = uuid(default=ZERO_UUID, since=10)
    partition_indexes: tuple[int, ...] = array("int32", since=8)


@message
class OffsetFetchRequestGroup:
    group_id: str = string(since=8)
    member_id: str | None = string(default=None, since=9, nullable=9)
    member_epoch: int = int32(default=-1, since=9)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(
        OffsetFetchRequestTopics, since=8, nullable=8
    )


@message
class OffsetFetchRequest:
    group_id: str = string(default="", until=7)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(
        OffsetFetchRequestTopic, default=(), until=7, nullable=2
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = array(
        OffsetFetchRequestGroup, default=(), since=8
    )
    require_stable: bool = boolean(default=False, since=7)


@message
class OffsetFetchResponsePartition:
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(default=-1, since=5, until=7)
    metadata: str | None = string(until=7, nullable=0)
    error_code: int = int16(until=7)


@message
class OffsetFetchResponseTopic:
    name: str = string(until=7)
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(
        OffsetFetchResponsePartition, until=7
    )


@message
class OffsetFetchResponsePartitions:
    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(default=-1, since=8)
    metadata: str | None = string(since=8, nullable=8)
    error_code: int = int16(since=8)


@message
class OffsetFetchResponseTopics:
    name: str = string(default="", since=8, until=9)
    topic_id: UUID = uuid(default=ZERO_UUID, since=10)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(
        OffsetFetchResponsePartitions, since=8
    )


@message
class OffsetFetchResponseGroup:
    group_id: str = string(since=8)
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(default=0, since=8)


@message
class OffsetFetchResponse:
    throttle_time_ms: int = int32(default=0, since=3)
    topics: tuple[OffsetFetchResponseTopic, ...] = array(
        OffsetFetchResponseTopic, default=(), until=7
    )
    error_code: int = int16(default=0, since=2, until=7)
    groups: tuple[OffsetFetchResponseGroup, ...] = array(
        OffsetFetchResponseGroup, default=(), since=8
    )


OFFSET_COMMIT: Final = Api(
    key=8,
    name="OffsetCommit",
    min_version=2,
    max_version=10,
    flexible_from=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
)
OFFSET_FETCH: Final = Api(
    key=9,
    name="OffsetFetch",
    min_version=1,
    max_version=10,
    flexible_from=6,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
)
