"""The lag of partitions that the coordinator of a group has no replica of."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.environment.turns import Turns
from odradek.broker.group.store import StoredOffset
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.of_lags import UNKNOWN, add_lags
from odradek.broker.metrics.readable_ends import ReadableEnds
from odradek.broker.values.topic_partition import TopicPartition
from tests.broker.metrics.scraping import scraped
from tests.broker.storage.samples import TOPIC, TOPIC_ID, Machine, batch

GROUP = "refunds"


def stored(offset: int, topic_id: UUID = TOPIC_ID) -> StoredOffset:
    return StoredOffset(
        offset=offset, leader_epoch=0, metadata="", commit_timestamp_ms=0, topic_id=topic_id
    )


async def test_partitions_without_a_replica_are_counted_and_those_of_deleted_topics_are_not() -> (
    None
):
    """A sum of some partitions looked like that of all."""
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("a", "b", "c"))
    await partition.flush()
    elsewhere = PartitionImage(leader=2, leader_epoch=0, replicas=(2,), isr=(2,))
    topic = TopicImage(name=TOPIC, topic_id=TOPIC_ID, configs={}, partitions=(elsewhere,) * 3)
    offsets = [
        (TopicPartition(TOPIC, 0), stored(1)),
        (TopicPartition(TOPIC, 1), stored(1)),
        (TopicPartition(TOPIC, 2), stored(1, UUID(int=99))),
        (TopicPartition("gone", 0), stored(1)),
    ]
    inside: Any = SimpleNamespace(
        core=SimpleNamespace(
            clock=machine.clock,
            config=SimpleNamespace(metrics_partitions=False),
            groups=SimpleNamespace(offsets_of_all=lambda: [(GROUP, 1, offsets)], rebalances={}),
            partitions=machine.partitions,
        ),
        metadata=SimpleNamespace(image=ClusterImage(cluster_id="").with_topics([topic])),
        probes=SimpleNamespace(ends=ReadableEnds()),
    )
    families = Families()
    await add_lags(families, inside, Turns())
    scrape = scraped(families)
    for name, value in ((UNKNOWN, 1), ("kafka_consumergroup_lag_sum", 2)):
        assert len(scrape.values(name)) == 1
        assert scrape.value(name, consumergroup=GROUP, topic=TOPIC) == value
