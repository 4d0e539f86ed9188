"""The cluster as this broker sees it, and its own replicas."""

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

CONTROLLER = "kafka_controller_kafkacontroller_"
REPLICAS = "kafka_server_replicamanager_"


async def add_cluster(families: Families, inside: Inside, turns: Turns) -> None:
    image = inside.metadata.image
    node_id = inside.core.settings.now.node_id
    families.gauge("kafka_brokers", "Brokers that are registered.", len(image.brokers))
    is_controller = image.controller_id == node_id
    families.gauge(f"{CONTROLLER}activecontrollercount", "1 on the controller.", int(is_controller))
    imbalanced = 0
    offline = moved = under = below = at = led = here = 0
    for topic in image.topics.values():
        least = topic.min_insync_replicas or 1
        for partition in topic.partitions:
            await turns.take()
            offline += partition.leader < 0
            imbalanced += partition.leader != partition.replicas[0]
            moved += partition.is_moving and node_id in partition.replicas
            here += node_id in partition.replicas
            if partition.leader != node_id:
                continue
            led += 1
            target = len(set(partition.replicas) - set(partition.adding))
            under += len(partition.isr) < target
            needed = min(least, target)
            below += len(partition.isr) < needed
            at += len(partition.isr) == needed
    families.gauge(
        f"{CONTROLLER}offlinepartitionscount",
        "Partitions without a leader; the controller counts them, others show 0.",
        offline if is_controller else 0,
    )
    families.gauge(
        f"{CONTROLLER}preferredreplicaimbalancecount",
        "Partitions that their first replica does not lead; others than the controller show 0.",
        imbalanced if is_controller else 0,
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
        ("leadercount", "Partitions that are led here.", led),
        ("partitioncount", "Replicas of this broker.", here),
        ("underreplicatedpartitions", "Led here, and not all replicas are in sync.", under),
        ("underminisrpartitioncount", "Led here, with too few in sync to be written.", below),
        ("atminisrpartitioncount", "Led here, with just enough in sync to be written.", at),
        ("reassigningpartitions", "With a replica here, and being moved.", moved),
    ):
        families.gauge(f"{REPLICAS}{name}", about, count)
