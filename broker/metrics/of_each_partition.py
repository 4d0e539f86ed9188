"""The series of each partition by itself, with `metrics.partitions=true`.

Those of the replicas of this broker have the names of Kafka, those of the partitions that it leads
the names of kafka_exporter.
"""

from typing import Final

from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.partitions.partition import Partition

LOG: Final = "kafka_log_log_"
TOPIC_PARTITION: Final = "kafka_topic_partition_"


class EachPartition:
    """The families that have a sample for each partition."""

    def __init__(self, families: Families, inside: Inside) -> None:
        self._image = inside.metadata.image
        gauge = families.gauge
        self._size = gauge(f"{LOG}size", "Bytes of the log.")
        self._segments = gauge(f"{LOG}numlogsegments", "Segments of the log.")
        self._start = gauge(f"{LOG}logstartoffset", "The first offset.")
        self._end = gauge(f"{LOG}logendoffset", "The next offset.")
        self._held = gauge(
            "kafka_cluster_partition_laststableoffsetlag",
            "Offsets from the last stable offset to the high watermark.",
        )
        led = TOPIC_PARTITION
        self._current = gauge(f"{led}current_offset", "The high watermark.")
        self._oldest = gauge(f"{led}oldest_offset", "The first offset.")
        self._leader = gauge(f"{led}leader", "The broker that leads the partition.")
        self._replicas = gauge(f"{led}replicas", "Replicas.")
        self._in_sync = gauge(f"{led}in_sync_replica", "Replicas that are in sync.")
        self._under = gauge(f"{led}under_replicated_partition", "1 if some are not.")

    def add(self, partition: Partition) -> None:
        """Add the samples of a partition."""
        log, high_watermark = partition.log, partition.high_watermark
        labels = {"topic": partition.topic, "partition": str(partition.index)}
        self._size.add(labels, log.size_bytes)
        self._segments.add(labels, len(log.segments))
        self._start.add(labels, log.log_start_offset)
        self._end.add(labels, log.log_end_offset)
        self._held.add(labels, high_watermark - partition.last_stable_offset)
        image = self._image.partition(partition.topic, partition.index)
        if partition.leading is None or image is None:
            return
        in_sync, replicas = len(image.isr), len(image.replicas)
        self._current.add(labels, high_watermark)
        self._oldest.add(labels, log.log_start_offset)
        self._leader.add(labels, image.leader)
        self._replicas.add(labels, replicas)
        self._in_sync.add(labels, in_sync)
        self._under.add(labels, int(in_sync < replicas))
