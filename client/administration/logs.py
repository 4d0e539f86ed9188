"""Administration of what partitions keep: the part of `Admin` that deletes records."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from odradek.client.administration.many import PARTITIONS_PER_REQUEST, gather, leaders
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.metadata import LEADER_MOVED
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import OdradekError, OffsetOutOfRange, code_of, error_for
from odradek.client.types import TopicPartition, by_topic
from odradek.protocol.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
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
