"""Offsets by timestamp, by position and by leader epoch.

ListOffsets (key 2), versions 1-11, flexible from 6. A negative timestamp has a special meaning: -1
the latest offset, -2 the earliest.

- 2: isolation level. For read_committed the latest offset is the last stable offset.
- 4: leader epochs. 7: the offset of the largest timestamp (-3).
- 8, 9, 11: offsets of tiered storage (-4, -5, -6). 10: a timeout for those.

OffsetForLeaderEpoch (key 23), versions 2-4, flexible from 4: the end offset of a leader epoch.

- 3: the replica id, which is -1 for a consumer.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, int8, int16, int32, int64, message, string


@message
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, since=4)
    timestamp: int = int64()


@message
class ListOffsetsTopic:
    name: str = string()
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition)


@message
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8(default=0, since=2)
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic)
    timeout_ms: int = int32(default=0, since=10)


@message
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(default=-1, since=4)


@message
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: tuple[ListOffsetsPartitionResponse, ...] = array(ListOffsetsPartitionResponse)


@message
class ListOffsetsResponse:
    throttle_time_ms: int = int32(default=0, since=2)
    topics: tuple[ListOffsetsTopicResponse, ...] = array(ListOffsetsTopicResponse)


@message
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@message
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition)


@message
class OffsetForLeaderEpochRequest:
    replica_id: int = int32(default=-2, since=3)
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic)


@message
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@message
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset)


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32(default=0)
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult)


LIST_OFFSETS: Final = Api(
    key=2,
    name="ListOffsets",
    min_version=1,
    max_version=11,
    flexible_from=6,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
)
OFFSET_FOR_LEADER_EPOCH: Final = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    min_version=2,
    max_version=4,
    flexible_from=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
