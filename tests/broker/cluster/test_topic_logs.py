"""Topics over their logs and the metadata store, on a disk that loses what was not flushed."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.cluster.broker_configs import BrokerConfigs
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.made_logs import MadeLogs
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.new_topic import WantedTopic
from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.cluster.topic_logs import (
    LocalTopicLogs,
    member_producer_expiration_ms,
)
from odradek.broker.cluster.topic_writer import TopicWriter
from odradek.broker.cluster.topics import ClusterTopics
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.membership.roles import Roles
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import FlushPolicy
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.record import Record
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.cluster.members import HERE, NoFollowers, member, metadata_of
from tests.broker.config.configured import from_properties
from tests.broker.own_records import append_records
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk, PowerOff
from tests.fakes.meta_store import FakeMetaStore


class Coordinators:
    """Remembers which partitions were loaded, and what the image had at that time."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self.loaded: list[tuple[str, int, bool]] = []

    async def load(self, topic: str, index: int) -> None:
        self.loaded.append((topic, index, topic in self._metadata.image.topics))

    def unload(self, topic: str, index: int) -> None:
        """Nothing is kept."""

    async def forget_topic(self, topic: str, topic_id: UUID) -> None:
        """Nothing is kept."""


class Node:
    """A broker's storage and cluster metadata, without its network."""

    def __init__(
        self,
        meta: EmbeddedStore,
        partitions: Partitions,
        cluster: ClusterTopics,
        controller: Controller,
        coordinators: Coordinators,
        configs: BrokerConfigs,
        logs: LocalTopicLogs,
    ) -> None:
        self.configs, self.logs = configs, logs
        self.meta, self.partitions, self.cluster = meta, partitions, cluster
        self.controller, self.coordinators = controller, coordinators

    @classmethod
    async def start(cls, disk: FakeDisk, flush: FlushPolicy = FlushPolicy.ACK) -> "Node":
        rng, config = random.Random(1), BrokerConfig(log_flush=flush)
        meta = await EmbeddedStore.open(disk, "/data")
        metadata = await metadata_of(meta, rng)
        partitions = Partitions(disk=disk, directory="/data", clock=FakeClock(), flush=flush)
        settings = LiveConfig(config)
        settings.take(metadata.image.broker_configs)
        made_logs = await MadeLogs.load(meta, HERE.node_id, metadata.image)
        cluster_id = metadata.image.cluster_id
        logs = LocalTopicLogs(partitions, settings, made_logs=made_logs, cluster_id=cluster_id)
        writer = TopicWriter(meta, HERE.node_id)
        cluster = ClusterTopics(
            metadata=metadata, writer=writer, settings=settings, rng=rng, logs=logs
        )
        await writer.finish_deletions(logs)
        await logs.open_all(metadata.image)
        coordinators = Coordinators(metadata)
        roles = Roles(
            node_id=HERE.node_id,
            partitions=partitions,
            logs=logs,
            coordinators=coordinators,
            followers=NoFollowers(),
            is_own=lambda broker: session.is_own(broker),
            spawn=lambda *_: None,
        )
        metadata.apply = roles.apply
        session, controller = member(
            meta, metadata, lead_anyway=lambda: roles.lead_in_old_epochs(metadata.image)
        )
        await session.register(HERE)
        for _ in range(2):  # stand, then elect
            await controller.step(metadata.image)
        configs = BrokerConfigs(meta, metadata, settings)
        return cls(meta, partitions, cluster, controller, coordinators, configs, logs)

    async def note_made(self) -> None:
        """Note which logs were made, as the broker does in the background."""
        await self.logs.note_made_now()

    async def append(self, topic: str, index: int, value: bytes) -> None:
        await self.note_made()
        partition = self.partitions.get_replica(topic, index)
        appended = append_records(partition, [Record(key=None, value=value)])
        await partition.leader().wait_committed(appended.last_offset + 1)

    def ends(self) -> dict[str, int]:
        """The log end of every partition that this broker would serve."""
        return {
            f"{p.topic}-{p.index}": p.log_end_offset
            for p in sorted(self.partitions, key=lambda p: (p.topic, p.index))
        }


