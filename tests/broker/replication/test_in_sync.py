"""The in-sync sets that a leader writes to the metadata store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from uuid import UUID

import trio
import trio.testing

from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import (
    broker_key,
    partition_key,
    read_partition,
    topic_key,
    topic_puts,
)
from odradek.broker.partitions.in_sync_view import Contact, InSyncView
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.replication.in_sync import InSync
from odradek.broker.storage.config import LogConfig
from odradek.protocol.record import Record
from tests.broker.cluster.members import HERE, ReadMetadata, member, metadata_of
from tests.broker.cluster.test_requested import register
from tests.broker.own_records import append_records
from tests.fakes.calls import counted
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore

LACKS_TWO: PartitionImage = PartitionImage(
    leader=1, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 3), elr=(2,)
)
ALL: PartitionImage = PartitionImage(leader=1, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
LAG_SECONDS = 30.0
SOON_SECONDS = 1.0
"""More than the pause between two looks."""


class Leading:
    """A broker that leads some partitions, and looks after their in-sync sets."""

    def __init__(
        self, store: FakeMetaStore, metadata: ReadMetadata, session: Session, in_sync: InSync
    ) -> None:
        self.store, self.metadata, self.session, self.in_sync = store, metadata, session, in_sync
        self.partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
        self.contact = Contact()
        """Of the fetches of both followers."""

    @classmethod
    async def start(cls, *images: PartitionImage, min_insync_replicas: int = 2) -> "Leading":
        store = FakeMetaStore(max_operations=128)
        metadata = await metadata_of(store, Random(1))
        session, _ = member(store, metadata, lead_anyway=trio.lowlevel.checkpoint)
        await session.register(HERE)
        for node in sorted({node for image in images for node in image.replicas} - {1}):
            register(store, node)
        topic = TopicImage(name="t", topic_id=UUID(int=1), configs={}, partitions=images)
        store.put(topic_puts(topic))
        await metadata.read_anew(metadata.apply)
        in_sync = InSync(
            store=store, metadata=metadata, session=session, max_lag_seconds=LAG_SECONDS
        )
        here = cls(store, metadata, session, in_sync)
        config = LogConfig(min_insync_replicas=min_insync_replicas)
        for index in range(len(images)):
            opened = await here.partitions.open("t", topic.topic_id, index, config, leader_epoch=1)
            here.lead(opened)
        return here

    def lead(self, partition: Partition) -> None:
        image = self.metadata.image.topics["t"].partitions[partition.index]
        partition.begin_lead(
            InSyncView.over(
                node_id=1,
                leader_epoch=image.leader_epoch,
                replicas=image.replicas,
                isr=image.isr,
                elr=image.elr,
                partition_epoch=image.epoch,
                now=trio.current_time(),
            )
        )
        self.in_sync.watch(partition.leader())

    @property
    def leaders(self) -> list[Leader]:
        return [partition.leader() for partition in self.partitions]

    def fetch(self, *nodes: int) -> None:
        """Let these followers, or all, fetch from the end of each log: they have everything."""
        self.contact.at = trio.current_time()
        epochs = {broker.node_id: broker.epoch for broker in self.metadata.image.brokers}
        for leader in self.leaders:
            for node in nodes or leader.view.followers:
                leader.on_fetched(
                    node,
                    leader.log.log_end_offset,
                    0,
                    broker_epoch=epochs[node],
                    contact=self.contact,
                )

    async def go_on_fetching(self, seconds: float) -> None:
        """Let the followers' fetches go on, which list no partition."""
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            self.contact.at = trio.current_time()
            await trio.sleep(0.5)

    def append(self, partition: Partition) -> None:
        append_records(partition, [Record(key=None, value=b"value")])

    def stored(self, index: int = 0) -> PartitionImage:
        key = partition_key("t", index)
        return read_partition(key, self.store.values[key])


@asynccontextmanager
async def leading(*images: PartitionImage, min_insync_replicas: int = 2) -> AsyncIterator[Leading]:
    """Lead partitions of one topic, as these images say."""
    here = await Leading.start(*images, min_insync_replicas=min_insync_replicas)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.session.run)
        nursery.start_soon(here.in_sync.run)
        yield here
        nursery.cancel_scope.cancel()


