"""Moves of partitions that an administrator asks for. The rules are in `reassignment.py`.

Any broker writes them. A write is guarded: the partition and the brokers of the target must be as
the image shows them.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

import trio

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import ClusterImage, PartitionImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.reassignment import begun, revert
from odradek.broker.cluster.store import CONTROLLER, broker_key, in_steps, write_of_partitions
from odradek.broker.environment.env import Compare, MetaStore
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError

AT_ONCE: Final = 50
"""The most moves of one transaction. Fewer if their guards need the room."""

Target = Sequence[int] | None
Outcomes = dict[TopicPartition, KafkaError | None]


class RequestedMoves:
    """The moves that this broker writes for its clients."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata) -> None:
        self._store = store
        self._metadata = metadata

    async def move(
        self,
        wanted: Mapping[TopicPartition, Target],
        *,
        may_change_factor: bool,
        timeout_ms: int,
    ) -> Outcomes:
        """Begin to move partitions; None cancels a move. Return None or an error for each.

        The image of this broker has the moves on return. The errors: UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS,
        REQUEST_TIMED_OUT, and those of the metadata store.
        """
        rest = dict(wanted)
        outcomes: Outcomes = {}
        is_fresh = False
        with trio.move_on_after(max(0, timeout_ms) / 1000):
            while rest:
                await trio.lowlevel.checkpoint()
                image = self._metadata.image
                planned: dict[TopicPartition, PartitionImage] = {}
                refused: Outcomes = {}
                for where in list(islice(rest, AT_ONCE)):
                    try:
                        changed = planned_move(
                            image, where, rest[where], may_change_factor=may_change_factor
                        )
                    except KafkaError as error:
                        refused[where] = error
                        continue
                    if changed == image.partition(*where):
                        outcomes[where] = None
                        del rest[where]
                    else:
                        planned[where] = changed
                try:
                    # invariant administration 5: An answer that is final for a client does not rest
                    # on an image that is behind: the broker reads the metadata store first.
                    # plant a move is refused for good for a broker that the image does not show yet
                    if refused and not is_fresh:
                        # Clients repeat none of this, so an older image than the request is no
                        # reason: it may lack a broker, a topic, or a move that is to be cancelled.
                        _, revision = await self._store.range(CONTROLLER)
                        await self._metadata.wait_reached(revision)
                        is_fresh = True
                        continue
                    outcomes |= refused
                    for where in refused:
                        del rest[where]
                    if not planned:
                        continue
                    planned = next(in_steps(planned, self._store.max_operations, _rests_on))
                    is_written, revision = await self._write(image, planned)
                except KafkaError as error:
                    return outcomes | dict.fromkeys(rest, error)
                await self._metadata.wait_reached(revision)
                if is_written:  # else something has changed: plan again
                    for where in planned:
                        outcomes[where] = None
                        del rest[where]
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The reassignment may still be written.")
        return outcomes | dict.fromkeys(rest, late)

    async def _write(
        self, image: ClusterImage, planned: Mapping[TopicPartition, PartitionImage]
    ) -> tuple[bool, int]:
        compares, puts = write_of_partitions(image, planned)
        guarded = {partition.leader for partition in planned.values()}
        adding = {node for partition in planned.values() for node in partition.arriving}
        for broker in image.brokers:
            if broker.node_id in adding - guarded:
                key = broker_key(broker.node_id)
                compares.append(Compare(key=key, create_revision=broker.epoch))
        return await guarded_write(self._store, compares, puts)


def _rests_on(partition: PartitionImage) -> Collection[int]:
    return {partition.leader, *partition.arriving}


def planned_move(
    image: ClusterImage, where: TopicPartition, target: Target, *, may_change_factor: bool = True
) -> PartitionImage:
    """Return a partition as it is to be written. Raises KafkaError."""
    topic = image.topics.get(where.topic)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {where.topic}."
        )
    partition = image.partition(*where)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {where.topic}:{where.partition}.",
        )
    brokers = {broker.node_id: broker for broker in image.brokers}
    if target is None:
        return _cancelled(image, where, partition)
    _check_target(target, brokers.keys() | set(partition.replicas) - set(partition.adding))
    settled = len(partition.replicas) - len(partition.adding)
    if not may_change_factor and len(target) != settled:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {settled} to {len(target)}",
        )
    return begun(partition, target)


def _cancelled(
    image: ClusterImage, where: TopicPartition, partition: PartitionImage
) -> PartitionImage:
    if not partition.is_moving:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    brokers = {broker.node_id: broker for broker in image.brokers}
    min_isr = image.topics[where.topic].min_insync_replicas or 1
    reverted = revert(partition, brokers, min_isr)
    if reverted is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {where.topic}:{where.partition} because "
            "it would require an unclean leader election.",
        )
    return reverted


def _check_target(target: Sequence[int], brokers: set[int]) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT for a target that cannot be."""
    problem = ""
    seen: set[int] = set()
    for node in target:
        if node in seen:
            problem = f"the broker {node} more than once."
        elif node not in brokers:
            problem = f"broker {node}, but no such broker is registered."
        seen.add(node)
        if problem:
            break
    if not target:
        problem = "an empty replica list."
    if problem:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}",
        )
