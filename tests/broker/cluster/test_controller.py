"""Making, growing and removing topics, through the metadata store, and starting again."""

import errno
import random
from collections.abc import Sequence
from uuid import UUID

import pytest
import trio

from odradek.broker.cluster.controller import Controller, load_image
from odradek.broker.cluster.image import BrokerImage, TopicImage
from odradek.broker.cluster.new_topic import (
    NAME_MAX_CHARACTERS,
    PARTITIONS_MAX,
    WantedTopic,
    check_name,
)
from odradek.broker.config.broker import BrokerConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.broker.config.configured import from_properties
from tests.fakes.meta_store import FakeMetaStore

HERE = BrokerImage(node_id=1, host="127.0.0.1", port=9092)


class Logs:
    """Remembers which logs there are; may fail."""

    def __init__(self) -> None:
        self.present: set[tuple[str, int]] = set()
        self.failure: KafkaError | None = None
        self.can_remove = True

    async def create(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        self.present |= {(topic.name, index) for index in indexes}

    async def delete(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        await trio.lowlevel.checkpoint()
        self.present -= {(topic.name, index) for index in indexes}

    async def remove_deleted(self, name: str, topic_id: UUID) -> bool:
        await trio.lowlevel.checkpoint()
        return self.can_remove


class World:
    """A store that outlives controllers, and their coordinators."""

    def __init__(self) -> None:
        self.meta = FakeMetaStore()
        self.logs = Logs()
        self.loaded: list[tuple[str, int]] = []

    async def controller(self, config: BrokerConfig | None = None) -> Controller:
        rng = random.Random(1)
        return Controller(
            meta=self.meta,
            config=config or BrokerConfig(),
            rng=rng,
            logs=self.logs,
            coordinators=self,
            image=await load_image(self.meta, here=HERE, rng=rng),
        )

    async def load(self, topic: str, index: int) -> None:
        self.loaded.append((topic, index))


@pytest.fixture
def world() -> World:
    return World()


async def refusal(awaitable: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await awaitable  # type: ignore[misc]
    assert refused.value.message
    return refused.value.code


async def test_a_topic_is_there_after_a_restart_with_the_same_id(world: World) -> None:
    controller = await world.controller()
    made = await controller.create_topic(
        WantedTopic(name="t", partition_count=3, configs=(("retention.ms", "5"),))
    )
    assert world.logs.present == {("t", 0), ("t", 1), ("t", 2)}
    again = await world.controller()
    assert again.image == controller.image
    assert again.image.topics["t"] == made
    assert again.image.topic_by_id(made.topic_id) == made
    assert made.configs == {"retention.ms": "5"}


async def test_the_cluster_keeps_its_id(world: World) -> None:
    first, second = await world.controller(), await world.controller()
    assert first.image.cluster_id == second.image.cluster_id
    assert len(first.image.cluster_id) == 22


async def test_defaults_are_the_brokers(world: World) -> None:
    controller = await world.controller(from_properties({"num.partitions": "6"}))
    assert len((await controller.create_topic(WantedTopic(name="t"))).partitions) == 6
    assert len((await controller.ensure_topic("u")).partitions) == 6


async def test_whoever_starts_leads_in_a_new_epoch(world: World) -> None:
    controller = await world.controller()
    await controller.create_topic(WantedTopic(name="t", partition_count=2))
    for epoch in (1, 2):
        controller = await world.controller()
        await controller.elect()
        epochs = [p.leader_epoch for p in controller.image.topics["t"].partitions]
        assert epochs == [epoch, epoch]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (WantedTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS),
        (WantedTopic(name="t", partition_count=-5), ErrorCode.INVALID_PARTITIONS),
        (WantedTopic(name="t", partition_count=PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        (WantedTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (WantedTopic(name="t", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (WantedTopic(name="t", configs=(("nonsense", "1"),)), ErrorCode.INVALID_CONFIG),
        (WantedTopic(name="t", assignments=((0, (2,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WantedTopic(name="t", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (WantedTopic(name="t", assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            WantedTopic(name="t", partition_count=1, assignments=((0, (1,)),)),
            ErrorCode.INVALID_REQUEST,
        ),
        (WantedTopic(name=CONSUMER_OFFSETS_TOPIC), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (WantedTopic(name="../t"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    world: World, wanted: WantedTopic, code: ErrorCode
) -> None:
    controller = await world.controller()
    assert await refusal(controller.create_topic(wanted)) is code
    assert world.logs.present == set()
    assert (await world.controller()).image.topics == {}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../etc/passwd", "a/b", "a\0b", "é", "a b", "x" * 250, "\\"]
)
def test_a_name_that_is_no_directory_is_refused(name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(refused.value.message) < 2 * NAME_MAX_CHARACTERS


@pytest.mark.parametrize("name", ["a", "...", "A-b_c.9", "x" * 249])
def test_other_names_are_fine(name: str) -> None:
    check_name(name)


async def test_assignments_say_how_many_partitions_there_are(world: World) -> None:
    controller = await world.controller()
    topic = await controller.create_topic(WantedTopic(name="t", assignments=((1, (1,)), (0, (1,)))))
    assert len(topic.partitions) == 2


async def test_a_topic_is_made_once(world: World) -> None:
    controller = await world.controller()
    made = await controller.create_topic(WantedTopic(name="t"))
    assert await refusal(controller.create_topic(WantedTopic(name="t"))) is (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )
    assert await controller.ensure_topic("t") is made


async def test_many_who_need_a_topic_at_once_make_it_once(world: World) -> None:
    controller = await world.controller()
    found: list[UUID] = []

    async def ensure() -> None:
        found.append((await controller.ensure_topic("t")).topic_id)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ensure)
    assert len(found) == 10
    assert len(set(found)) == 1


async def test_checking_alone_changes_nothing(world: World) -> None:
    controller = await world.controller()
    await controller.create_topic(WantedTopic(name="t"), validate_only=True)
    assert controller.image.topics == {}
    await controller.create_topic(WantedTopic(name="t", partition_count=1))
    await controller.create_partitions("t", 2, validate_only=True)
    assert len(controller.image.topics["t"].partitions) == 1


async def test_a_topic_grows(world: World) -> None:
    controller = await world.controller()
    await controller.create_topic(WantedTopic(name="t", partition_count=1))
    await controller.create_partitions("t", 3)
    assert world.logs.present == {("t", 0), ("t", 1), ("t", 2)}
    assert len((await world.controller()).image.topics["t"].partitions) == 3
    for count in (0, 2, 3, PARTITIONS_MAX + 1):
        code = await refusal(controller.create_partitions("t", count))
        assert code is ErrorCode.INVALID_PARTITIONS
    assert await refusal(controller.create_partitions("t", 5, [(1,)])) is (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert await refusal(controller.create_partitions("t", 4, [(2,)])) is (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert await refusal(controller.create_partitions("u", 4)) is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


async def test_a_deleted_topic_is_gone_and_may_come_again_as_another(world: World) -> None:
    controller = await world.controller()
    before = await controller.create_topic(WantedTopic(name="t"))
    await controller.delete_topic("t")
    assert world.logs.present == set()
    assert controller.image.topic_by_id(before.topic_id) is None
    assert (await world.controller()).image.topics == {}
    assert await refusal(controller.delete_topic("t")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await controller.create_topic(WantedTopic(name="t"))).topic_id != before.topic_id


async def test_that_a_topic_was_deleted_is_noted_until_its_directories_are_gone(
    world: World,
) -> None:
    controller = await world.controller()
    before = await controller.create_topic(WantedTopic(name="t"))
    world.logs.can_remove = False
    await controller.delete_topic("t")
    noted, _ = await world.meta.range("/deletions/")
    assert list(noted) == [f"/deletions/{before.topic_id.hex}"]
    controller = await world.controller()
    await controller.finish_deletions()
    assert (await world.meta.range("/deletions/"))[0] == noted
    world.logs.can_remove = True
    await controller.create_topic(WantedTopic(name="t"))
    assert (await world.meta.range("/deletions/"))[0] == {}


async def test_deleting_can_be_forbidden(world: World) -> None:
    controller = await world.controller(from_properties({"delete.topic.enable": "false"}))
    await controller.create_topic(WantedTopic(name="t"))
    assert await refusal(controller.delete_topic("t")) is ErrorCode.TOPIC_DELETION_DISABLED


async def test_a_state_topic_is_made_when_needed_and_loaded_before_anyone_knows(
    world: World,
) -> None:
    config = from_properties({"transaction.state.log.num.partitions": "3"})
    controller = await world.controller(config)
    topic = await controller.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    assert topic.is_internal
    assert world.loaded == [(TRANSACTION_STATE_TOPIC, index) for index in range(3)]
    assert await controller.ensure_topic(TRANSACTION_STATE_TOPIC) is topic
    assert await refusal(controller.delete_topic(topic.name)) is ErrorCode.INVALID_REQUEST
    assert await refusal(controller.create_partitions(topic.name, 9)) is (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )


async def test_a_disk_that_cannot_make_the_logs_makes_no_topic(world: World) -> None:
    controller = await world.controller()
    world.logs.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    assert await refusal(controller.create_topic(WantedTopic(name="t"))) is (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert controller.image.topics == {}
    world.logs.failure = None
    await controller.create_topic(WantedTopic(name="t"))


async def test_a_state_topic_that_cannot_be_made_now_is_asked_for_again(world: World) -> None:
    """A full disk was KAFKA_STORAGE_ERROR, at which clients that look for a coordinator end."""
    controller = await world.controller()
    world.logs.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    assert await refusal(controller.ensure_state_topic(TRANSACTION_STATE_TOPIC)) is (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    world.logs.failure = None
    await controller.ensure_state_topic(TRANSACTION_STATE_TOPIC)


async def test_leader_epochs_stay_as_they_were_if_the_disk_is_full_at_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker did not start, and served nobody."""
    controller = await world.controller()
    await controller.create_topic(WantedTopic(name="t", partition_count=1))

    def no_room() -> None:
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
        raise error from OSError(errno.ENOSPC, "No space left on device")

    before = controller.image
    with monkeypatch.context() as full:
        full.setattr(world.meta, "before_txn", no_room)
        await controller.elect()
    assert controller.image == before
    await controller.elect()
    assert controller.image != before


async def test_all_topics_together_have_a_bounded_number_of_partitions(world: World) -> None:
    """Seen: 199,000 names in one Metadata request made as many topics, and there was no end."""
    controller = await world.controller(
        from_properties({"max.broker.partitions": "10", "num.partitions": "4"})
    )
    await controller.ensure_topic("a")
    await controller.create_topic(WantedTopic(name="b", partition_count=3))
    assert await refusal(controller.ensure_topic("c")) is ErrorCode.POLICY_VIOLATION
    assert (
        await refusal(controller.create_topic(WantedTopic(name="c"))) is ErrorCode.POLICY_VIOLATION
    )
    assert await refusal(controller.create_partitions("b", 7)) is ErrorCode.POLICY_VIOLATION
    await controller.create_partitions("b", 6)
    assert await refusal(controller.create_partitions("b", 7)) is ErrorCode.POLICY_VIOLATION
    await controller.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
    await controller.delete_topic("a")
    again = await world.controller(from_properties({"max.broker.partitions": "10"}))
    assert len((await again.ensure_topic("c")).partitions) == 4
