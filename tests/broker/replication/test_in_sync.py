"""The in-sync sets that a leader writes to the metadata store."""

from dataclasses import replace
from random import Random
from uuid import UUID

import trio

from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.store import partition_key, read_partition, topic_puts
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.replication.in_sync import InSync
from odradek.broker.storage.config import LogConfig
from tests.broker.cluster.members import HERE, member, metadata_of
from tests.broker.cluster.test_requested import register
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore

TWO: PartitionImage = PartitionImage(
    leader=1, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 3), elr=(2,)
)


async def test_eligible_replicas_are_forgotten_when_a_smaller_min_isr_is_reached(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With min.insync.replicas at 3, replica 2 could be elected. At 2 the leader goes on without
    it, so the metadata store must not have it any more."""
    store = FakeMetaStore()
    metadata = await metadata_of(store, Random(1))
    session, _ = member(store, metadata, lead_anyway=trio.lowlevel.checkpoint)
    await session.register(HERE)
    topic = TopicImage(name="t", topic_id=UUID(int=1), configs={}, partitions=(TWO,))
    register(store, 3)
    store.put(topic_puts(topic))
    await metadata.read_anew(metadata.apply)
    image = metadata.image.topics["t"].partitions[0]
    partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
    partition = await partitions.open(
        "t", topic.topic_id, 0, LogConfig(min_insync_replicas=3), leader_epoch=None
    )
    partition.begin_lead(
        InSyncView.over(
            node_id=1,
            leader_epoch=1,
            replicas=TWO.replicas,
            isr=TWO.isr,
            elr=TWO.elr,
            partition_epoch=image.epoch,
            now=trio.current_time(),
        )
    )
    in_sync = InSync(
        store=store,
        metadata=metadata,
        session=session,
        partitions=partitions,
        max_lag_seconds=1e9,
    )
    assert await eligible_after(in_sync, partition, store) == (2,)
    partition.configure(replace(partition.config, min_insync_replicas=2))
    assert await eligible_after(in_sync, partition, store) == ()


async def eligible_after(
    in_sync: InSync, partition: Partition, store: FakeMetaStore
) -> tuple[int, ...]:
    """What the store has of eligible replicas after the leader has looked."""
    in_sync.consider(partition.leader())
    with trio.move_on_after(2):
        await in_sync.run()
    key = partition_key("t", 0)
    return read_partition(key, store.values[key]).elr
