"""Damaged replicas, where the topic of their name is another one by now."""

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


@pytest.mark.parametrize(("damaged", "leaves"), [(ONE, False), (OTHER, True)])
async def test_a_damaged_log_of_the_topic_before_takes_no_replica_out_of_the_new_one(
    damaged: UUID, leaves: bool
) -> None:
    server = MetaServer()
    server.keys.apply(topic_puts(TOPIC))
    key = partition_key(*WHERE)
    before = server.keys.values[key]

    async def reached(revision: int) -> None:
        pass

    replicas = DamagedReplicas(
        store=FakeMetaStore(server),
        metadata=cast(Any, SimpleNamespace(image=IMAGE, wait_reached=reached)),
        session=cast(Any, SimpleNamespace(guard=Compare(key=key, mod_revision=1))),
        partitions=cast(Any, SimpleNamespace(topic_id_of=lambda where: damaged)),
        node_id=1,
        begin_anew=cast(Any, None),
    )
    await replicas._replace(WHERE)
    assert (server.keys.values[key] != before) is leaves
