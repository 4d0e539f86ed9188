"""An offset belongs to the topic it was stored for, not to the next one of that name."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.offset_commit import offset_commit
from odradek.broker.api.offset_fetch import offset_fetch
from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.group.limits import GroupConfig
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, P0, TOPIC, World
from tests.fakes.state_partition import FakeStatePartitions

OLD, NEW = UUID(int=1), UUID(int=2)
NOTHING: Mapping[str, str] = {}


def context(world: World, topic_id: UUID | None) -> RequestContext:
    """A request of version 7 in a cluster whose topic has that id, or is not there."""
    image = ClusterImage(cluster_id="c", controller_id=1, brokers=())
    if topic_id is not None:
        partition = PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        image = image.with_topics(
            [TopicImage(name=TOPIC, topic_id=topic_id, configs=NOTHING, partitions=(partition,))]
        )

    async def ensure_state_topic(name: str) -> None:
        pass

    cluster = SimpleNamespace(image=image, ensure_state_topic=ensure_state_topic)
    core = SimpleNamespace(groups=world.groups, cluster=cluster, clock=world.clock)
    return RequestContext(core=cast(Core, core), api_version=7, client_id="", host="127.0.0.1")


async def commit(context: RequestContext, offset: int) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,))
    request = OffsetCommitRequest(group_id=GROUP, member_id="", topics=(topic,))
    return (await offset_commit(context, request)).topics[0].partitions[0].error_code


async def fetch(context: RequestContext, *, everything: bool = False) -> Any:
    topics = None if everything else (OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,)),)
    return (await offset_fetch(context, OffsetFetchRequest(group_id=GROUP, topics=topics))).topics


async def test_an_offset_of_a_topic_that_was_made_anew_is_not_seen(world: World) -> None:
    assert await commit(context(world, OLD), 5) == ErrorCode.NONE
    await world.crash()
    for topic_id, offset in ((OLD, 5), (NEW, -1)):
        (topic,) = await fetch(context(world, topic_id))
        assert topic.partitions[0].committed_offset == offset
    assert len(await fetch(context(world, OLD), everything=True)) == 1
    assert await fetch(context(world, NEW), everything=True) == ()


async def test_an_offset_of_a_deleted_topic_is_not_seen_before_the_next_one_is_made(
    world: World,
) -> None:
    """A consumer that asked by name took it, and used it for the topic that came then."""
    assert await commit(context(world, OLD), 5) == ErrorCode.NONE
    (topic,) = await fetch(context(world, None))
    assert topic.partitions[0].committed_offset == -1
    assert await fetch(context(world, None), everything=True) == ()


async def test_a_commit_that_began_before_the_topic_was_made_anew_replaces_no_offset(
    world: World,
) -> None:
    """It was read with the old topic's id, and written behind an offset of the new one."""
    world.shapes = context(world, NEW).core.cluster.image
    assert await commit(context(world, NEW), 7) == ErrorCode.NONE
    assert await commit(context(world, OLD), 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = await world.commit_in_transaction({P0: 5}, topic_id=OLD)
    assert codes == {P0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.stored() == {P0: 7}


async def test_an_offset_without_a_topic_id_counts_for_any(world: World) -> None:
    await world.commit({P0: 5})
    (topic,) = await fetch(context(world, NEW))
    assert topic.partitions[0].committed_offset == 5


async def test_a_topic_that_is_not_there_takes_no_offsets(world: World) -> None:
    code = await commit(context(world, None), 5)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.log.end_offset == 0


async def test_a_deletion_leaves_the_offsets_of_a_topic_that_was_made_anew(world: World) -> None:
    """A broker learns of the deletion when groups have stored offsets for the new topic."""
    assert await commit(context(world, NEW), 7) == ErrorCode.NONE
    await world.groups.forget_topic(TOPIC, OLD)
    assert world.stored() == {P0: 7}
    await world.groups.forget_topic(TOPIC, NEW)
    assert world.stored() == {}


@pytest.mark.parametrize(("topic_id", "left"), [(NEW, {P0: 7}), (OLD, {})], ids=["new", "old"])
async def test_a_deletion_leaves_an_offset_that_is_being_stored_if_it_is_of_the_new_topic(
    world: World, topic_id: UUID, left: dict[TopicPartition, int]
) -> None:
    """A tombstone for the offset before it came behind it, and removed it."""
    assert await commit(context(world, OLD), 5) == ErrorCode.NONE
    world.log.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit, context(world, topic_id), 7)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(world.groups.forget_topic, TOPIC, OLD)
        await trio.testing.wait_all_tasks_blocked()
        world.log.release()
    assert world.stored() == left


async def test_a_deletion_leaves_an_offset_of_the_new_topic_in_an_open_transaction(
    world: World,
) -> None:
    assert await commit(context(world, OLD), 5) == ErrorCode.NONE
    await world.commit_in_transaction({P0: 7}, topic_id=NEW)
    await world.groups.forget_topic(TOPIC, OLD)
    await world.end_transaction(committed=True)
    assert world.stored() == {P0: 7}


async def test_a_deletion_is_forgotten_by_the_partitions_after_one_that_refuses() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, GroupConfig(offsets_topic_num_partitions=2))
        world.partitions = FakeStatePartitions(2)
        world.groups = world._coordinator()
        await world.start()
        await world.groups.load(1)
        groups = {world.groups.partition_for(name): name for name in ("a", "b", "c", "d")}
        assert set(groups) == {0, 1}
        for group_id in groups.values():
            await world.commit({P0: 1}, group_id=group_id)
        world.log.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        with pytest.raises(KafkaError):
            await world.groups.forget_topic(TOPIC, OLD)
        assert world.stored(groups[0]) == {P0: 1}
        assert world.stored(groups[1]) == {}
        nursery.cancel_scope.cancel()
