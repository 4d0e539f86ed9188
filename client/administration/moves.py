"""Moves of partitions to other brokers: the part of `Admin` that reassigns replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import OdradekError, Retriable, code_of, error_for
from odradek.client.types import TopicPartition, by_topic, numbers_by_topic
from odradek.protocol.apis.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.errors import ErrorCode


class PartitionMove(NamedTuple):
    """A reassignment that is under way. `replicas` has those that come and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@ends_where_it_waits
class MoveAdmin:
    """The calls of `Admin` about the replicas of partitions."""

    _cluster: Cluster

    @bounded("moving partitions")
    async def move_partitions(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begin to move partitions to other brokers; None cancels a move.

        A target has the node ids of all replicas, the preferred leader first. Returns when the
        moves have begun; `list_moves` shows which are under way. Raises the first error after
        trying all: `Refused` for a broker or a partition that does not exist, `TimedOut`.
        """
        await _move(
            self._cluster,
            {TopicPartition(*place): target for place, target in targets.items()},
        )

    async def list_moves(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionMove]:
        """Return the moves that are under way, of these partitions or of all. Raises `TimedOut`."""
        topics = None
        if partitions is not None:
            wanted = numbers_by_topic(TopicPartition(*place) for place in partitions)
            topics = tuple(
                ListPartitionReassignmentsTopics(name=name, partition_indexes=tuple(indexes))
                for name, indexes in wanted.items()
            )
        return await _list(self._cluster, topics)


async def _move(cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    rest = dict(targets)

    async def attempt() -> None:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=cluster.config.request_timeout_ms,
            topics=tuple(
                ReassignableTopic(
                    name=name,
                    partitions=tuple(
                        ReassignablePartition(
                            partition_index=index,
                            replicas=None if target is None else tuple(target),
                        )
                        for index, target in partitions
                    ),
                )
                for name, partitions in by_topic(rest).items()
            ),
        )
        answer = await cluster.ask(None, ALTER_PARTITION_REASSIGNMENTS, request)
        cluster.check(answer.error_code, "moving partitions", answer.error_message)
        refused: OdradekError | None = None
        answered = set()
        for topic in answer.responses:
            for result in topic.partitions:
                place = TopicPartition(topic.name, result.partition_index)
                answered.add(place)
                if result.error_code == ErrorCode.NONE:
                    rest.pop(place, None)
                elif refused is None:
                    refused = error_for(
                        code_of(result.error_code), f"moving {place}", result.error_message
                    )
        if refused is not None:
            raise refused
        for place in rest:
            if place not in answered:
                raise Retriable(f"moving partitions: the broker's answer leaves out {place}")

    if rest:
        await cluster.retrying("moving partitions", attempt)


async def _list(
    cluster: Cluster, topics: tuple[ListPartitionReassignmentsTopics, ...] | None
) -> dict[TopicPartition, PartitionMove]:
    async def attempt() -> dict[TopicPartition, PartitionMove]:
        request = ListPartitionReassignmentsRequest(
            timeout_ms=cluster.config.request_timeout_ms, topics=topics
        )
        answer = await cluster.ask(None, LIST_PARTITION_REASSIGNMENTS, request)
        cluster.check(answer.error_code, "listing moves", answer.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): PartitionMove(
                each.replicas, each.adding_replicas, each.removing_replicas
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    return await cluster.retrying("listing moves", attempt)