async def a_life(disk: FakeDisk, said: Callable[[str], None]) -> None:
    """Make, grow, delete and make again; `said` is told what was answered."""
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    said("made")
    await node.note_made()
    await node.append("t", 0, b"old")
    await node.append("t", 1, b"old")
    said("filled")
    await node.note_made()
    await node.cluster.delete_topic("t")
    said("deleted")
    await node.note_made()
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    said("made again")
    await node.note_made()
    await node.cluster.create_partitions("t", 3)
    said("grown")
    await node.note_made()
    await node.append("t", 2, b"new")
    said("filled again")


async def ends_with_power_off(life: Awaitable[None]) -> bool:
    """Whether it does; alone or in a group, as several logs are made at once."""
    try:
        await life
    except* PowerOff:
        pass
    else:
        return False
    return True


# what there may be after a crash, by the last answer: log ends of t-0, t-1, ...
POSSIBLE: dict[str, tuple[tuple[int, ...], ...]] = {
    "": ((), (0, 0)),
    "made": ((0, 0), (1, 0), (1, 1)),
    "filled": ((1, 1), ()),
    "deleted": ((), (0,)),
    "made again": ((0,), (0, 0, 0)),
    "grown": ((0, 0, 0), (0, 0, 1)),
    "filled again": ((0, 0, 1),),
}


@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_a_power_cut_at_any_operation_leaves_topics_as_they_were_answered(
    seed: int | None,
) -> None:
    disk = FakeDisk()
    await a_life(disk, lambda answer: None)
    for operation in range(disk.operations):
        disk, answers = FakeDisk(), [""]
        disk.power_off_at(operation)
        assert await ends_with_power_off(a_life(disk, answers.append))
        disk.crash(None if seed is None else random.Random(seed * 1000 + operation))
        node = await Node.start(disk)
        found = node.ends()
        where = (operation, answers[-1], disk.journal[-3:])
        assert list(found) == [f"t-{index}" for index in range(len(found))], where
        assert tuple(found.values()) in POSSIBLE[answers[-1]], where
        assert (await node.meta.range("/deletions/"))[0] == {}, where
        assert node.partitions.damaged_partitions() == [], (
            where
        )  # no log is taken for one that is lost
        # a namesake of whatever was left behind begins empty
        if "t" in node.cluster.image.topics:
            await node.cluster.delete_topic("t")
        await node.cluster.create_topic(WantedTopic(name="t", partition_count=3))
        assert node.ends() == {"t-0": 0, "t-1": 0, "t-2": 0}, where
        # nothing of a deleted topic is taken for something that must be kept
        assert [name for name in disk.listdir("/data") if name.endswith("aside")] == [], where


async def test_a_change_goes_to_its_end_although_the_client_is_gone() -> None:
    node = await Node.start(FakeDisk())
    for number in range(60):
        name = f"t{number}"
        with trio.CancelScope() as gone:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.cluster.create_topic, WantedTopic(name=name))
                for _ in range(number):
                    await trio.lowlevel.checkpoint()
                gone.cancel()
        is_there = name in node.cluster.image.topics
        assert is_there == any(p.topic == name for p in node.partitions)
        await node.cluster.ensure_topic(name)
        await node.append(name, 0, b"x")
    assert is_there  # the last had time enough


async def test_a_topic_whose_logs_cannot_be_made_is_not_there_at_all() -> None:
    disk = FakeDisk()
    node = await Node.start(disk)
    for call in ("mkdir", "open", "append", "fsync", "fsync_dir"):
        disk.mkdir("/data/t-0")  # an interrupted creation left it
        disk.fail(call, 28, path_end="")
        with pytest.raises(KafkaError) as refused:
            await node.cluster.create_topic(WantedTopic(name="t", partition_count=3))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR, call
        assert node.ends() == {}, call
        assert "t" not in node.cluster.image.topics
        if call == "fsync":  # and with it the metadata store, until the next start
            disk.crash()
            node = await Node.start(disk)


