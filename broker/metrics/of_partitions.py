"""The logs of this broker, by topic, and by partition with `metrics.partitions=true`."""

from collections import Counter, defaultdict

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.partitions.unopened import OfflineCause
from odradek.broker.values.topic_partition import TopicPartition

STEPS = 5
SIZE = "kafka_log_log_size"
SEGMENTS = "kafka_log_log_numlogsegments"


async def add_partitions(families: Families, inside: Inside, turns: Turns) -> None:
    """Add sizes, offsets and what holds readers back."""
    core = inside.core
    has_series = core.config.metrics_partitions
    sizes: dict[str, int] = defaultdict(int)
    segments: dict[str, int] = defaultdict(int)
    held: dict[str, int] = defaultdict(int)
    late = producers = 0
    now_ms = core.clock.wall_ms()
    late_ms = core.config.transaction_max_timeout_ms
    for partition in core.partitions.all():
        await turns.take(STEPS)
        log, topic = partition.log, partition.topic
        sizes[topic] += log.size_bytes
        segments[topic] += len(log.segments)
        held[topic] += partition.high_watermark - partition.last_stable_offset
        producers += len(log.producers.entries)
        late += _has_late_transaction(partition, now_ms - late_ms)
        if has_series:
            _add_one(families, partition)
    if not has_series:
        for topic, size in sizes.items():
            families.gauge(SIZE, "Bytes of the logs.", size, topic=topic)
            families.gauge(SEGMENTS, "Segments of the logs.", segments[topic], topic=topic)
            families.gauge(
                "kafka_cluster_partition_laststableoffsetlag",
                "Offsets from the last stable offset to the high watermark.",
                held[topic],
                topic=topic,
            )
    families.gauge(
        "kafka_server_replicamanager_producerid_count", "Producers that logs know.", producers
    )
    families.gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Logs with an open transaction not written to for transaction.max.timeout.ms.",
        late,
    )
    offline = await _offline(inside, turns)
    for cause in OfflineCause:
        families.gauge(
            "odradek_partitions_offline",
            "Logs that cannot be used.",
            offline[cause],
            cause=cause.value,
        )


async def _offline(inside: Inside, turns: Turns) -> Counter[OfflineCause]:
    """Count the replicas of this broker whose logs cannot be used."""
    core = inside.core
    node_id, found = core.settings.now.node_id, Counter[OfflineCause]()
    for topic in inside.metadata.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            await turns.take()
            if node_id not in partition.replicas:
                continue
            if core.partitions.is_offline(topic.name, index):
                found[_cause_of(core.partitions, TopicPartition(topic.name, index))] += 1
    return found


def _cause_of(partitions: Partitions, where: TopicPartition) -> OfflineCause:
    """Return why a partition is offline."""
    opened = partitions.find(where)
    if opened is None:
        return partitions.unopened.cause_of(where) or OfflineCause.MISSING
    return OfflineCause.DAMAGED if opened.log.is_damaged else OfflineCause.DISK


def _has_late_transaction(partition: Partition, before_ms: int) -> bool:
    """Return True if nothing was written since then in a transaction that is open."""
    return any(each.updated_ms < before_ms for each in partition.open_transactions())


def _add_one(families: Families, partition: Partition) -> None:
    log = partition.log
    held = partition.high_watermark - partition.last_stable_offset
    for name, about, value in (
        (SIZE, "Bytes of the log.", log.size_bytes),
        (SEGMENTS, "Segments of the log.", len(log.segments)),
        ("kafka_log_log_logstartoffset", "The first offset.", partition.log_start_offset),
        ("kafka_log_log_logendoffset", "The next offset.", partition.log_end_offset),
        (
            "kafka_cluster_partition_laststableoffsetlag",
            "Offsets from the last stable offset to the high watermark.",
            held,
        ),
    ):
        labels = {"topic": partition.topic, "partition": str(partition.index)}
        families.gauge(name, about, value, **labels)
