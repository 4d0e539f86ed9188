"""Damaged replicas, where the topic of their name is another one by now."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.broker.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.broker.cluster.store import partition_key, topic_puts
from odradek.broker.environment.env import Compare
from odradek.broker.replication.damaged import DamagedReplicas
from odradek.broker.values.topic_partition import TopicPartition
from tests.fakes.meta_store import FakeMetaStore, MetaServer

ONE, OTHER = UUID(int=1), UUID(int=2)
WHERE = TopicPartition("refunds", 0)
PARTITION = PartitionImage(leader=2, leader_epoch=0, replicas=(1, 2), isr=(1, 2), epoch=1)
TOPIC = TopicImage(name="refunds", topic_id=OTHER, configs={}, partitions=(PARTITION,))
IMAGE = ClusterImage(
    cluster_id="c",
    brokers=tuple(BrokerImage(node_id=node, host="h", port=node, epoch=1) for node in (1, 2)),
).with_topics([TOPIC])

GUARD = Compare(key="no session ends", mod_revision=0)


def replicas_of(
    server: MetaServer, image: ClusterImage, damaged: UUID, begun: list[TopicPartition]
) -> DamagedReplicas:
    """Return the damaged replicas of broker 1: one, of the topic with the id `damaged`."""

    async def reached(revision: int) -> None:
        pass

    async def begin_anew(where: TopicPartition) -> None:
        begun.append(where)

    return DamagedReplicas(
        store=FakeMetaStore(server),
        metadata=cast(Any, SimpleNamespace(image=image, wait_reached=reached)),
        session=cast(Any, SimpleNamespace(guard=GUARD)),
        partitions=cast(Any, SimpleNamespace(topic_id_of=lambda where: damaged)),
        node_id=1,
        begin_anew=begin_anew,
    )


@pytest.mark.parametrize(("damaged", "leaves"), [(ONE, False), (OTHER, True)])
async def test_a_damaged_log_of_the_topic_before_takes_no_replica_out_of_the_new_one(
    damaged: UUID, leaves: bool
) -> None:
    server = MetaServer()
    server.keys.apply(topic_puts(TOPIC))
    key = partition_key(*WHERE)
    before = server.keys.values[key]
    begun: list[TopicPartition] = []
    await replicas_of(server, IMAGE, damaged, begun)._replace(WHERE)
    assert (server.keys.values[key] != before) is leaves
    assert begun == []


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_replica_that_the_leader_has_taken_back_does_not_begin_anew(is_late: bool) -> None:
    """An image that is late does not show it: the replica counted, and began with an empty log."""
    left = replace(PARTITION, isr=(2,))
    server = MetaServer()
    server.keys.apply(topic_puts(replace(TOPIC, partitions=(left,))))
    shown = replace(left, epoch=server.keys.values[partition_key(*WHERE)].mod_revision)
    image = IMAGE.with_topics([replace(TOPIC, partitions=(shown,))])
    if is_late:
        server.keys.apply(topic_puts(TOPIC))
    begun: list[TopicPartition] = []
    await replicas_of(server, image, OTHER, begun)._replace(WHERE)
    assert begun == ([] if is_late else [WHERE])
