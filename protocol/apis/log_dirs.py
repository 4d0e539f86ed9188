"""AlterReplicaLogDirs (key 34), versions 1-2; DescribeLogDirs (key 35), versions 1-5.

Both are flexible from 2. The versions of AlterReplicaLogDirs have the same fields. DescribeLogDirs:

- 3: an error of the whole answer. 4: the size of the disk, and what is free. 5: directories that
  get no new partitions.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import array, boolean, int16, int32, int64, message, string


@message
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class AlterReplicaLogDir:
    path: str = string()
    topics: tuple[AlterReplicaLogDirTopic, ...] = array(AlterReplicaLogDirTopic)


@message
class AlterReplicaLogDirsRequest:
    """Odradek's `makes_backup_point`: make a backup point of all logs."""

    dirs: tuple[AlterReplicaLogDir, ...] = array(AlterReplicaLogDir)
    makes_backup_point: bool = boolean(default=False, since=2, tag=10_000)


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = array(
        AlterReplicaLogDirPartitionResult
    )


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32(default=0)
    results: tuple[AlterReplicaLogDirTopicResult, ...] = array(AlterReplicaLogDirTopicResult)
    backup_point: str | None = string(default=None, nullable=0, since=2, tag=10_000)
    backup_error: int = int16(default=0, since=2, tag=10_001)
    backup_error_message: str | None = string(default=None, nullable=0, since=2, tag=10_002)


ALTER_REPLICA_LOG_DIRS: Final = Api(
    key=34,
    name="AlterReplicaLogDirs",
    min_version=1,
    max_version=2,
    flexible_from=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)


@message
class DescribableLogDirTopic:
    topic: str = string()
    partitions: tuple[int, ...] = array("int32")


@message
class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None = array(DescribableLogDirTopic, nullable=0)


@message
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@message
class DescribeLogDirsTopic:
    name: str = string()
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition)


@message
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(default=-1, since=4)
    usable_bytes: int = int64(default=-1, since=4)
    is_cordoned: bool = boolean(default=False, since=5)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0, since=3)
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult)


DESCRIBE_LOG_DIRS: Final = Api(
    key=35,
    name="DescribeLogDirs",
    min_version=1,
    max_version=5,
    flexible_from=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
