"""DeleteRecords, key 21, versions 0-2.

Behaviour: lets the log of each partition begin at an offset, -1 for the high watermark, and returns
the low watermark: the lowest log start of the replicas that are there. The new start is durable on
the leader, and the followers that are there have it, before the answer is sent; otherwise, after
the request's time-out, the partition has REQUEST_TIMED_OUT and the low watermark that was reached.
An offset below the log's start deletes nothing. An offset above the high watermark is
OFFSET_OUT_OF_RANGE, a topic that is only compacted POLICY_VIOLATION, and one of the broker's own
topics INVALID_TOPIC_EXCEPTION. Of a partition that is named several times the last offset counts.

Versions: all are alike.

Differs from Kafka:

- DeleteRecords is on disk before it is answered. Kafka writes its log starts every minute.
"""

from functools import partial
from typing import Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.parallel import for_each
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.deletion import delete_records as delete_before
from odradek.broker.partitions.deletion import deleted_everywhere, low_watermark
from odradek.broker.partitions.leader import Leader
from odradek.broker.security.rights import DELETE_TOPIC
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS

UNKNOWN: Final = -1
"""The low watermark of a partition whose records were not deleted."""


async def delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    turns = Turns()
    wanted: dict[TopicPartition, int] = {}
    for topic in request.topics:
        await turns.take()
        for partition in topic.partitions:
            await turns.take()
            wanted[TopicPartition(topic.name, partition.partition_index)] = partition.offset
    deletions = await turns.map(partial(_Deletion, context), tuple(wanted.items()))
    await for_each(deletions, _Deletion.carry_out)
    deadline = trio.current_time() + max(0, request.timeout_ms) / 1000
    await for_each(deletions, partial(_Deletion.wait, deadline=deadline))
    found: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for deletion in deletions:
        await turns.take()
        found.setdefault(deletion.where.topic, []).append(deletion.result)
    topics = []
    for name, partitions in found.items():
        await turns.take()
        topics.append(DeleteRecordsTopicResult(name=name, partitions=tuple(partitions)))
    return DeleteRecordsResponse(topics=tuple(topics))


class _Deletion:
    """The deletion of records of one partition: here, then at the followers."""

    def __init__(self, context: RequestContext, wanted: tuple[TopicPartition, int]) -> None:
        self._context = context
        self.where, self._offset = wanted
        self._leader: Leader | None = None
        self._code = ErrorCode.NONE
        self._low_watermark = UNKNOWN

    @property
    def result(self) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(
            partition_index=self.where.partition,
            low_watermark=self._low_watermark,
            error_code=self._code,
        )

    async def carry_out(self) -> None:
        """Delete the records of this replica."""
        core = self._context.core
        try:
            self._context.access.check(DELETE_TOPIC, self.where.topic)
            leader = core.partitions.leader(*self.where)
            if self.where.topic in INTERNAL_TOPICS:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{self.where.topic} is a topic of the broker's own",
                )
            self._offset = await delete_before(leader, self._offset)
            self._leader = leader
        except KafkaError as error:
            self._code = error.code

    async def wait(self, *, deadline: float) -> None:
        """Wait until the followers have deleted them, too."""
        if self._leader is None:
            return
        try:
            with self._context.allowance.polling(deadline):
                self._low_watermark = await deleted_everywhere(
                    self._leader, self._offset, self._is_there
                )
                return
            self._low_watermark = low_watermark(self._leader, self._is_there)
            self._code = ErrorCode.REQUEST_TIMED_OUT
        except KafkaError as error:
            self._code = error.code

    def _is_there(self, node_id: int) -> bool:
        return self._context.core.cluster.image.broker(node_id) is not None


SERVED: Final = (ServedApi(DELETE_RECORDS, delete_records, (Need(DELETE_TOPIC),)),)
