"""What a change of one partition costs among few partitions and among four times as many.

Function calls are counted, so these tests say the same on every machine. `scripts/bench --rows
partitions` has the times.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    changed_topics,
)
from odradek.broker.cluster.made_logs import MadeLogs
from odradek.broker.cluster.metadata import ImageBuilder
from odradek.broker.cluster.store import (
    BROKERS,
    CLUSTER,
    pack,
    pack_broker,
    pack_partition,
    partition_key,
    topic_puts,
)
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.environment.env import Versioned
from odradek.broker.membership.membership import Membership
from odradek.broker.membership.roles import Roles
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from tests.broker.cluster.members import HERE, ReadMetadata, member
from tests.fakes.calls import counted
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore

FEW, MANY = 16, 64
NAMES = [f"t{number:03}" for number in range(MANY)]
SOME_MORE = 4
"""Calls that may be more: a dictionary grows now and then, say."""


class Followers:
    """Remembers which replicas were told to follow."""

    def __init__(self) -> None:
        self.following: list[str] = []

    async def follow(self, partition: Partition, leader: int) -> None:
        self.following.append(f"{partition.topic}-{partition.index}:{leader}")

    async def leave(self, partition: Partition) -> None:
        """Nothing is copied."""


def stored(value: bytes, revision: int) -> Versioned:
    return Versioned(value=value, create_revision=revision, mod_revision=revision)


def topic_of(name: str, width: int) -> TopicImage:
    """Return a topic of three brokers that the third leads."""
    partition = PartitionImage(leader=3, leader_epoch=1, replicas=(3, 1, 2), isr=(2, 3))
    topic_id = UUID(int=1 + NAMES.index(name))
    return TopicImage(name=name, topic_id=topic_id, configs={}, partitions=(partition,) * width)


class Cluster:
    """A broker of three, which follows in every partition: its builder, its roles and its image."""

    def __init__(self, *, topics: int, width: int = 1) -> None:
        self.builder = ImageBuilder()
        self.builder.put(CLUSTER, stored(pack({"id": "c"}), 1))
        for node in (1, 2, 3):
            broker = BrokerImage(node_id=node, host="h", port=node, lease=node)
            self.builder.put(f"{BROKERS}{node}", stored(pack_broker(broker, "d"), 1))
        for name in NAMES[:topics]:
            for key, value in topic_puts(topic_of(name, width)).items():
                assert value is not None
                self.builder.put(key, stored(value, 2))
        self.image = self.builder.image(None, 2, is_anew=True)
        self.partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
        self.followers = Followers()
        settings = LiveConfig(BrokerConfig())
        self.logs = LocalTopicLogs(
            self.partitions, settings, made_logs=MadeLogs(FakeMetaStore(), 1)
        )
        coordinators: Any = None
        self.roles = Roles(
            node_id=1,
            partitions=self.partitions,
            logs=self.logs,
            coordinators=coordinators,
            followers=self.followers,
            is_own=lambda broker: broker.lease == 1,
            spawn=lambda *_: None,
        )

    async def start(self) -> None:
        await self.logs.open_all(self.image)
        await self.roles.apply(ClusterImage(cluster_id=""), self.image)
        self.followers.following.clear()

    def next_image(self, revision: int, leader: int) -> ClusterImage:
        """Return the image in which another broker leads the first partition."""
        before = self.image.topics[NAMES[0]].partitions[0]
        elected = replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)
        key = partition_key(NAMES[0], 0)
        self.builder.put(key, stored(pack_partition(elected), revision))
        return self.builder.image(self.image, revision)

    async def change(self, revision: int, leader: int) -> None:
        """Let another broker lead the first partition."""
        image = self.next_image(revision, leader)
        await self.roles.apply(self.image, image)
        self.image = image


async def cost_of_a_change(*, topics: int, width: int) -> int:
    """Return the calls that a change of one partition needs: the image, and the role in it."""
    cluster = Cluster(topics=topics, width=width)
    await cluster.start()
    await cluster.change(3, leader=2)
    with counted() as calls:
        await cluster.change(4, leader=3)
    assert cluster.followers.following == [f"{NAMES[0]}-0:2", f"{NAMES[0]}-0:3"]
    return calls.count


async def test_a_change_of_one_partition_costs_the_same_among_four_times_as_many_topics() -> None:
    few = await cost_of_a_change(topics=FEW, width=2)
    assert await cost_of_a_change(topics=MANY, width=2) <= few + SOME_MORE


async def test_a_change_of_one_partition_of_a_wide_topic_looks_at_no_other() -> None:
    few = await cost_of_a_change(topics=1, width=FEW)
    assert await cost_of_a_change(topics=1, width=4 * FEW) <= few + SOME_MORE


def test_the_topics_that_differ_are_those_that_came_and_those_that_changed() -> None:
    cluster = Cluster(topics=3)
    before = cluster.image
    after = cluster.next_image(3, leader=2)
    assert changed_topics(before, before) == []
    assert changed_topics(before, after) == [after.topics[NAMES[0]]]
    grown = after.with_topics([topic_of(NAMES[3], 1)])
    assert changed_topics(after, grown) == [grown.topics[NAMES[3]]]
    without = grown.with_changes({NAMES[1]: None})
    assert changed_topics(grown, without) == []
    assert changed_topics(without, grown) == [grown.topics[NAMES[1]]]


def test_an_image_counts_names_and_partitions_as_topics_come_change_and_go() -> None:
    image = ClusterImage(cluster_id="c").with_topics([topic_of(NAMES[2], 3), topic_of(NAMES[0], 1)])
    image = image.with_topics([topic_of(NAMES[1], 2)])
    assert list(image.topics) == NAMES[:3]
    assert image.partition_count == 6
    anew = replace(topic_of(NAMES[2], 5), topic_id=UUID(int=99))
    image = image.with_changes({NAMES[2]: anew, NAMES[0]: None, "never was": None})
    assert list(image.topics) == NAMES[1:3]
    assert image.partition_count == 7
    assert dict(image.names) == {UUID(int=2): NAMES[1], UUID(int=99): NAMES[2]}


async def steps_of_a_controller(topics: int) -> tuple[int, int]:
    """Return the calls of a controller's first look at an image, and of the next one's."""
    cluster = Cluster(topics=topics)
    store = FakeMetaStore()
    _, controller = member(store, ReadMetadata(store), lead_anyway=trio.lowlevel.checkpoint)
    first = replace(cluster.image, controller_id=HERE.node_id)
    second = replace(cluster.next_image(20, leader=2), controller_id=HERE.node_id)
    costs = []
    for image in (first, second):
        with counted() as calls:
            await controller.step(image)
        costs.append(calls.count)
    return costs[0], costs[1]


async def test_a_controller_looks_only_at_topics_that_have_changed() -> None:
    first_few, few = await steps_of_a_controller(FEW)
    first_many, many = await steps_of_a_controller(MANY)
    assert first_many > first_few + SOME_MORE
    assert many <= few + SOME_MORE


async def test_a_controller_looks_at_every_topic_when_a_broker_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(topics=3)
    store = FakeMetaStore()
    _, controller = member(store, ReadMetadata(store), lead_anyway=trio.lowlevel.checkpoint)
    written: list[str] = []

    async def note(_self: Controller, _image: ClusterImage, elected: Any) -> None:
        written.extend(where.topic for where in elected)

    monkeypatch.setattr(Controller, "_write", note)
    image = replace(cluster.image, controller_id=HERE.node_id)
    await controller.step(image)
    assert written == []
    gone = replace(image, brokers=tuple(each for each in image.brokers if each.node_id != 3))
    await controller.step(gone)
    assert written == NAMES[:3]
    await controller.step(gone)  # nothing was written, so all of it is still to do
    assert written == 2 * NAMES[:3]


async def test_waiting_until_all_is_led_asks_about_each_partition_a_few_times_only() -> None:
    """An election of 20,000 partitions takes 200 images over etcd."""
    store = FakeMetaStore()
    metadata = ReadMetadata(store)
    cluster = Cluster(topics=MANY)
    metadata.image = cluster.image
    env: Any = SimpleNamespace(meta=store)
    config = BrokerConfig(node_id=3)
    membership = Membership(env, config, metadata, cluster.partitions, directory_id="d")
    led: set[str] = set()
    asked = 0

    def is_awaited(where: Any) -> bool:
        nonlocal asked
        asked += 1
        return where.topic not in led

    async with trio.open_nursery() as nursery:
        nursery.start_soon(membership._until_none, is_awaited)
        for name in NAMES:
            await trio.testing.wait_all_tasks_blocked()
            led.add(name)
            metadata._wake()
    assert asked <= 4 * MANY


def test_a_broker_is_found_at_the_same_cost_among_many_brokers() -> None:
    costs = []
    for count in (3, 30):
        brokers = tuple(BrokerImage(node_id=node, host="h", port=1) for node in range(count))
        image = replace(ClusterImage(cluster_id="c"), brokers=brokers)
        with counted() as calls:
            assert image.broker(count - 1) is brokers[-1]
            assert image.broker(count) is None
        costs.append(calls.count)
    assert costs[0] == costs[1]
