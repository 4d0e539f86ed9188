"""The brokers, topics and leaders that a client knows, from Metadata answers. Pure: no requests."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.cluster.topic_ids import TopicIds
from odradek.client.errors import OdradekError, Refused, Retriable, code_of, error_for
from odradek.client.types import TopicPartition
from odradek.client.wording import no_partition
from odradek.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.text import shortened

LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""The codes after which the leader of a partition must be looked for again."""


HOST_MAX: Final = 255
"""The longest name of a host (RFC 1035)."""
PORT_MAX: Final = 65535


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def checked(node: Node) -> Node:
    """Return `node`. Raises `Retriable` if it has an address that no broker can have."""
    if node.node_id < 0 or not 0 < len(node.host) <= HOST_MAX or not 0 < node.port <= PORT_MAX:
        raise Retriable(
            f"the broker's answer gives the broker {node.node_id} the address "
            f"{shortened(node.host)!r}, port {node.port}, which is not valid"
        )
    return node


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition. Its node id is -1 while the partition has none."""

    node_id: int
    leader_epoch: int


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: dict[int, LeaderAndEpoch]
    led: tuple[int, ...] = ()
    """The partitions with a leader; empty if all have one."""


class Metadata:
    """Brokers, topics and leaders, according to the latest answers."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topic_errors: dict[str, ErrorCode] = {}
        self._topic_ids = TopicIds()
        self.learned_at = float("-inf")
        self.is_doubted = False
        """True if a broker has contradicted it, or if it has no leader for a partition.

        Another broker is asked then, if possible: this one may be cut off.
        """

    def forget_node(self, host: str, port: int) -> None:
        """Forget a broker that has left the cluster."""
        self.nodes = {
            node_id: node
            for node_id, node in self.nodes.items()
            if (node.host, node.port) != (host, port)
        }

    def forget_age(self) -> None:
        """Make the metadata stale, so that it is requested again before its next use."""
        self.learned_at = float("-inf")
        self.is_doubted = True

    def leader(self, topic: str, partition: int) -> LeaderAndEpoch | None:
        """Return the leader of a partition; None if it is not known or does not exist."""
        known = self.topics.get(topic)
        leader = known.partitions.get(partition) if known else None
        return leader if leader is not None and leader.node_id >= 0 else None

    def is_leaderless(self, partition: TopicPartition) -> bool:
        """Return True if a partition exists and has no leader."""
        topic = self.topics.get(partition.topic)
        leader = None if topic is None else topic.partitions.get(partition.partition)
        return leader is not None and leader.node_id < 0

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of the leader of a partition; -1 without a known leader."""
        leader = self.leader(topic, partition)
        return -1 if leader is None else leader.leader_epoch

    def topic_id(self, name: str) -> UUID:
        """Return a topic's id; zero if it is not known, or if brokers have no ids."""
        known = self.topics.get(name)
        return ZERO_UUID if known is None else known.topic_id

    def was_made_anew(self, name: str, topic_id: UUID) -> bool:
        """Return True if the topic with this id was deleted, and another one has its name now."""
        now = self.topic_id(name)
        # invariant client 8
        return ZERO_UUID not in (now, topic_id) and now != topic_id

    def no_leader(self, partition: TopicPartition) -> OdradekError:
        """Return the error for a partition without leader: `Refused` if it does not exist."""
        topic = self.topics.get(partition.topic)
        if topic is not None and partition.partition not in topic.partitions:
            return Refused(
                no_partition(partition.topic, len(topic.partitions), partition.partition),
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return Retriable(f"{partition} has no leader", code=ErrorCode.LEADER_NOT_AVAILABLE)

    def by_leader(
        self, wanted: Iterable[TopicPartition], *, some_are_enough: bool
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions by the node that leads them; see `Cluster.leaders`."""
        by_node: dict[int, list[TopicPartition]] = {}
        leaderless: OdradekError | None = None
        for partition in wanted:
            code = self.topic_errors.get(partition.topic)
            if code is not None:
                raise error_for(code, f"looking for the leader of {partition}")
            leader = self.leader(partition.topic, partition.partition)
            if leader is None:
                error = self.no_leader(partition)
                if not some_are_enough or not isinstance(error, Retriable):
                    raise error
                leaderless = error
                continue
            by_node.setdefault(leader.node_id, []).append(partition)
        if leaderless is not None and not by_node:
            raise leaderless
        return by_node

    def learn(self, answer: MetadataResponse, now: float) -> list[int]:
        """Learn from an answer. Return the nodes whose address has changed.

        Raises `Retriable` for an answer that cannot be true, and then learns nothing from it.
        """
        known = {
            broker.node_id: checked(Node(broker.node_id, broker.host, broker.port, broker.rack))
            for broker in answer.brokers
        }
        for topic in answer.topics:
            if any(partition.partition_index < 0 for partition in topic.partitions):
                raise Retriable("the broker's answer has a topic with a negative partition")
        # Nothing before this line has changed anything: a false answer is refused as a whole.
        self.learned_at = now
        self.is_doubted = any(
            partition.leader_id < 0 for topic in answer.topics for partition in topic.partitions
        )
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        moved = list(self._moved(known))
        self.nodes = known
        for topic in answer.topics:
            if topic.name is not None:
                self._learn_topic(topic.name, topic)
        return moved

    def learn_leader(
        self, partition: TopicPartition, leader: LeaderAndEpoch, named: Iterable[Node]
    ) -> bool:
        """Learn the leader that a refusal names (KIP-951). Return False if it is not newer."""
        before = self.leader(*partition)
        address = next((node for node in named if node.node_id == leader.node_id), None)
        if before is None or address is None or leader.leader_epoch <= before.leader_epoch:
            return False
        try:
            self.nodes.setdefault(leader.node_id, checked(address))
        except Retriable:
            return False
        self.topics[partition.topic].partitions[partition.partition] = leader
        return True

    def forget_topics_but(self, there: Collection[str | None]) -> None:
        """Forget the topics that are not in `there`, the names of all topics of the cluster."""
        self.topics = {name: topic for name, topic in self.topics.items() if name in there}
        self._topic_ids.forget_some(len(self.topics))

    def _moved(self, known: dict[int, Node]) -> Iterator[int]:
        for node_id, node in self.nodes.items():
            now = known.get(node_id)
            if now is not None and (now.host, now.port) != (node.host, node.port):
                yield node_id

    def _learn_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        code = code_of(topic.error_code)
        if code != ErrorCode.NONE:
            self.topic_errors[name] = code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(name, None)
            return
        # invariant client 9: Ids of topics are never used twice, so a former one is an outdated
        # answer.
        # plant a broker that is behind brings a deleted topic back to a client
        if self._topic_ids.is_former(topic.topic_id):
            self.is_doubted = True  # the broker has not learned yet that the topic was deleted
            return
        self._topic_ids.learn(name, topic.topic_id)
        self.topic_errors.pop(name, None)
        before = self.topics.get(name)
        # A topic that was deleted and made anew has another id, and its epochs start again at 0.
        is_same = before is not None and before.topic_id == topic.topic_id
        partitions: dict[int, LeaderAndEpoch] = {}
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            leader = LeaderAndEpoch(partition.leader_id, partition.leader_epoch)
            old = before.partitions.get(partition.partition_index) if before and is_same else None
            # A broker whose metadata is older must not bring back a former leader (KIP-320).
            if old is not None and old.leader_epoch > leader.leader_epoch >= 0:
                leader = old
            partitions[partition.partition_index] = leader
        led = tuple(index for index, leader in partitions.items() if leader.node_id >= 0)
        if len(led) == len(partitions):
            led = ()
        self.topics[name] = Topic(name, topic.topic_id, topic.is_internal, partitions, led)
