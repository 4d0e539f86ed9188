"""The partitions of decided transactions, as the metadata store and the image show them."""

from typing import cast
from uuid import UUID

import pytest

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.cluster.store import pack_topic, topic_key, topic_puts
from odradek.broker.membership.peers import Peers
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.schema import ZERO_UUID
from tests.fakes.meta_store import FakeMetaStore, MetaServer

ONE, OTHER = UUID(int=1), UUID(int=2)
PARTITION = PartitionImage(leader=3, leader_epoch=0, replicas=(3,), isr=(3,))


def topic(topic_id: UUID, partitions: int) -> TopicImage:
    return TopicImage(
        name="refunds", topic_id=topic_id, configs={}, partitions=(PARTITION,) * partitions
    )


def peers_of(stored: TopicImage | None, shown: TopicImage | None = None) -> Peers:
    """Return what a broker knows of others. Its image shows `shown`, the store has `stored`."""
    server = MetaServer()
    if stored is not None:
        server.keys.apply(topic_puts(stored))
    image = ClusterImage(cluster_id="c").with_topics([] if shown is None else [shown])
    return Peers(
        node_id=3,
        image=lambda: image,
        coordinator_partition_for=lambda _id: 0,
        network=cast(PeerNetwork, None),
        store=FakeMetaStore(server),
    )


@pytest.mark.parametrize(
    ("stored", "is_gone"),
    [
        (None, True),
        (topic(ONE, 2), False),
        (topic(OTHER, 2), True),
        (topic(OTHER, 1), True),
    ],
)
async def test_a_partition_is_gone_when_another_topic_has_its_name(
    stored: TopicImage | None, is_gone: bool
) -> None:
    assert await peers_of(stored).is_gone(TopicIdPartition.of("refunds", 1, ONE)) is is_gone


@pytest.mark.parametrize(("partitions", "is_gone"), [(1, True), (2, False)])
async def test_a_partition_whose_topic_id_is_not_known_is_gone_when_the_topic_has_no_such(
    partitions: int, is_gone: bool
) -> None:
    """An earlier version of the broker wrote no ids."""
    peers = peers_of(topic(OTHER, partitions))
    assert await peers.is_gone(TopicIdPartition.of("refunds", 1, ZERO_UUID)) is is_gone


async def test_a_partition_is_not_gone_while_its_topic_is_being_written() -> None:
    peers = peers_of(None)
    unfinished = pack_topic(topic(ONE, 2), is_finished=False)
    cast(FakeMetaStore, peers._store).server.keys.apply({topic_key("refunds"): unfinished})
    assert not await peers.is_gone(TopicIdPartition.of("refunds", 1, ONE))


def test_another_topic_of_the_name_leads_no_partition_of_the_one_before() -> None:
    peers = peers_of(None, shown=topic(OTHER, 2))
    assert peers.leader_of(TopicIdPartition.of("refunds", 1, OTHER)) == 3
    assert peers.leader_of(TopicIdPartition.of("refunds", 1, ZERO_UUID)) == 3
    assert peers.leader_of(TopicIdPartition.of("refunds", 1, ONE)) is None
    assert peers.leader_of(TopicIdPartition.of("refunds", 2, OTHER)) is None
