"""OffsetDelete (key 47), version 0, never flexible: stored offsets of a group are removed."""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import LATEST, array, int16, int32, message, string


@message
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@message
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition)


@message
class OffsetDeleteRequest:
    group_id: str = string()
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic)


@message
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(OffsetDeleteResponsePartition)


@message
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32(default=0)
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic)


OFFSET_DELETE: Final = Api(
    key=47,
    name="OffsetDelete",
    min_version=0,
    max_version=0,
    flexible_from=LATEST,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
