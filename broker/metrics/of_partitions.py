"""The logs of this broker, by topic, and by partition with `metrics.partitions=true`."""

from collections import Counter, defaultdict

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.unopened import OfflineCause

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
    offline = Counter[OfflineCause]()
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
        if log.producers.open_count:
            late += _has_late_transaction(partition, now_ms - late_ms)
        if log.failure is not None and _is_replica(inside, partition.topic, partition.index):
            offline[OfflineCause.DAMAGED if log.is_damaged else OfflineCause.DISK] += 1
        if has_series:
            _add_one(families, partition)
    if not has_series:
        for topic, size in sizes.items():
            await turns.take(STEPS)
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
    for where in {*core.partitions.unopened, *core.partitions.run_notes.missing}:
        await turns.take()
        if core.partitions.find(where) is None and _is_replica(inside, *where):
            offline[core.partitions.unopened.cause_of(where) or OfflineCause.MISSING] += 1
    for cause in OfflineCause:
        families.gauge(
            "odradek_partitions_offline",
            "Logs that cannot be used.",
            offline[cause],
            cause=cause.value,
        )


def _is_replica(inside: Inside, topic: str, index: int) -> bool:
    """Return True if the cluster has a replica of the partition on this broker."""
    found = inside.metadata.image.partition(topic, index)
    return found is not None and inside.core.settings.now.node_id in found.replicas


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
