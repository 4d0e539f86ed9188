"""An offset belongs to the topic it was stored for, not to the next one of that name."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.group_offsets import offset_commit, offset_fetch
from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.group.world import GROUP, P0, TOPIC, World

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
    core = SimpleNamespace(groups=world.groups, cluster=cluster)
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
    for topic_id, offset in ((OLD, 5), (NEW, -1), (None, 5)):
        (topic,) = await fetch(context(world, topic_id))
        assert topic.partitions[0].committed_offset == offset
    assert len(await fetch(context(world, OLD), everything=True)) == 1
    assert await fetch(context(world, NEW), everything=True) == ()


async def test_an_offset_without_a_topic_id_counts_for_any(world: World) -> None:
    await world.commit({P0: 5})
    (topic,) = await fetch(context(world, NEW))
    assert topic.partitions[0].committed_offset == 5


async def test_a_topic_that_is_not_there_takes_no_offsets(world: World) -> None:
    code = await commit(context(world, None), 5)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.log.end_offset == 0
