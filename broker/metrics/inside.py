"""The parts of a broker that metrics are read from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.api.context import Core
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.membership.membership import Membership
from odradek.broker.metrics.loop_lag import LoopLag
from odradek.broker.metrics.probes import Probes
from odradek.broker.server.server import Server
from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass

if TYPE_CHECKING:
    from odradek.broker.tls.listener_tls import ListenerTls


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    core: Core
    metadata: ClusterMetadata
    membership: Membership
    server: Server
    """That of clients."""
    peer_server: Server
    tls: "Mapping[str, ListenerTls]"
    """That of each listener which has it."""
    loop_lag: LoopLag
    probes: Probes


def offline(inside: Inside) -> list[TopicPartition]:
    """Return the partitions with a replica here whose logs cannot be used."""
    core = inside.core
    node_id, partitions = core.settings.now.node_id, core.partitions
    return [
        TopicPartition(topic.name, index)
        for topic in inside.metadata.image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if node_id in partition.replicas and partitions.is_offline(topic.name, index)
    ]
