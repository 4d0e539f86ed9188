"""Making, growing and removing topics, through the metadata store, and starting again."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.new_topic import (
    NAME_MAX_CHARACTERS,
    PARTITIONS_MAX,
    WantedTopic,
    check_name,
)
from odradek.broker.cluster.store import (
    broker_key,
    pack_broker,
    pack_partition,
    partition_key,
    read_partition,
)
from odradek.broker.cluster.topic_writer import TopicWriter
from odradek.broker.cluster.topics import ClusterTopics
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.live import LiveConfig
from odradek.broker.environment.env import StoreUnreachable
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.broker.cluster.members import HERE, member, metadata_of
from tests.broker.config.configured import from_properties
from tests.fakes.meta_store import FakeMetaStore


class Logs:
    """Remembers which logs there are; may fail."""

    def __init__(self) -> None:
        self.present: set[tuple[str, int]] = set()
        self.failure: KafkaError | None = None
        self.can_remove = True
        self.changing = trio.Lock()

    def here(self, topic: TopicImage, indexes: Iterable[int] | None = None) -> list[int]:
        return list(range(len(topic.partitions)) if indexes is None else indexes)

    def has_any(self, name: str, indexes: Iterable[int]) -> bool:
        return any((name, index) in self.present for index in indexes)

    async def create(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        assert not self.has_any(topic.name, indexes)
        self.present |= {(topic.name, index) for index in indexes}

    async def delete(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        await trio.lowlevel.checkpoint()
        self.present -= {(topic.name, index) for index in indexes}

    async def remove_deleted(self, name: str, topic_id: UUID) -> bool:
        await trio.lowlevel.checkpoint()
        return self.can_remove


class World:
    """A store that outlives brokers."""

    def __init__(self) -> None:
        self.meta = FakeMetaStore()
        self.logs = Logs()

    async def topics(
        self, config: BrokerConfig | None = None, here: BrokerImage = HERE
    ) -> ClusterTopics:
        """Return the topics as a broker has them that has just been started."""
        rng = random.Random(1)
        metadata = await metadata_of(self.meta, rng)
        metadata.apply = self._apply
        session, _ = member(self.meta, metadata, lead_anyway=trio.lowlevel.checkpoint)
        await session.register(here)
        return ClusterTopics(
            metadata=metadata,
            writer=TopicWriter(self.meta, HERE.node_id),
            settings=LiveConfig(config or BrokerConfig()),
            rng=rng,
            logs=self.logs,
        )

    async def _apply(self, old: ClusterImage, new: ClusterImage) -> None:
        for name, topic in old.topics.items():
            if name not in new.topics:
                await self.logs.delete(topic, range(len(topic.partitions)))


@pytest.fixture
def world() -> World:
    return World()


async def refusal(awaitable: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await awaitable  # type: ignore[misc]
    assert refused.value.message
    return refused.value.code


async def test_ids_are_kept_by_tag_if_every_broker_knew_that_when_their_topic_was_made(
    world: World,
) -> None:
    newer = replace(HERE, has_transaction_groups=True)
    topics = await world.topics(here=newer)
    assert topics.image.has_transaction_groups
    made = await topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    assert made.is_by_tag
    assert not (await topics.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)).is_by_tag
    older = await world.topics()
    assert older.image.topics[TRANSACTION_STATE_TOPIC] == made
    assert not older.image.has_transaction_groups, "one of the brokers would not serve them"


async def test_a_state_topic_of_an_older_version_keeps_hashing_whole_ids(world: World) -> None:
    topics = await world.topics()
    assert not (await topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)).is_by_tag
    topics = await world.topics(here=replace(HERE, has_transaction_groups=True))
    assert not (await topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)).is_by_tag
    assert not topics.image.has_transaction_groups


async def test_a_topic_is_there_after_a_restart_with_the_same_id(world: World) -> None:
    topics = await world.topics()
    made = await topics.create_topic(
        WantedTopic(name="t", partition_count=3, configs=(("retention.ms", "5"),))
    )
    assert world.logs.present == {("t", 0), ("t", 1), ("t", 2)}
    again = await world.topics()
    assert again.image.topics == topics.image.topics
    assert again.image.topics["t"] == made
    assert again.image.topic_by_id(made.topic_id) == made
    assert made.configs == {"retention.ms": "5"}


async def test_the_cluster_keeps_its_id(world: World) -> None:
    first, second = await world.topics(), await world.topics()
    assert first.image.cluster_id == second.image.cluster_id
    assert len(first.image.cluster_id) == 22


async def test_defaults_are_the_brokers(world: World) -> None:
    topics = await world.topics(from_properties({"num.partitions": "6"}))
    assert len((await topics.create_topic(WantedTopic(name="t"))).partitions) == 6
    assert len((await topics.ensure_topic("u")).partitions) == 6


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
    topics = await world.topics()
    assert await refusal(topics.create_topic(wanted)) is code
    assert world.logs.present == set()
    assert (await world.topics()).image.topics == {}


async def test_a_topic_is_not_refused_for_a_broker_that_the_image_does_not_show_yet(
    world: World,
) -> None:
    """Brokers that had just started refused topics for good, as they had not seen each other."""
    topics = await world.topics()
    other = replace(HERE, node_id=2)
    world.meta.put({broker_key(2): pack_broker(other, "another directory")})
    made = await topics.create_topic(
        WantedTopic(name="t", partition_count=1, replication_factor=2), validate_only=True
    )
    assert sorted(made.partitions[0].replicas) == [1, 2]
    third = replace(HERE, node_id=3)
    world.meta.put({broker_key(3): pack_broker(third, "a third directory")})
    await topics.create_topic(WantedTopic(name="t", assignments=((0, (3,)),)))
    fourth = replace(HERE, node_id=4)
    world.meta.put({broker_key(4): pack_broker(fourth, "a fourth directory")})
    await topics.create_partitions("t", 2, [(4,)])
    assert topics.image.topics["t"].partitions[1].leader == 4


async def test_a_topic_is_not_taken_for_there_or_gone_by_an_image_that_is_older_than_the_request(
    world: World,
) -> None:
    """A client that had changed it at another broker got an error that it does not repeat."""
    topics, elsewhere = await world.topics(), await world.topics()
    await elsewhere.create_topic(WantedTopic(name="t", partition_count=1))
    assert "t" not in topics.image.topics
    await topics.create_partitions("t", 2)
    await elsewhere.create_topic(WantedTopic(name="u", partition_count=1))
    await topics.delete_topic("u")
    assert "u" in elsewhere.image.topics
    await elsewhere.create_topic(WantedTopic(name="u", partition_count=1))


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
    topics = await world.topics()
    topic = await topics.create_topic(WantedTopic(name="t", assignments=((1, (1,)), (0, (1,)))))
    assert len(topic.partitions) == 2


async def test_a_topic_is_made_once(world: World) -> None:
    topics = await world.topics()
    made = await topics.create_topic(WantedTopic(name="t"))
    assert await refusal(topics.create_topic(WantedTopic(name="t"))) is (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )
    assert await topics.ensure_topic("t") is made


async def test_many_who_need_a_topic_at_once_make_it_once(world: World) -> None:
    topics = await world.topics()
    found: list[UUID] = []

    async def ensure() -> None:
        found.append((await topics.ensure_topic("t")).topic_id)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ensure)
    assert len(found) == 10
    assert len(set(found)) == 1


async def test_checking_alone_changes_nothing(world: World) -> None:
    topics = await world.topics()
    await topics.create_topic(WantedTopic(name="t"), validate_only=True)
    assert topics.image.topics == {}
    await topics.create_topic(WantedTopic(name="t", partition_count=1))
    await topics.create_partitions("t", 2, validate_only=True)
    assert len(topics.image.topics["t"].partitions) == 1


async def test_a_topic_grows(world: World) -> None:
    topics = await world.topics()
    await topics.create_topic(WantedTopic(name="t", partition_count=1))
    await topics.create_partitions("t", 3)
    assert world.logs.present == {("t", 0), ("t", 1), ("t", 2)}
    assert len((await world.topics()).image.topics["t"].partitions) == 3
    for count in (0, 2, 3, PARTITIONS_MAX + 1):
        code = await refusal(topics.create_partitions("t", count))
        assert code is ErrorCode.INVALID_PARTITIONS
    assert await refusal(topics.create_partitions("t", 5, [(1,)])) is (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert await refusal(topics.create_partitions("t", 4, [(2,)])) is (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert await refusal(topics.create_partitions("u", 4)) is (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_what_a_topic_has_grown_by_keeps_its_logs_when_the_store_goes_away(
    world: World,
) -> None:
    """It takes several transactions of etcd. A failure of the second removed all new logs."""
    world.meta.max_operations = 4
    topics = await world.topics()
    await topics.create_topic(WantedTopic(name="t", partition_count=1))
    before = world.meta.txn_count

    def go_away() -> None:
        if world.meta.txn_count > before:
            raise StoreUnreachable("nobody listens there")

    world.meta.before_txn = go_away
    with pytest.raises(StoreUnreachable):
        await topics.create_partitions("t", 9)
    world.meta.before_txn = lambda: None
    grown = (await world.topics()).image.topics["t"]
    assert len(grown.partitions) == 4
    assert world.logs.present == {("t", index) for index in range(4)}
    await topics.create_partitions("t", 9)
    assert world.logs.present == {("t", index) for index in range(9)}


async def test_a_deleted_topic_is_gone_and_may_come_again_as_another(world: World) -> None:
    topics = await world.topics()
    before = await topics.create_topic(WantedTopic(name="t"))
    await topics.delete_topic("t")
    assert world.logs.present == set()
    assert topics.image.topic_by_id(before.topic_id) is None
    assert (await world.topics()).image.topics == {}
    assert await refusal(topics.delete_topic("t")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await topics.create_topic(WantedTopic(name="t"))).topic_id != before.topic_id


async def test_that_a_topic_was_deleted_is_noted_until_its_directories_are_gone(
    world: World,
) -> None:
    topics = await world.topics()
    before = await topics.create_topic(WantedTopic(name="t"))
    world.logs.can_remove = False
    await topics.delete_topic("t")
    noted, _ = await world.meta.range("/deletions/")
    assert list(noted) == [f"/deletions/{before.topic_id.hex}/{HERE.node_id}"]
    topics = await world.topics()
    await TopicWriter(world.meta, HERE.node_id).finish_deletions(world.logs)
    assert (await world.meta.range("/deletions/"))[0] == noted
    world.logs.can_remove = True
    await topics.create_topic(WantedTopic(name="t"))
    assert (await world.meta.range("/deletions/"))[0] == {}


async def test_a_topic_that_another_broker_deletes_leaves_no_note_of_this_one(
    world: World,
) -> None:
    """The notes stayed until the next start, and each creation of a topic read all of them."""
    other = HERE.node_id + 10
    topics = await world.topics()
    made = await topics.create_topic(WantedTopic(name="t"))

    async def notes() -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        found, _ = await world.meta.range("/deletions/")
        return sorted(key.rpartition("/")[2] for key in found)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(topics.finish_deletions)
        await trio.testing.wait_all_tasks_blocked()
        async with topics._one_change():  # a creation may need the note
            await TopicWriter(world.meta, other).delete(made, [HERE.node_id, other])
            await topics._metadata.wait_reached(await topics._writer.revision_of("t"))
            assert await notes() == [str(HERE.node_id), str(other)]
        assert await notes() == [str(other)]
        nursery.cancel_scope.cancel()


async def test_deleting_can_be_forbidden(world: World) -> None:
    topics = await world.topics(from_properties({"delete.topic.enable": "false"}))
    await topics.create_topic(WantedTopic(name="t"))
    assert await refusal(topics.delete_topic("t")) is ErrorCode.TOPIC_DELETION_DISABLED


async def test_a_state_topic_is_made_when_needed(world: World) -> None:
    config = from_properties({"transaction.state.log.num.partitions": "3"})
    topics = await world.topics(config)
    topic = await topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    assert topic.is_internal
    assert len(topic.partitions) == 3
    assert await topics.ensure_topic(TRANSACTION_STATE_TOPIC) is topic
    assert await refusal(topics.delete_topic(topic.name)) is ErrorCode.INVALID_REQUEST
    assert await refusal(topics.create_partitions(topic.name, 9)) is (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )


async def test_a_topic_that_is_marked_as_internal_is_one_for_clients_only(world: World) -> None:
    config = from_properties({"max.broker.partitions": "3"})
    topics = await world.topics(config)
    marked = WantedTopic(name="t", partition_count=1, configs=(("odradek.internal", " TRUE "),))
    await topics.create_topic(marked)
    await topics.create_topic(
        WantedTopic(name="u", partition_count=1, configs=(("odradek.internal", "false"),))
    )
    again = await world.topics(config)
    assert [topic.is_internal for topic in again.image.topics.values()] == [True, False]
    assert not again.image.topics["t"].is_state_topic
    assert await refusal(again.create_partitions("t", 3)) is ErrorCode.POLICY_VIOLATION
    await again.create_partitions("t", 2)
    await again.delete_topic("t")
    assert list(again.image.topics) == ["u"]


async def test_a_disk_that_cannot_make_the_logs_makes_no_topic(world: World) -> None:
    topics = await world.topics()
    world.logs.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    assert await refusal(topics.create_topic(WantedTopic(name="t"))) is (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert topics.image.topics == {}
    world.logs.failure = None
    await topics.create_topic(WantedTopic(name="t"))


async def test_a_state_topic_that_cannot_be_made_now_is_asked_for_again(world: World) -> None:
    """A full disk was KAFKA_STORAGE_ERROR, at which clients that look for a coordinator end."""
    topics = await world.topics()
    world.logs.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    assert await refusal(topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)) is (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    world.logs.failure = None
    await topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)


@pytest.mark.parametrize("has_logs", [False, True], ids=["seen-late", "logs-first"])
async def test_a_topic_that_another_broker_was_quicker_to_make_is_found(
    world: World, has_logs: bool
) -> None:
    """A broker makes its logs of another broker's topic before its image shows that topic."""
    topics = await world.topics()
    quicker = TopicImage(
        name=TRANSACTION_STATE_TOPIC,
        topic_id=UUID(int=2),
        configs={},
        partitions=(PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,)),),
    )
    await TopicWriter(world.meta, 2).create(quicker)
    if has_logs:
        await world.logs.create(quicker, [0])
    before = set(world.logs.present)
    assert TRANSACTION_STATE_TOPIC not in topics.image.topics
    found = await topics.ensure_state_topic(TRANSACTION_STATE_TOPIC)
    assert found.topic_id == quicker.topic_id
    assert world.logs.present == before


