"""The partitions that are led here one by one, with the names of kafka_exporter."""

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.values.topic_partition import TopicPartition

PREFIX = "kafka_topic_partition_"
STEPS = 6


async def add_topic_partitions(families: Families, inside: Inside, turns: Turns) -> None:
    """Add series of each partition, with `metrics.partitions=true`."""
    core = inside.core
    if not core.config.metrics_partitions:
        return
    for name, topic in inside.metadata.image.topics.items():
        for index, image in enumerate(topic.partitions):
            found = core.partitions.find(TopicPartition(name, index))
            if found is None or found.leading is None:
                await turns.take()
                continue
            await turns.take(STEPS)
            in_sync, replicas = len(image.isr), len(image.replicas)
            for end, about, value in (
                ("current_offset", "The high watermark.", found.high_watermark),
                ("oldest_offset", "The first offset.", found.log_start_offset),
                ("leader", "The broker that leads the partition.", image.leader),
                ("replicas", "Replicas.", replicas),
                ("in_sync_replica", "Replicas that are in sync.", in_sync),
                ("under_replicated_partition", "1 if some are not.", int(in_sync < replicas)),
            ):
                labels = {"topic": name, "partition": str(index)}
                families.gauge(f"{PREFIX}{end}", about, value, **labels)
