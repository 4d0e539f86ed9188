"""Damaged replicas are fetched anew.

Recovery, a reader or the scrubber finds stored data damaged, and the partition is offline on this
broker. If other replicas are whole, this one leaves the sets from which leaders are elected, and
leads no more. Then its directory is set aside for a person to look at, and the replica begins with
an empty log, which follows the next leader.

If no other replica is in sync, nothing is thrown away: the partition stays offline until a person
mends it with `odradek log repair`, as on one node.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from odradek.broker.cluster.election import without
from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import ClusterImage, PartitionImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import pack_partition, partition_key
from odradek.broker.environment.env import Compare, MetaStore
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 0.5


class DamagedReplicas:
    """Replaces the damaged replicas of this broker."""

    def __init__(
        self,
        *,
        store: MetaStore,
        metadata: ClusterMetadata,
        session: Session,
        partitions: Partitions,
        node_id: int,
        begin_anew: Callable[[TopicPartition], Awaitable[None]],
    ) -> None:
        """`begin_anew` sets a log aside, and makes an empty one."""
        self._store = store
        self._metadata = metadata
        self._session = session
        self._partitions = partitions
        self._node_id = node_id
        self._begin_anew = begin_anew

    async def run(self) -> None:
        """Look for damaged replicas until cancelled."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            await self._take_offline()
            for where in self._partitions.damaged_partitions():
                try:
                    await self._replace(where)
                except KafkaError as error:
                    LOGGER.warning("%s cannot be fetched anew yet: %s", where, error)

    async def _take_offline(self) -> None:
        """Take offline what a reader has found damaged, if another replica is whole.

        On one node it would be of no use: other records of the partition can still be read.
        """
        for partition in self._partitions.troubles.partitions():
            found = partition.log.reader.damage
            if found is None or partition.log.failure is not None:
                continue
            image = self._metadata.image.partition(partition.topic, partition.index)
            if image is not None and self._has_whole_replica(image):
                await self._partitions.take_offline(partition, found)

    async def _replace(self, where: TopicPartition) -> None:
        """Take the next step of replacing a damaged replica. Raises KafkaError."""
        image = self._metadata.image
        partition = image.partition(*where)
        if partition is None or not self._has_whole_replica(partition):
            return
        if image.topics[where.topic].topic_id != self._partitions.topic_id_of(where):
            return  # it was made anew: the damaged log, of the topic before, is removed soon
        if self._node_id in (partition.leader, *partition.isr, *partition.elr):
            await self._leave(image, where, partition)
        elif await self._is_as_shown(where, partition):
            await self._begin_anew(where)

    async def _is_as_shown(self, where: TopicPartition, partition: PartitionImage) -> bool:
        """Return True if the store has a partition as this broker's image shows it.

        An image may be late, and the leader has taken this replica back since. Raises KafkaError.
        """
        unchanged = Compare(key=partition_key(*where), mod_revision=partition.epoch)
        is_unchanged, revision = await self._store.txn([unchanged, self._session.guard], {})
        if not is_unchanged:
            await self._metadata.wait_reached(revision)
        return is_unchanged

    def _has_whole_replica(self, partition: PartitionImage) -> bool:
        return any(node != self._node_id for node in (*partition.isr, *partition.elr))

    async def _leave(
        self, image: ClusterImage, where: TopicPartition, partition: PartitionImage
    ) -> None:
        others = {b.node_id: b for b in image.brokers if b.node_id != self._node_id}
        changed = without(partition, self._node_id, others)
        assert changed is not None, partition
        key = partition_key(*where)
        compares = [Compare(key=key, mod_revision=partition.epoch), self._session.guard]
        _, revision = await guarded_write(self._store, compares, {key: pack_partition(changed)})
        LOGGER.error("the replica of %s here is damaged: it is fetched anew from another", where)
        await self._metadata.wait_reached(revision)