async def test_a_partition_that_cannot_be_moved_away_keeps_no_other() -> None:
    """The others of its topic were still there when the topic was made anew: the broker ended."""
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=3))
    await node.append("t", 0, b"old")
    disk.fail("rename", 5, path_end="t-0")
    await node.cluster.delete_topic("t")
    assert node.ends() == {}
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=3))
    assert node.ends() == {"t-0": 0, "t-1": 0, "t-2": 0}


@pytest.mark.parametrize(("call", "path_end"), [("mkdir", "t-2"), ("append", "cluster.meta")])
async def test_a_topic_that_cannot_grow_stays_as_it_is(call: str, path_end: str) -> None:
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    await node.append("t", 0, b"kept")
    disk.fail(call, 28, path_end=path_end)
    with pytest.raises(KafkaError):
        await node.cluster.create_partitions("t", 4)
    assert node.ends() == {"t-0": 1}
    await node.cluster.create_partitions("t", 4)
    assert node.ends() == {"t-0": 1, "t-1": 0, "t-2": 0, "t-3": 0}


async def test_a_log_whose_topic_was_forgotten_is_set_aside_and_not_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The metadata was lost, a topic of that name was made, and 172 KB of records were gone."""
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    await node.append("t", 0, b"kept")
    kept = disk.bytes_of(f"/data/t-0/{0:020}.log")
    disk.kill()
    node = await Node.start(disk)
    await node.meta.txn((), dict.fromkeys((await node.meta.range("/"))[0]))
    disk.kill()
    node = await Node.start(disk)
    await node.cluster.ensure_topic("t")
    assert "t-0 belongs to no topic" in caplog.text
    assert set(node.ends().values()) == {0}
    assert disk.bytes_of(f"/data/t-0.set-aside/{0:020}.log") == kept


async def test_a_deleted_topics_directory_that_could_not_be_moved_goes_at_the_next_start() -> None:
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    await node.append("t", 0, b"old")
    for _ in range(2):
        disk.fail("rename", 5, path_end="t-0")
    await node.cluster.delete_topic("t")
    assert disk.exists("/data/t-0")
    disk.kill()
    node = await Node.start(disk)
    assert not disk.exists("/data/t-0")
    assert (await node.meta.range("/deletions/"))[0] == {}


@pytest.mark.parametrize(
    ("properties", "members_ms"),
    [
        ({}, 3_600_000),
        ({"transaction.group.id.expiration.ms": "7000"}, 7_000),
        ({"producer.id.expiration.ms": "5000"}, 5_000),
        # The partition's own state is then all that refuses a late batch.
        ({"transaction.partition.verification.enable": "false"}, 86_400_000),
    ],
)
def test_members_of_groups_have_their_own_expiration_if_batches_are_verified(
    properties: dict[str, str], members_ms: int
) -> None:
    assert member_producer_expiration_ms(from_properties(properties)) == members_ms


async def test_directories_that_belong_to_no_topic_are_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FakeDisk()
    await a_life(disk, lambda _: None)
    assert "belong to no topic" not in caplog.text
    for name in ("lost-0", "lost+found"):
        disk.mkdir(f"/data/{name}")
    disk.kill()
    node = await Node.start(disk)
    (line,) = [one.getMessage() for one in caplog.records if "no topic" in one.getMessage()]
    assert line.endswith("are left alone: lost+found, lost-0")
    assert set(node.ends()) == {"t-0", "t-1", "t-2"}
    assert disk.exists("/data/lost-0")


async def test_each_start_is_a_new_leader_epoch() -> None:
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=2))
    for epoch in (1, 2):
        disk.kill()
        node = await Node.start(disk)
        epochs = [p.leader_epoch for p in node.cluster.image.topics["t"].partitions]
        assert epochs == [epoch, epoch]


async def test_partitions_are_led_in_their_old_epochs_if_the_disk_is_full_at_the_start() -> None:
    """The broker did not start, and served nobody."""
    disk = FakeDisk()
    node = await Node.start(disk)
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    await node.append("t", 0, b"x")
    disk.kill()
    disk.fail("append", 28, path_end="cluster.meta")
    node = await Node.start(disk)
    assert node.cluster.image.topics["t"].partitions[0].leader_epoch == 0
    assert node.partitions.get_replica("t", 0).high_watermark == 1
    await node.controller.step(node.cluster.image)
    assert node.partitions.get_replica("t", 0).leader_epoch == 1


async def test_a_state_topic_is_loaded_before_the_image_has_it() -> None:
    node = await Node.start(FakeDisk())
    topic = await node.cluster.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    assert node.coordinators.loaded == [
        (TRANSACTION_STATE_TOPIC, index, False) for index in range(len(topic.partitions))
    ]


async def test_a_broker_that_has_restarted_leads_nothing_before_it_has_registered() -> None:
    """The metadata store still has what its earlier run has registered, and is elected for.

    That run may have written other records at the same offsets, which are lost, in that epoch.
    """
    partitions = Partitions(disk=FakeDisk(), directory="/data", clock=FakeClock())
    image = PartitionImage(leader=1, leader_epoch=4, replicas=(1,), isr=(1,), epoch=10)
    topic = TopicImage(name="t", topic_id=UUID(int=1), configs={}, partitions=(image,))
    earlier = BrokerImage(node_id=1, host="h", port=1, epoch=5, lease=1)
    old = ClusterImage(cluster_id="c", brokers=(earlier,)).with_topics([topic])
    made_logs = MadeLogs(FakeMetaStore(), 1)
    settings = LiveConfig(from_properties({"node.id": "1"}))
    logs = LocalTopicLogs(partitions, settings, made_logs=made_logs)
    await logs.open_all(old)
    own = BrokerImage(node_id=1, host="h", port=1, epoch=11, lease=2)
    roles = Roles(
        node_id=1,
        partitions=partitions,
        logs=logs,
        coordinators=Coordinators(ClusterMetadata(FakeMetaStore())),
        followers=NoFollowers(),
        is_own=lambda broker: broker.lease == own.lease,
        spawn=lambda *_: None,
    )
    await roles.apply(ClusterImage(cluster_id="c"), old)
    (partition,) = partitions.all()
    assert partition.leading is None
    registered = replace(old, brokers=(own,))
    await roles.apply(old, registered)
    assert partition.leading is None
    elected = registered.with_topics([replace(topic, partitions=(replace(image, epoch=12),))])
    await roles.apply(registered, elected)
    assert partition.leading is not None


async def test_nothing_is_acknowledged_before_it_is_noted_that_its_log_was_made() -> None:
    """A log that was lost in that moment was made anew, and its records were gone."""
    node = await Node.start(FakeDisk())
    await node.cluster.create_topic(WantedTopic(name="t", partition_count=1))
    partition = node.partitions.get_replica("t", 0)
    appended = append_records(partition, [Record(key=None, value=b"x")])
    await partition.wait_flushed(1)
    assert partition.high_watermark == 0
    assert not partition.leader().has_committed(appended)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partition.leader().wait_committed, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert partition.high_watermark == 0
        await node.note_made()
    assert partition.high_watermark == 1


async def test_after_a_kill_decisions_are_on_disk_before_any_marker() -> None:
    """With a journal both may be in the page cache only, and the power may go off next."""
    disk = FakeDisk()
    disk.mkdir("/data")
    disk.make_durable()
    node = await Node.start(disk, FlushPolicy.JOURNAL)
    await node.cluster.create_topic(WantedTopic(name="a", partition_count=2))
    await node.cluster.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    for partition in node.partitions:
        append_records(partition, [Record(key=None, value=b"x", timestamp_ms=0)])
    disk.kill()
    before = len(disk.journal)
    await Node.start(disk, FlushPolicy.JOURNAL)
    opened = disk.journal[before:]
    saved = [
        n for n, each in enumerate(opened) if each.startswith("rename") and "checkpoint" in each
    ]
    of_decisions = [n for n in saved if TRANSACTION_STATE_TOPIC in opened[n]]
    others = [n for n, each in enumerate(opened) if "/data/a-" in each]
    assert of_decisions
    assert max(of_decisions) < min(others)