@pytest.mark.slow
@pytest.mark.parametrize("grows", [False, True], ids=["new", "more"])
async def test_a_topic_is_made_although_its_answer_is_lost_and_its_in_sync_set_changes(
    world: World, grows: bool
) -> None:
    """Seen: the broker took its own topic for another one, and removed an in-sync replica."""
    topics = await world.topics()
    if grows:
        await topics.create_topic(WantedTopic(name="t", partition_count=1))
    key = partition_key("t", 1)
    has_changed = False

    def change() -> bool:
        nonlocal has_changed
        stored = world.meta.values.get(key)
        if has_changed or stored is None:
            return False
        changed = replace(read_partition(key, stored), leader_epoch=7)
        world.meta.put({key: pack_partition(changed)})
        has_changed = True
        return True

    world.meta.loses_answer = change
    if grows:
        await topics.create_partitions("t", 2)
    else:
        await topics.create_topic(WantedTopic(name="t", partition_count=2))
    assert has_changed
    assert world.logs.present == {("t", 0), ("t", 1)}
    assert topics.image.topics["t"].partitions[1].leader_epoch == 7


async def test_all_topics_together_have_a_bounded_number_of_partitions(world: World) -> None:
    """Seen: 199,000 names in one Metadata request made as many topics, and there was no end."""
    topics = await world.topics(
        from_properties({"max.broker.partitions": "10", "num.partitions": "4"})
    )
    await topics.ensure_topic("a")
    await topics.create_topic(WantedTopic(name="b", partition_count=3))
    assert await refusal(topics.ensure_topic("c")) is ErrorCode.POLICY_VIOLATION
    assert await refusal(topics.create_topic(WantedTopic(name="c"))) is ErrorCode.POLICY_VIOLATION
    assert await refusal(topics.create_partitions("b", 7)) is ErrorCode.POLICY_VIOLATION
    await topics.create_partitions("b", 6)
    assert await refusal(topics.create_partitions("b", 7)) is ErrorCode.POLICY_VIOLATION
    await topics.ensure_state_topic(CONSUMER_OFFSETS_TOPIC)
    await topics.delete_topic("a")
    again = await world.topics(from_properties({"max.broker.partitions": "10"}))
    assert len((await again.ensure_topic("c")).partitions) == 4
