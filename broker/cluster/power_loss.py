"""Leaving the in-sync sets after a power failure that may have taken acknowledged records.

With `log.flush=os` a record is acknowledged when it is in the page caches of the in-sync replicas.
A broker whose machine went down may lack the last of them, and must not lead before it has fetched
them again. So before it registers it takes itself out of the in-sync sets and out of the eligible
replicas. Until then it is not registered, and cannot be elected. A replica whose directory is gone
is treated in the same way.

If no replica is left that may lead, the one that led last is elected when it is back, as in Kafka
(KIP-966): more replicas lost power at once than `min.insync.replicas` allows for.
"""

import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.cluster.election import without
from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import ClusterImage, PartitionImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import broker_key, in_steps, leader_of, write_of_partitions
from odradek.broker.environment.env import Compare, MetaStore
from odradek.broker.values.topic_partition import TopicPartition

LOGGER: Final = logging.getLogger(__name__)


async def leave_sets(
    store: MetaStore,
    metadata: ClusterMetadata,
    node_id: int,
    lacks: Callable[[TopicPartition], bool],
) -> bool:
    """Take a broker that is not registered out of the sets from which leaders are elected.

    `lacks` says which of its replicas may lack acknowledged records. Return False if a broker with
    this node id is registered after all. Raises KafkaError. Calling it again goes on where it
    ended.
    """
    while metadata.image.broker(node_id) is None:
        image = metadata.image
        waiting = _changes(image, node_id, lacks)
        if not waiting:
            return True
        LOGGER.warning(
            "%d replicas may lack acknowledged records: they leave the in-sync sets until they "
            "have fetched them",
            len(waiting),
        )
        step = next(in_steps(waiting, store.max_operations, leader_of))
        compares, puts = write_of_partitions(image, step)
        compares.append(Compare(key=broker_key(node_id), mod_revision=0))
        _, revision = await guarded_write(store, compares, puts)
        await metadata.wait_reached(revision)
    return False


def _changes(
    image: ClusterImage, node_id: int, lacks: Callable[[TopicPartition], bool]
) -> dict[TopicPartition, PartitionImage]:
    brokers = {broker.node_id: broker for broker in image.brokers}
    found = {}
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            where = TopicPartition(topic.name, index)
            changed = without(partition, node_id, brokers)
            if changed is not None and lacks(where):
                found[where] = changed
    return found