async def test_eligible_replicas_are_forgotten_when_a_smaller_min_isr_is_reached(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With min.insync.replicas at 3, replica 2 could be elected. At 2 the leader goes on without
    it, so the metadata store must not have it any more."""
    async with leading(LACKS_TWO, min_insync_replicas=3) as here:
        await trio.sleep(SOON_SECONDS)
        assert here.stored().elr == (2,)
        (partition,) = here.partitions
        partition.configure(replace(partition.config, min_insync_replicas=2))
        await trio.sleep(SOON_SECONDS)
        assert here.stored().elr == ()


async def test_a_follower_that_is_not_heard_of_leaves_an_idle_partition(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leading(ALL) as here:
        here.fetch(2, 3)
        await here.go_on_fetching(3 * LAG_SECONDS)
        assert here.stored().isr == (1, 2, 3)
        here.leaders[0].view.followers[3].contact = Contact(trio.current_time())
        await here.go_on_fetching(LAG_SECONDS - SOON_SECONDS)
        assert here.stored().isr == (1, 2, 3)
        await here.go_on_fetching(2 * SOON_SECONDS)
        assert here.stored().isr == (1, 2)


async def test_a_record_after_a_long_pause_does_not_make_a_follower_lag(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The followers had everything until the append, although they were not looked at for long."""
    async with leading(ALL, ALL) as here:
        here.fetch(2, 3)
        for _ in range(3):
            await here.go_on_fetching(LAG_SECONDS - SOON_SECONDS)
            for partition in here.partitions:
                here.append(partition)
            await here.go_on_fetching(2 * SOON_SECONDS)
            assert here.stored().isr == (1, 2, 3)
            here.fetch(2, 3)
        here.append(next(iter(here.partitions)))
        await here.go_on_fetching(LAG_SECONDS + SOON_SECONDS)  # and it does not ask for it
        assert here.stored(0).isr == (1,)
        assert here.stored(1).isr == (1, 2, 3)


async def test_a_broker_that_goes_leaves_the_sets_of_all_partitions_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leading(ALL, ALL, ALL) as here:
        here.fetch(2, 3)
        await here.go_on_fetching(SOON_SECONDS)
        here.store.put({broker_key(3): None})
        await here.metadata.read_anew(here.metadata.apply)
        await here.go_on_fetching(SOON_SECONDS)
        assert [here.stored(index).isr for index in range(3)] == [(1, 2)] * 3
        assert (here.in_sync.shrink_count, here.in_sync.expand_count) == (3, 0)


async def test_followers_on_more_brokers_than_a_transaction_has_operations_join(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After all brokers but one have restarted. Each follower's registration is one condition."""
    images = [replace(ALL, replicas=(1, *range(n, n + 3)), isr=(1,)) for n in range(2, 152, 3)]
    async with leading(*images) as here:
        here.fetch()
        await here.go_on_fetching(SOON_SECONDS)
        stored = [here.stored(index) for index in range(len(images))]
        assert [each.isr for each in stored] == [image.replicas for image in images]
        assert (here.in_sync.shrink_count, here.in_sync.expand_count) == (0, len(images))


async def test_a_lead_that_is_over_is_looked_at_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leading(ALL, ALL) as here:
        first, second = here.partitions
        first.end_lead(2)
        await trio.sleep(SOON_SECONDS)
        assert not first.marks.followers.watches
        await second.discard()
        await trio.sleep(SOON_SECONDS)
        assert not second.marks.followers.watches
        await trio.sleep(2 * LAG_SECONDS)
        assert here.stored(0).isr == here.stored(1).isr == (1, 2, 3)


async def test_a_change_that_is_due_is_given_up_with_its_topic(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was looked at five times a second for ever, and kept the deleted log in memory."""
    async with leading(ALL) as here:
        (partition,) = here.partitions
        here.store.put({partition_key("t", 0): None, topic_key("t"): None})
        await trio.sleep(LAG_SECONDS + SOON_SECONDS)
        assert here.in_sync._due
        await here.metadata.read_anew(here.metadata.apply)
        await here.partitions.delete("t", [0])
        await trio.sleep(SOON_SECONDS)
        assert not here.in_sync._due
        assert not partition.marks.followers.watches


async def calls_of_an_idle_minute(count: int) -> int:
    """Return the calls of a minute in which the followers of so many partitions only fetch on."""
    async with leading(*[ALL] * count) as here:
        here.fetch(2, 3)
        await here.go_on_fetching(SOON_SECONDS)
        with counted() as calls:
            await here.go_on_fetching(LAG_SECONDS / 2)
        return calls.count


async def test_partitions_without_news_cost_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    few = await calls_of_an_idle_minute(10)
    assert await calls_of_an_idle_minute(100) < 1.1 * few
