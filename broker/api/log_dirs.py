"""The log directories of a broker, of which there is one.

AlterReplicaLogDirs, key 34, versions 1-2; DescribeLogDirs, key 35, versions 1-5.

Behaviour: AlterReplicaLogDirs would move replicas between directories. A replica is in the one that
there is already, so the answer for it is NONE; LOG_DIR_NOT_FOUND for another directory. Where a
partition is named several times, the last directory counts. DescribeLogDirs returns the data
directory of this broker, the size of its disk, and the bytes that each partition's log takes there.
Null asks for all partitions. Partitions without a replica here, and damaged ones, are left out; a
partition that is named several times is described once.

Versions: DescribeLogDirs 3 has an error of the whole answer; 4 the size of the disk and what is
free; 5 whether the directory gets no new partitions, which is never so here.

With our field `makes_backup_point`, AlterReplicaLogDirs moves nothing. It makes a backup point of
all logs, for a client on this machine, and returns the path of its directory
(`cluster/backup_point.py`).

Differs from Kafka:

- A broker has one data directory. So AlterReplicaLogDirs moves nothing, and answers in the order of
  the request. DescribeLogDirs leaves out damaged partitions.
"""

from typing import Final
from uuid import UUID

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.partition import Partition
from odradek.broker.security.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOG_NAME_MAX: Final = 255 - len(f".{UUID(int=0).hex}-future")
"""The longest `TOPIC-PARTITION` that Kafka moves: its directory then has more in its name."""
DESCRIBE_STEPS: Final = 4
"""The cost of one partition, in steps of a turn, without its segments."""


async def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    if request.makes_backup_point:
        return await _backup_point(context)
    turns = Turns()
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        await turns.take()
        for topic in directory.topics:
            await turns.take()
            for index in topic.partitions:
                await turns.take()
                wanted[TopicPartition(topic.name, index)] = directory.path
    await context.expect(len(wanted))
    try:
        context.access.check_cluster(ALTER_CLUSTER)
        refused = None
    except KafkaError as error:
        refused = error.code
    here = context.core.partitions.usage().path
    answered: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for where, path in wanted.items():
        await turns.take()
        if refused is not None:
            code = refused
        elif len(str(where)) > LOG_NAME_MAX:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            code = _move_error(context, where) if path == here else ErrorCode.LOG_DIR_NOT_FOUND
        result = AlterReplicaLogDirPartitionResult(partition_index=where.partition, error_code=code)
        answered.setdefault(where.topic, []).append(result)
    results = []
    for name, in_topic in answered.items():
        await turns.take()
        results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(in_topic)))
    return AlterReplicaLogDirsResponse(results=tuple(results))


async def _backup_point(context: RequestContext) -> AlterReplicaLogDirsResponse:
    try:
        context.access.check_cluster(ALTER_CLUSTER)
        if not context.is_local:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "A backup point is made for programs on the machine of the broker only.",
            )
        path = await context.core.backup_points.make(
            node_id=context.core.config.node_id, now_ms=context.core.clock.wall_ms()
        )
    except KafkaError as error:
        return AlterReplicaLogDirsResponse(
            results=(), backup_error=error.code, backup_error_message=error.message
        )
    return AlterReplicaLogDirsResponse(results=(), backup_point=path)


def _move_error(context: RequestContext, where: TopicPartition) -> ErrorCode:
    """Return the error of a move of a replica to the directory that it is in."""
    replica = context.core.partitions.find(where)
    if replica is not None:
        return ErrorCode.NONE if replica.log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
    if context.core.cluster.image.has_partition(*where):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    try:
        context.access.check_cluster(DESCRIBE_CLUSTER)
    except KafkaError as error:
        # Before there was an error of the whole answer, it is the missing result that says so.
        return DescribeLogDirsResponse(error_code=error.code, results=())
    turns = Turns()
    partitions = context.core.partitions
    found: dict[TopicPartition, Partition] = {}
    for topic in request.topics or ():
        await turns.take()
        for index in topic.partitions:
            await turns.take()
            where = TopicPartition(topic.topic, index)
            partition = partitions.find(where)
            if partition is not None:
                found[where] = partition
    if request.topics is None:
        found = {TopicPartition(each.topic, each.index): each for each in partitions.all()}
    await context.expect(len(found))
    described: dict[str, list[DescribeLogDirsPartition]] = {}
    for where, partition in found.items():
        await turns.take(DESCRIBE_STEPS + len(partition.log.segments))
        if partition.log.failure is None and not partition.log.is_deleted:
            described.setdefault(where.topic, []).append(_partition(partition))
    topics = []
    for name, in_topic in described.items():
        await turns.take()
        topics.append(DescribeLogDirsTopic(name=name, partitions=tuple(in_topic)))
    usage = partitions.usage()
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=usage.path,
        topics=tuple(topics),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.free_bytes,
    )
    return DescribeLogDirsResponse(results=(result,))


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(partition.high_watermark - partition.log_end_offset, 0),
        is_future_key=False,
    )


SERVED: Final = (
    ServedApi(ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs, (Need(ALTER_CLUSTER),)),
    ServedApi(DESCRIBE_LOG_DIRS, describe_log_dirs, (Need(DESCRIBE_CLUSTER),)),
)
