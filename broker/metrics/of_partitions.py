"""The logs of this broker, by topic, and by partition with `metrics.partitions=true`.

There may be many, so one pass over them finds all that the page needs of them.
"""

from collections import Counter, defaultdict
from typing import Final

from odradek.broker.environment.turns import Turns, in_parts
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.metrics.of_each_partition import EachPartition
from odradek.broker.metrics.of_hanging import LateTransaction, add_hanging
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.unopened import OfflineCause

AT_ONCE: Final = 50
STEPS_OF_SERIES: Final = 3
"""What the series of a partition take, beyond the one step for the partition."""


class Logs:
    """The results of one pass over the logs."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        core = inside.core
        self._late_ms = core.clock.wall_ms() - core.config.transaction_max_timeout_ms
        self.size_bytes: dict[str, int] = defaultdict(int)
        """By topic, as the next two."""
        self.segments: dict[str, int] = defaultdict(int)
        self.held: dict[str, int] = defaultdict(int)
        self.offline = Counter[OfflineCause]()
        self.producers = 0
        self.late: list[LateTransaction] = []

    def note(self, partition: Partition) -> None:
        """Count one log."""
        log, marks, topic = partition.log, partition.marks, partition.topic
        self.size_bytes[topic] += log.size_bytes
        self.segments[topic] += len(log.segments)
        self.held[topic] += marks.high_watermark - marks.last_stable_offset
        if log.failure is not None and _is_replica(self._inside, topic, partition.index):
            self.offline[OfflineCause.DAMAGED if log.is_damaged else OfflineCause.DISK] += 1
        if not log.producers.entries:
            return
        self.producers += len(log.producers.entries)
        if log.producers.open_count:
            self.late += [
                (partition, each.producer_id)
                for each in partition.open_transactions()
                if each.updated_ms < self._late_ms
            ]


async def add_partitions(families: Families, inside: Inside, turns: Turns) -> None:
    """Add sizes, offsets, what holds readers back, and what hangs."""
    core = inside.core
    logs = Logs(inside)
    each = EachPartition(families, inside) if core.config.metrics_partitions else None
    for some in in_parts(core.partitions.all(), AT_ONCE):
        await turns.take(len(some) * (1 if each is None else 1 + STEPS_OF_SERIES))
        for partition in some:
            logs.note(partition)
            if each is not None:
                each.add(partition)
    if each is None:
        await _add_topics(families, logs, turns)
    families.gauge(
        "kafka_server_replicamanager_producerid_count",
        "Producers that logs know.",
        logs.producers,
    )
    families.gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Logs with an open transaction not written to for transaction.max.timeout.ms.",
        len({partition.by_id for partition, _ in logs.late}),
    )
    for where in {*core.partitions.unopened, *core.partitions.run_notes.missing}:
        await turns.take()
        if core.partitions.find(where) is None and _is_replica(inside, *where):
            logs.offline[core.partitions.unopened.cause_of(where) or OfflineCause.MISSING] += 1
    for cause in OfflineCause:
        families.gauge(
            "odradek_partitions_offline",
            "Logs that cannot be used.",
            logs.offline[cause],
            cause=cause.value,
        )
    await add_hanging(families, inside, turns, logs.late)


async def _add_topics(families: Families, logs: Logs, turns: Turns) -> None:
    sizes = families.gauge("kafka_log_log_size", "Bytes of the logs.")
    segments = families.gauge("kafka_log_log_numlogsegments", "Segments of the logs.")
    held = families.gauge(
        "kafka_cluster_partition_laststableoffsetlag",
        "Offsets from the last stable offset to the high watermark.",
    )
    for topic, size_bytes in logs.size_bytes.items():
        await turns.take()
        labels = {"topic": topic}
        sizes.add(labels, size_bytes)
        segments.add(labels, logs.segments[topic])
        held.add(labels, logs.held[topic])


def _is_replica(inside: Inside, topic: str, index: int) -> bool:
    """Return True if the cluster has a replica of the partition on this broker."""
    found = inside.metadata.image.partition(topic, index)
    return found is not None and inside.core.settings.now.node_id in found.replicas
