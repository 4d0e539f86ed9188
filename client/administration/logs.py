"""Administration of what partitions keep: records that are deleted, and sizes on disk."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from odradek.client.administration.many import PARTITIONS_PER_REQUEST, all_of, gather, leaders
from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.metadata import LEADER_MOVED
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import OdradekError, OffsetOutOfRange, code_of, error_for
from odradek.client.types import LogDirectory, TopicPartition, by_topic, numbers_by_topic
from odradek.protocol.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.apis.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.protocol.errors import ErrorCode

WHY: Final[Mapping[int, str]] = MappingProxyType(
    {
        ErrorCode.POLICY_VIOLATION: "The topic is only compacted. Add delete to its cleanup.policy",
        ErrorCode.INVALID_TOPIC_EXCEPTION: "It is a topic of the broker's own. Nothing may be "
        "deleted in it",
    }
)
"""What the codes mean here. The answer has no messages."""


@ends_where_it_waits
class LogAdmin:
    """The calls of `Admin` about the logs of partitions."""

    _cluster: Cluster

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset in each partition, for good.

        The offset -1 stands for the high watermark: everything that consumers can see is deleted.
        Return the offset at which each partition begins now, on every replica whose broker is
        there. Raises the first error after trying all: `OffsetOutOfRange` for an offset above the
        high watermark, `Refused` for a topic that is only compacted, `TimedOut`.
        """
        cluster = self._cluster
        offsets = {TopicPartition(*partition): offset for partition, offset in before.items()}

        async def ask(
            node_id: int, some: Sequence[TopicPartition]
        ) -> dict[TopicPartition, int | OdradekError]:
            wanted = by_topic({partition: offsets[partition] for partition in some})
            request = DeleteRecordsRequest(
                topics=tuple(
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=tuple(
                            DeleteRecordsPartition(partition_index=index, offset=offset)
                            for index, offset in places
                        ),
                    )
                    for topic, places in wanted.items()
                ),
                timeout_ms=cluster.config.request_timeout_ms,
            )
            answer = await cluster.ask(node_id, DELETE_RECORDS, request)
            return {
                TopicPartition(topic.name, result.partition_index): _start(
                    cluster, topic.name, result
                )
                for topic in answer.topics
                for result in topic.partitions
            }

        found = await gather(
            cluster,
            list(offsets),
            partial(leaders, cluster),
            ask,
            PARTITIONS_PER_REQUEST,
            "deleting records",
        )
        starts = {place: start for place, start in found.items() if isinstance(start, int)}
        for start in found.values():
            if isinstance(start, OdradekError):
                raise _with_done(start, len(starts))
        return starts

    @bounded("reading the sizes of logs")
    async def describe_log_dirs(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirectory | OdradekError]:
        """Return the log directories of all brokers, with the bytes that replicas take in them.

        Of all partitions, or of these. A broker that fails has its error in the list. Raises
        `TimedOut`.
        """
        cluster = self._cluster
        topics = None
        if partitions is not None:
            wanted = numbers_by_topic([TopicPartition(*partition) for partition in partitions])
            topics = tuple(
                DescribableLogDirTopic(topic=name, partitions=tuple(numbers))
                for name, numbers in wanted.items()
            )
        request = DescribeLogDirsRequest(topics=topics)

        async def ask(node_id: int) -> list[LogDirectory]:
            answer = await cluster.ask(node_id, DESCRIBE_LOG_DIRS, request)
            return _directories(cluster, node_id, answer)

        async def refresh() -> None:
            await cluster.refresh()

        await cluster.retrying("reading the sizes of logs", refresh)
        nodes = sorted(cluster.metadata.nodes)
        answers = await all_of({node_id: partial(ask, node_id) for node_id in nodes})
        found: list[LogDirectory | OdradekError] = []
        for answer in answers.values():
            found += [answer] if isinstance(answer, OdradekError) else answer
        return found


def _directories(
    cluster: Cluster, node_id: int, answer: DescribeLogDirsResponse
) -> list[LogDirectory]:
    doing = f"reading the sizes of logs on broker {node_id}"
    cluster.check(answer.error_code, doing)
    for result in answer.results:
        cluster.check(result.error_code, f"{doing} in {result.log_dir}")
    return [
        LogDirectory(
            node_id=node_id,
            path=result.log_dir,
            total_bytes=_known(result.total_bytes),
            usable_bytes=_known(result.usable_bytes),
            sizes={
                TopicPartition(topic.name, partition.partition_index): partition.partition_size
                for topic in result.topics
                for partition in topic.partitions
                if not partition.is_future_key
            },
        )
        for result in answer.results
    ]


def _known(size: int) -> int | None:
    return None if size < 0 else size


def _with_done(error: OdradekError, count: int) -> OdradekError:
    """Return an error that says in how many other partitions the deletion cannot be undone."""
    if not count:
        return error
    others = "one other partition" if count == 1 else f"{count:,} other partitions"
    return type(error)(f"{error}. Records of {others} were deleted", code=error.code)


def _start(
    cluster: Cluster, topic: str, result: DeleteRecordsPartitionResult
) -> int | OdradekError:
    if result.error_code in LEADER_MOVED:
        cluster.metadata.forget_age()
    if result.error_code == ErrorCode.NONE:
        return result.low_watermark
    doing = f"deleting records of {TopicPartition(topic, result.partition_index)}"
    if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        why = "the broker answered OFFSET_OUT_OF_RANGE (the partition ends before this offset)"
        return OffsetOutOfRange(f"{doing}: {why}", code=code_of(result.error_code))
    return error_for(code_of(result.error_code), doing, WHY.get(result.error_code))
