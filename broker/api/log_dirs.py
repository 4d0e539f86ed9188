"""DescribeLogDirs, key 35, versions 1-5.

Behaviour: returns the data directory of this broker, the size of its disk, and the bytes that each
partition's log takes there. Null asks for all partitions. Partitions without a replica here, and
damaged ones, are left out; a partition that is named several times is described once.

Versions: 3 has an error of the whole answer; 4 the size of the disk and what is free; 5 whether the
directory gets no new partitions, which is never so here.

Differs from Kafka: there is one directory, and no partition moves between directories.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.partitions.partition import Partition
from odradek.broker.topic_partition import TopicPartition
from odradek.broker.turns import Turns
from odradek.protocol.apis.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.errors import ErrorCode

DESCRIBE_STEPS: Final = 4
"""The cost of one partition, in steps of a turn, without its segments."""


async def describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
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
