"""The fetch session of a follower with its leader, as the follower sees it.

`replica_sessions.py` is the leader's side and explains sessions. A partition is *due* to be listed
when it is new, and when it was in the last answer. One that is paused after an error is taken out
of the session meanwhile, so that the leader does not send what cannot be taken.
"""

import math
from typing import Final
from uuid import UUID

from odradek.broker.partitions.follower import Follower
from odradek.broker.replication.replica_sessions import NEW_SESSION, next_epoch
from odradek.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

PARTITION_MAX_BYTES: Final = 1024 * 1024


class FollowerSession:
    """The list of partitions of each fetch that one follower sends to one leader."""

    def __init__(self, node_id: int, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self._replica = ReplicaState(replica_id=node_id, replica_epoch=broker_epoch)
        self._id = 0
        self._epoch = NEW_SESSION
        self._followers: dict[tuple[UUID, int], Follower] = {}
        self._due: dict[Follower, None] = {}
        self._forgotten: dict[tuple[UUID, int], None] = {}

    def add(self, follower: Follower) -> None:
        self._due[follower] = None

    def remove(self, follower: Follower) -> None:
        self._due.pop(follower, None)
        self._forget(follower)

    def _forget(self, follower: Follower) -> None:
        if self._followers.get(follower.key) is follower:
            del self._followers[follower.key]
            self._forgotten[follower.key] = None

    def request(self, now: float, *, max_wait_ms: int, max_bytes: int) -> FetchRequest | None:
        """Return the next fetch; None if there is nothing to fetch now."""
        listed: dict[UUID, list[FetchPartition]] = {}
        for follower in tuple(self._due):
            if follower.partition.log.failure is not None:
                self.remove(follower)  # such a log says nothing about what its disk has
                continue
            if follower.paused_until > now or not follower.is_on_disk:
                self._forget(follower)
                continue
            del self._due[follower]
            self._followers[follower.key] = follower
            self._forgotten.pop(follower.key, None)
            listed.setdefault(follower.partition.topic_id, []).append(_place(follower))
        if not self._followers:
            return None
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return FetchRequest(
            replica_state=self._replica,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=tuple(
                FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in listed.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
                for topic_id, indexes in forgotten.items()
            ),
        )

    def unflushed(self) -> list[Follower]:
        """Return the followers that may not be listed before they are on disk."""
        return [follower for follower in self._due if not follower.is_on_disk]

    @property
    def next_at(self) -> float:
        """The time at which the first partition may be fetched again that is paused now."""
        return min((follower.paused_until for follower in self._due), default=math.inf)

    def answered(self, response: FetchResponse) -> list[tuple[Follower, PartitionData]]:
        """Return the followers that an answer is for. They are due again."""
        self._id, self._epoch = response.session_id, next_epoch(self._epoch)
        answered = []
        for topic in response.responses:
            for data in topic.partitions:
                # Its role may have changed while the leader made its answer.
                follower = self._followers.get((topic.topic_id, data.partition_index))
                if follower is not None:
                    self._due[follower] = None
                    answered.append((follower, data))
        return answered


def _place(follower: Follower) -> FetchPartition:
    """Return where a follower is, and note that it was asked from there."""
    log = follower.partition.log
    follower.fetch_offset = log.log_end_offset
    return FetchPartition(
        partition=follower.where.partition,
        current_leader_epoch=follower.leader_epoch,
        fetch_offset=follower.fetch_offset,
        last_fetched_epoch=follower.last_epoch,
        # Where the leader answers a deletion, its records must not be there again after a crash.
        log_start_offset=log.saver.saved_log_start_offset,
        partition_max_bytes=PARTITION_MAX_BYTES,
        high_watermark=follower.partition.high_watermark,
    )
