"""The cluster as this broker sees it, and its own replicas."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.cluster.image import PartitionImage
from odradek.broker.environment.turns import Turns, in_parts
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

CONTROLLER = "kafka_controller_kafkacontroller_"
REPLICAS = "kafka_server_replicamanager_"
AT_ONCE: Final = 50


class Counts:
    """The partitions of the cluster by their states."""

    def __init__(self) -> None:
        self.offline = self.imbalanced = 0
        self.here = self.moved = 0
        """Of those with a replica here."""
        self.led = self.under = self.below = self.at = 0
        """Of those that are led here."""

    def note(self, partitions: Sequence[PartitionImage], node_id: int, least: int) -> None:
        """Count some partitions of a topic; `least` is its `min.insync.replicas`."""
        for partition in partitions:
            replicas, leader, adding = partition.replicas, partition.leader, partition.adding
            self.offline += leader < 0
            self.imbalanced += leader != replicas[0]
            if node_id in replicas:
                self.here += 1
                self.moved += partition.is_moving
            if leader == node_id:
                target = len(set(replicas).difference(adding)) if adding else len(replicas)
                in_sync = len(partition.isr)
                needed = min(least, target)
                self.led += 1
                self.under += in_sync < target
                self.below += in_sync < needed
                self.at += in_sync == needed


async def add_cluster(families: Families, inside: Inside, turns: Turns) -> None:
    image = inside.metadata.image
    node_id = inside.core.settings.now.node_id
    families.gauge("kafka_brokers", "Brokers that are registered.", len(image.brokers))
    is_controller = image.controller_id == node_id
    families.gauge(f"{CONTROLLER}activecontrollercount", "1 on the controller.", int(is_controller))
    counts = Counts()
    for topic in image.topics.values():
        least = topic.min_insync_replicas or 1
        for some in in_parts(topic.partitions, AT_ONCE):
            await turns.take(len(some))
            counts.note(some, node_id, least)
    families.gauge(
        f"{CONTROLLER}offlinepartitionscount",
        "Partitions without a leader; the controller counts them, others show 0.",
        counts.offline if is_controller else 0,
    )
    families.gauge(
        f"{CONTROLLER}preferredreplicaimbalancecount",
        "Partitions that their first replica does not lead; others than the controller show 0.",
        counts.imbalanced if is_controller else 0,
    )
    families.counter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Elections by this broker of leaders that may lack acknowledged records.",
        inside.core.elections.unclean_count,
    )
    in_sync = inside.core.in_sync
    about = "Changes by which replicas have left in-sync sets of partitions that are led here."
    families.counter(f"{REPLICAS}isrshrinks", about, in_sync.shrink_count)
    about = "Changes by which replicas have joined in-sync sets of partitions that are led here."
    families.counter(f"{REPLICAS}isrexpands", about, in_sync.expand_count)
    for name, about, count in (
        ("leadercount", "Partitions that are led here.", counts.led),
        ("partitioncount", "Replicas of this broker.", counts.here),
        ("underreplicatedpartitions", "Led here, and not all replicas are in sync.", counts.under),
        (
            "underminisrpartitioncount",
            "Led here, with too few in sync to be written.",
            counts.below,
        ),
        ("atminisrpartitioncount", "Led here, with just enough in sync to be written.", counts.at),
        ("reassigningpartitions", "With a replica here, and being moved.", counts.moved),
    ):
        families.gauge(f"{REPLICAS}{name}", about, count)
