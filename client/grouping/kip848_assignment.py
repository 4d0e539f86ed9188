"""The assignment of a member that speaks the new protocol (KIP-848).

The coordinator assigns partitions of topic ids. Their names come from Metadata, which may not have
a topic yet that was just made: its partitions follow when it has a name.
"""

from uuid import UUID

from odradek.client.cluster.cluster import Cluster
from odradek.client.grouping.topics import SubscribedTopics
from odradek.client.types import TopicPartition, numbers_by_topic
from odradek.protocol.apis.group_consumer import (
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponseAssignment,
)


class Kip848Assignment:
    """The latest assignment. `partitions` has those whose topics have a name."""

    def __init__(self, cluster: Cluster, topics: SubscribedTopics) -> None:
        self._cluster = cluster
        self._topics = topics
        self._given: ConsumerGroupHeartbeatResponseAssignment | None = None
        """The assignment as the coordinator sent it."""
        self._topic_ids: dict[str, UUID] = {}
        self.partitions: tuple[TopicPartition, ...] = ()
        self.is_nameless = False
        """True if a topic has no name yet."""

    def forget(self) -> None:
        """Forget the assignment. The ids of its topics stay known."""
        self._given, self.partitions = None, ()

    def take(self, given: ConsumerGroupHeartbeatResponseAssignment | None) -> None:
        """Take what a heartbeat's answer assigns; with None the assignment has not changed."""
        if given is not None:
            self._given = given
        elif self._given is None:  # a member that has joined without partitions
            self._given = ConsumerGroupHeartbeatResponseAssignment(topic_partitions=())

    async def name_topics(self) -> None:
        """Look for the names of the topics. Raises the errors of `refresh`."""
        assert self._given is not None
        wanted = {topic.topic_id for topic in self._given.topic_partitions}
        names = self._names_of(wanted)
        if len(names) < len(wanted):
            await self._cluster.refresh(self._topics.asked_for)
            names = self._names_of(wanted)
        self.is_nameless = len(names) < len(wanted)
        self._topic_ids.update({name: topic_id for topic_id, name in names.items()})
        self.partitions = tuple(
            sorted(
                {
                    TopicPartition(names[topic.topic_id], number)
                    for topic in self._given.topic_partitions
                    for number in topic.partitions
                    if topic.topic_id in names
                }
            )
        )

    def _names_of(self, wanted: set[UUID]) -> dict[UUID, str]:
        """Return the names of topics, as far as they are known.

        A topic keeps its name here when it is deleted. Only the coordinator takes its partitions
        away, and Kafka does not if the topic was made anew before it looked: then it assigns the
        new one to no member, and a member that had given up the old one would wait for ever.
        """
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        names |= {topic.topic_id: name for name, topic in self._cluster.metadata.topics.items()}
        return {topic_id: names[topic_id] for topic_id in wanted if topic_id in names}

    def with_ids(
        self, partitions: tuple[TopicPartition, ...]
    ) -> tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...]:
        """Return partitions that were assigned as a heartbeat lists them."""
        return tuple(
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self._topic_ids[topic], partitions=tuple(numbers)
            )
            for topic, numbers in numbers_by_topic(partitions).items()
        )
