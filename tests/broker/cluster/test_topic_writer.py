"""Topics of more partitions than a transaction of the store may have operations."""

from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.metadata import ImageBuilder
from odradek.broker.cluster.topic_writer import TopicWriter
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.fakes.meta_store import FakeMetaStore, MetaServer

HERE = PartitionImage(leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3))


class Died(BaseException):
    """The end of a broker."""


def topic(count: int, *, number: int = 1) -> TopicImage:
    return TopicImage(
        name="t",
        topic_id=UUID(int=number),
        configs={},
        partitions=(HERE,) * count,
        min_insync_replicas=2,
    )


def topics_in(store: FakeMetaStore) -> dict[str, int]:
    """Return the topics that an image of the store has, and their numbers of partitions."""
    builder = ImageBuilder()
    for key, stored in store.values.items():
        builder.put(key, stored)
    image = builder.image(None, store.revision)
    return {name: len(found.partitions) for name, found in image.topics.items()}


async def test_an_image_keeps_nothing_of_topics_that_are_gone() -> None:
    """The memory of a broker grew with each name that a topic ever had."""
    store, builder = FakeMetaStore(), ImageBuilder()
    await TopicWriter(store, 1).create(topic(2))
    made = dict(store.values)
    for key, stored in made.items():
        builder.put(key, stored)
    image = builder.image(None, store.revision)
    assert "t" in image.topics
    for key in made:
        builder.put(key, None)
    assert not builder.image(image, store.revision + 1).topics
    assert not builder._partitions
    assert not builder._unreadable


async def test_a_topic_of_ten_thousand_partitions_appears_at_once() -> None:
    """etcd refuses more than 128 operations in a transaction."""
    store = FakeMetaStore(max_operations=128)
    seen: list[dict[str, int]] = []

    def look() -> None:
        if store.txn_count % 20 == 0:
            seen.append(topics_in(store))

    store.before_txn = look
    await TopicWriter(store, 1).create(topic(10_000))
    assert seen == [{}] * len(seen)
    assert len(seen) > 3
    assert topics_in(store) == {"t": 10_000}
    await TopicWriter(store, 1).delete(topic(10_000), ())
    assert topics_in(store) == {}
    assert not [key for key in store.values if key.startswith(("/topics/", "/partitions/"))]
    assert len([key for key in store.values if key.startswith("/deletions/")]) == 3


async def test_what_a_broker_has_left_that_died_while_it_created_a_topic_is_taken_over() -> None:
    store = FakeMetaStore(max_operations=128)

    def die() -> None:
        if store.txn_count == 4:
            raise Died

    store.before_txn = die
    with pytest.raises(Died):
        await TopicWriter(store, 1).create(topic(1_000))
    assert topics_in(store) == {}
    store.before_txn = lambda: None
    await TopicWriter(store, 2).create(topic(5, number=2))
    assert topics_in(store) == {"t": 5}


@pytest.mark.parametrize("what", ["grow", "alter_configs", "delete"])
async def test_a_topic_that_is_being_deleted_is_not_changed_by_a_broker_with_an_older_image(
    what: str,
) -> None:
    """The deletion was refused in the middle, or new partitions outlived the topic."""
    server = MetaServer()
    store, other = (FakeMetaStore(server, max_operations=128) for _ in range(2))
    await TopicWriter(store, 1).create(topic(1_000))

    async def change() -> None:
        writer = TopicWriter(other, 2)
        if what == "grow":
            await writer.grow(topic(1_000), topic(1_001))
        elif what == "delete":
            await writer.delete(topic(1_000), ())
        else:
            await writer.alter_configs(topic(1_000), lambda _: {"retention.ms": "1"}, lambda _: 1)

    def stop() -> None:
        if store.txn_count == begun + 3:
            raise Died

    begun = store.txn_count
    store.before_txn = stop
    with pytest.raises(Died):
        await TopicWriter(store, 1).delete(topic(1_000), ())
    before = dict(store.values)
    with pytest.raises(KafkaError) as refused:
        await change()
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert store.values == before


async def test_of_two_brokers_that_create_a_topic_one_succeeds() -> None:
    server = MetaServer()
    first, second = FakeMetaStore(server), FakeMetaStore(server, max_operations=3)
    await TopicWriter(first, 1).create(topic(5))
    with pytest.raises(KafkaError) as refused:
        await TopicWriter(second, 2).create(topic(9, number=2))
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert topics_in(first) == {"t": 5}


async def test_a_topic_that_was_deleted_meanwhile_does_not_grow() -> None:
    store = FakeMetaStore(max_operations=128)
    writer = TopicWriter(store, 1)
    await writer.create(topic(3))
    await writer.delete(topic(3), ())
    await writer.create(topic(2, number=2))
    with pytest.raises(KafkaError) as refused:
        await writer.grow(topic(3), topic(100))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await writer.grow(topic(2, number=2), topic(100, number=2))
    assert topics_in(store) == {"t": 100}


@pytest.mark.parametrize("creator", [1, 9], ids=["with a replica", "without"])
async def test_a_deleted_topic_does_not_come_back_as_the_answer_of_its_creation_was_lost(
    creator: int, autojump_clock: trio.testing.MockClock
) -> None:
    """The creation was repeated, and there was a topic of the same id, without its records."""
    server = MetaServer()
    store, other = FakeMetaStore(server), FakeMetaStore(server)
    store.loses_answer = lambda: "t" in topics_in(store)

    async def create() -> None:
        with pytest.raises(KafkaError) as refused:
            await TopicWriter(store, creator).create(topic(1))
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        while "t" not in topics_in(store):  # noqa: ASYNC110
            await trio.sleep(0.001)
        await TopicWriter(other, 2).delete(topic(1), (1, 2, 3, 9))
    assert topics_in(store) == {}
