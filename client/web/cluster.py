"""The section of the cluster: brokers, replicas that lag or are away, and moves."""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.client.administration.admin import Admin
from odradek.client.administration.moves import PartitionMove
from odradek.client.errors import Refused
from odradek.client.types import PartitionDescription, TopicDescription, TopicPartition
from odradek.client.web.board import Board
from odradek.client.web.poller import PageSource
from odradek.protocol.text import printable

SHOWN_MAX: Final = 200
"""The partitions that are shown one by one; the others are counted."""


class ClusterSource(PageSource):
    section = "cluster"
    every_s = 5.0

    def __init__(self) -> None:
        self.partitions: Sequence[TopicPartition] = ()
        """All partitions that have a leader."""
        self.leaderless: frozenset[TopicPartition] = frozenset()

    async def look(self, admin: Admin, board: Board) -> str | None:
        cluster = await admin.describe_cluster(include_fenced=True)
        topics = await admin.describe_topics(*await admin.list_topics(internal=True))
        leaders = {
            TopicPartition(topic.name, partition.partition): partition.leader
            for topic in topics
            for partition in topic.partitions
        }
        self.partitions = [name for name, leader in leaders.items() if leader >= 0]
        self.leaderless = frozenset(leaders) - frozenset(self.partitions)
        missing = None
        moves: Mapping[TopicPartition, PartitionMove] = {}
        try:
            moves = await admin.list_moves()
        except Refused as error:
            missing = str(error)
        leading = [*leaders.values()]
        board.put(
            "cluster",
            "",
            {
                "id": cluster.cluster_id,
                "controller": cluster.controller_id,
                "topic_count": len(topics),
                "partition_count": len(leading),
                **_counts(topics),
            },
        )
        board.replace(
            "broker",
            {
                str(broker.node_id): {
                    "address": f"{broker.host}:{broker.port}",
                    "rack": broker.rack,
                    "is_away": broker.is_fenced,
                    "leads": leading.count(broker.node_id),
                }
                for broker in cluster.brokers
            },
        )
        board.replace("replicas", _rows(topics, moves))
        return missing


def _counts(topics: Sequence[TopicDescription]) -> dict[str, int]:
    partitions = [partition for topic in topics for partition in topic.partitions]
    return {
        "leaderless": sum(partition.leader < 0 for partition in partitions),
        "lagging": sum(_is_lagging(partition) for partition in partitions),
    }


def _is_lagging(partition: PartitionDescription) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _rows(
    topics: Sequence[TopicDescription], moves: Mapping[TopicPartition, PartitionMove]
) -> dict[str, object]:
    """Return the partitions that need a look: those that move, lag, or have no leader."""
    rows: dict[str, object] = {}
    for topic in topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            move = moves.get(name)
            is_odd = move is not None or partition.leader < 0 or _is_lagging(partition)
            if not is_odd or len(rows) >= SHOWN_MAX:
                continue
            rows[str(name)] = {
                "topic": printable(topic.name),
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.isr),
                "adding": list(move.adding) if move else [],
                "removing": list(move.removing) if move else [],
            }
    return rows
