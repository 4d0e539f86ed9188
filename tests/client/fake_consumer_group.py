"""The broker in memory with a coordinator of the new protocol (KIP-848), and a group of one member.

It keeps the rule of reconciliation: a member that must give up partitions stays in its epoch until
a heartbeat lists what it owns, and those are not among it.
"""

from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

import trio

from odradek.client.types import TopicPartition, numbers_by_topic
from odradek.protocol.api import Api
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from odradek.protocol.errors import ErrorCode
from tests.client.fake_group import OWN, FakeGroup


def id_of(topic: str) -> UUID:
    return uuid5(NAMESPACE_DNS, topic)


class FakeConsumerGroup(FakeGroup):
    """`share` is what the member gets; None gives it all partitions of the topics it names."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        super().__init__(nursery, **options)
        self.more_features = {"group.version": 1}
        self.interval_ms = 3_000
        self.names: tuple[str, ...] = ()
        self.regex: str | None = None
        self.owned: set[TopicPartition] = set()
        self.assigned: set[TopicPartition] = set()
        self.left: list[int] = []
        """The epochs of the heartbeats that have left."""
        self._handlers[CONSUMER_GROUP_HEARTBEAT.key] = self._consumer_heartbeat

    # For tests

    def beats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return self.asked(CONSUMER_GROUP_HEARTBEAT)

    def said(self) -> list[str]:
        """The requests of the group so far: heartbeats that join, acknowledge or leave."""
        names = []
        for request in self.requests:
            if request.api is CONSUMER_GROUP_HEARTBEAT:
                body = request.body
                if body.member_epoch <= 0:
                    names.append("join" if body.member_epoch == 0 else "leave")
                elif body.topic_partitions is not None:
                    names.append("owns")
            elif request.api in OWN[:5]:
                names.append(request.api.name)
        return names

    def served(self) -> tuple[Api[Any, Any], ...]:
        return (*super().served(), CONSUMER_GROUP_HEARTBEAT)

    # The APIs

    def topic_id(self, topic: str) -> UUID:
        return self.topic_ids.get(topic, id_of(topic))

    def _consumer_heartbeat(
        self, body: ConsumerGroupHeartbeatRequest, code: ErrorCode
    ) -> ConsumerGroupHeartbeatResponse:
        if code == ErrorCode.NONE and body.member_epoch < 0:
            self.left.append(body.member_epoch)
            self.expel()
            return ConsumerGroupHeartbeatResponse(
                error_code=0, member_id=body.member_id, member_epoch=body.member_epoch
            )
        if code == ErrorCode.NONE and body.member_epoch > 0:
            if body.member_id != self.member_id:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            elif body.member_epoch != self.generation and not self._is_repeated(body):
                code = ErrorCode.FENCED_MEMBER_EPOCH
        if code != ErrorCode.NONE:
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=None)
        is_joining = body.member_epoch == 0
        self._note(body)
        before = set(self.assigned)
        if is_joining:
            self.member_id, before = body.member_id, set()
        wanted = self._wanted()
        if is_joining or self.is_rebalancing or wanted != self.assigned:
            self.assigned = (self.owned & wanted) if self.owned - wanted else wanted
            if not self.owned - wanted:  # nothing more is to be given up
                self.generation += 1
                self.is_rebalancing = False
        is_shown = is_joining or body.rebalance_timeout_ms >= 0 or self.assigned != before
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=body.member_id,
            member_epoch=self.generation,
            heartbeat_interval_ms=self.interval_ms,
            assignment=self._assignment() if is_shown else None,
        )

    def _is_repeated(self, body: ConsumerGroupHeartbeatRequest) -> bool:
        """Return True if the answer with the newest epoch may have been lost, as in Kafka."""
        return body.member_epoch == self.generation - 1 and body.topic_partitions is not None

    def _note(self, body: ConsumerGroupHeartbeatRequest) -> None:
        if body.subscribed_topic_names is not None:
            self.names = body.subscribed_topic_names
        if body.subscribed_topic_regex is not None:
            self.regex = body.subscribed_topic_regex
        if body.topic_partitions is not None:
            names = {self.topic_id(name): name for name in self.topics}
            self.owned = {
                TopicPartition(names[topic.topic_id], number)
                for topic in body.topic_partitions
                for number in topic.partitions
            }

    def _wanted(self) -> set[TopicPartition]:
        if self.share is not None:
            return set(self.share)
        return {
            TopicPartition(name, number)
            for name in self.names
            if name in self.topics
            for number in range(self.partitions)
        }

    def _assignment(self) -> ConsumerGroupHeartbeatResponseAssignment:
        return ConsumerGroupHeartbeatResponseAssignment(
            topic_partitions=tuple(
                ConsumerGroupHeartbeatResponseTopicPartitions(
                    topic_id=self.topic_id(topic), partitions=tuple(numbers)
                )
                for topic, numbers in numbers_by_topic(sorted(self.assigned)).items()
            )
        )

    def _judged(self, member_id: str, generation: int, code: ErrorCode) -> ErrorCode:
        if code != ErrorCode.NONE:
            return code
        if member_id != self.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.STALE_MEMBER_EPOCH
