"""DeleteRecords (key 21), versions 0-2, flexible from 2. The versions have the same fields."""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, int16, int32, int64, message, string


@message
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@message
class DeleteRecordsTopic:
    name: str = string()
    partitions: tuple[DeleteRecordsPartition, ...] = array(DeleteRecordsPartition)


@message
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@message
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@message
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: tuple[DeleteRecordsPartitionResult, ...] = array(DeleteRecordsPartitionResult)


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = int32(default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = array(DeleteRecordsTopicResult)


DELETE_RECORDS: Final = Api(
    key=21,
    name="DeleteRecords",
    min_version=0,
    max_version=2,
    flexible_from=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)
