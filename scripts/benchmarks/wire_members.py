"""Members of consumer groups without a client: only the requests, the same for every broker.

They do what every consumer does. A classic member joins, the leader divides the partitions in
turn, all send heartbeats, and join again when one of those says REBALANCE_IN_PROGRESS. A member of
the new protocol (KIP-848) sends heartbeats at the interval that the broker names, and confirms a
new assignment at once. The first heartbeat of each comes at a random moment of its interval, as
with processes that were started at different times.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from odradek.protocol.apis.group import (
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    encode_versioned,
)
from odradek.protocol.errors import ErrorCode
from scripts.benchmarks.crowd_loop import Link, Loop

CLASSIC_HEARTBEAT_SECONDS: Final = 3.0
"""The default of `heartbeat.interval.ms`."""
REBALANCE_MS: Final = 60_000
ASSIGNOR: Final = "bench"
JOIN_AGAIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
NOT_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The errors of a broker that has just made the topic of the groups."""
PAUSE_SECONDS: Final = 0.02

Place = tuple[Any, int]
"""A topic, by name or id, and a partition."""


class Member(Protocol):
    """What both kinds of members have."""

    owned: frozenset[Place]
    epoch: int
    """The generation or member epoch that `owned` is for; -1 while a classic member joins."""

    def join(self) -> None: ...

    def die(self) -> None: ...


def is_stable(members: Sequence[Member], places: int) -> bool:
    """Return True if the members own each partition once, evenly, and agree on the epoch."""
    if len({member.epoch for member in members}) != 1 or members[0].epoch < 0:
        return False
    sizes = [len(member.owned) for member in members]
    if sum(sizes) != places or max(sizes) - min(sizes) > 1:
        return False
    owners = Counter(place for member in members for place in member.owned)
    return len(owners) == places


class ClassicMember:
    """A member of the classic protocol."""

    def __init__(
        self,
        link: Link,
        loop: Loop,
        group_id: str,
        topic: str,
        partitions: int,
        *,
        session_ms: int,
        heartbeat_seconds: float = CLASSIC_HEARTBEAT_SECONDS,
        random: Random,
    ) -> None:
        self.owned: frozenset[Place] = frozenset()
        self.epoch = -1
        self._link, self._loop, self._group_id = link, loop, group_id
        self._topic, self._partitions = topic, partitions
        self._session_ms, self._heartbeat_seconds = session_ms, heartbeat_seconds
        self._random = random
        self._member_id = ""
        self._protocol_name: str | None = None

    def join(self) -> None:
        self.owned, self.epoch = frozenset(), -1
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=(self._topic,)))
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=(JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata),),
        )
        self._link.ask(JOIN_GROUP, 9, request, self._joined)

    def _joined(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            self.join()
            return
        if answer.error_code in JOIN_AGAIN:
            self.join()
            return
        if answer.error_code in NOT_YET:
            self._loop.at(time.perf_counter() + PAUSE_SECONDS, self.join)
            return
        _check(answer)
        self._member_id, self._protocol_name = answer.member_id, answer.protocol_name
        generation = answer.generation_id
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if answer.leader == answer.member_id:
            assignments = tuple(self._divided([each.member_id for each in answer.members]))
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=self._member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )
        self._link.ask(SYNC_GROUP, 5, request, lambda synced: self._synced(generation, synced))

    def _divided(self, member_ids: list[str]) -> Iterator[SyncGroupRequestAssignment]:
        for number, member_id in enumerate(sorted(member_ids)):
            mine = tuple(range(number, self._partitions, len(member_ids)))
            assigned = (ConsumerTopicPartitions(topic=self._topic, partitions=mine),)
            yield SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_versioned(
                    ConsumerProtocolAssignment(assigned_partitions=assigned)
                ),
            )

    def _synced(self, generation: int, answer: Any) -> None:
        if answer.error_code in JOIN_AGAIN:
            self.join()
            return
        _check(answer)
        assigned = decode_assignment(answer.assignment).assigned_partitions
        self.owned = frozenset(
            (each.topic, index) for each in assigned for index in each.partitions
        )
        self.epoch = generation
        self._later(self._random.random() * self._heartbeat_seconds)

    def _later(self, seconds: float) -> None:
        self._loop.at(time.perf_counter() + seconds, self._heartbeat)

    def _heartbeat(self) -> None:
        if self._link.is_closed:
            return
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self.epoch, member_id=self._member_id
        )
        self._link.ask(HEARTBEAT, 4, request, self._heard)

    def _heard(self, answer: Any) -> None:
        if answer.error_code in JOIN_AGAIN:
            self.join()
            return
        _check(answer)
        self._later(self._heartbeat_seconds)

    def die(self) -> None:
        self._link.close()


class ConsumerMember:
    """A member of the new protocol."""

    def __init__(
        self, link: Link, loop: Loop, group_id: str, topic: str, *, random: Random
    ) -> None:
        self.owned: frozenset[Place] = frozenset()
        self.epoch = 0
        self._link, self._loop, self._group_id = link, loop, group_id
        self._topic, self._random = topic, random
        self._member_id = str(uuid4())
        self._is_first = True

    def join(self) -> None:
        self._send(
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=(self._topic,),
            topic_partitions=(),
        )

    def _send(self, **changed: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self.epoch,
            **changed,
        )
        self._link.ask(CONSUMER_GROUP_HEARTBEAT, 1, request, self._heard)

    def _heard(self, answer: Any) -> None:
        if answer.error_code in NOT_YET and self._is_first:
            self._loop.at(time.perf_counter() + PAUSE_SECONDS, self.join)
            return
        _check(answer)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            found = answer.assignment.topic_partitions
            assigned = frozenset(
                (each.topic_id, index) for each in found for index in each.partitions
            )
            if assigned != self.owned:
                self.owned = assigned
                self._send(topic_partitions=_by_topic(assigned))
                return
        seconds = answer.heartbeat_interval_ms / 1_000
        if self._is_first:
            self._is_first = False
            seconds *= self._random.random()
        self._loop.at(time.perf_counter() + seconds, self._heartbeat)

    def _heartbeat(self) -> None:
        if not self._link.is_closed:
            self._send()

    def die(self) -> None:
        self._link.close()


def _by_topic(
    places: frozenset[Place],
) -> tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return tuple(
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
        for topic_id, indexes in topics.items()
    )


def _check(answer: Any) -> None:
    if answer.error_code:
        raise RuntimeError(f"the broker answered {ErrorCode(answer.error_code).name}: {answer}")
