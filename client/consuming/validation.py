"""Positions that are compared with the log of a new leader (KIP-320).

A leader that lacks records (an unclean election) ends the log before positions of consumers. If it
has appended others by the time of the next fetch, the position exists again, and the records in
between would be missed without an error. So a position has the leader epoch of the record before
it. A leader of a later epoch is asked where that epoch ends in its log, before it is fetched from.
If that is before the position, the log was truncated: reading continues at that end, as in Kafka's
clients, or it is an error with `auto_offset_reset="error"`.

What was fetched of the former leader is returned first, because the program may have got a part.

A position without an epoch is not compared: one that the program has sought, or that was stored
without it. Brokers before Kafka 2.3 let only other brokers ask.

A stored offset may also have a later epoch than the leader that the client knows. That leader may
not know yet that it has a successor, and answer that the offset is out of its range. So the leaders
are looked up again before such an offset is used.
"""

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Final

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.cluster import Cluster, is_retriable
from odradek.client.cluster.metadata import LEADER_MOVED
from odradek.client.config import ConsumerConfig
from odradek.client.consuming.assigned import AssignedPartition
from odradek.client.errors import OdradekError, OffsetOutOfRange, Refused, code_of
from odradek.client.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition, by_topic
from odradek.protocol.apis.offsets import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.errors import ErrorCode

CONSUMER: Final = -1
"""The replica id of a client."""
PURPOSE: Final = "fetch"
"""The connection that this shares with the fetches."""


class Validation:
    """The comparisons of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        backoff: Backoff,
        fail: Callable[[list[AssignedPartition], OdradekError], None],
        unread_outside: Callable[[], Container[TopicPartition]],
    ) -> None:
        """`unread_outside` returns the partitions of records that wait in another thread."""
        self._cluster = cluster
        self._config = config
        self._backoff = backoff
        self._fail = fail
        self._unread_outside = unread_outside

    def is_unread(self, partition: AssignedPartition) -> bool:
        """Return True if the program has not got all that was fetched of a partition.

        Offsets that it stores meanwhile belong to what it has got.
        """
        return bool(partition.fetched) or partition.name in self._unread_outside()

    async def look_for_leaders(self, stored: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Look up the leaders of partitions that have had a later one than the one that is known.

        It is done once: a program may have stored an epoch that no leader has had. Raises
        `TimedOut`, `Refused`.
        """
        metadata = self._cluster.metadata
        topics = {
            name.topic
            for name, each in stored.items()
            if each.leader_epoch > metadata.leader_epoch(*name) >= 0
        }
        if topics:
            metadata.forget_age()  # another broker is asked, if possible
            attempt = partial(self._cluster.refresh, topics)
            await self._cluster.retrying("looking for the leaders of stored offsets", attempt)

    async def validate(
        self, node_id: int, readers: list[AssignedPartition]
    ) -> list[AssignedPartition]:
        """Compare positions with the log of their leader, if it is new.

        Return the partitions that may be fetched from it now. Raises `Retriable`, `Refused`.
        """
        doubtful = {each.name: each for each in readers if self._is_doubtful(each)}
        if not doubtful:
            return readers
        asked = {
            name: OffsetForLeaderPartition(
                partition=name.partition,
                current_leader_epoch=self._cluster.metadata.leader_epoch(*name),
                leader_epoch=each.fetch_epoch,
            )
            for name, each in doubtful.items()
        }
        places = {name: (each.topic_id, each.fetch_offset) for name, each in doubtful.items()}
        ends = await self._ask(node_id, asked)
        for name, partition in doubtful.items():
            # The program may have sought meanwhile. Its position is then looked at anew.
            if places[name] == (partition.topic_id, partition.fetch_offset):
                self._compare(partition, asked[name], None if ends is None else ends.get(name))
        now = trio.current_time()
        return [
            each
            for each in readers
            if each.is_placed
            and each.error is None
            and each.not_before <= now
            and each.validated_epoch >= self._cluster.metadata.leader_epoch(*each.name)
        ]

    def _is_doubtful(self, partition: AssignedPartition) -> bool:
        """Return True if the present leader is to be asked. Otherwise, note that it is not."""
        leader_epoch = self._cluster.metadata.leader_epoch(*partition.name)
        if partition.validated_epoch >= leader_epoch:
            return False
        # Epochs never fall in a log. So a leader has the records of its own epoch, and those of a
        # later one mean that the metadata is old, or that the program has stored a wrong epoch.
        # invariant client 16: A consumer fetches from a new leader only when the leader has
        # confirmed the position, or from where the leader's log differs from what was read.
        # plant a consumer reads on in a log that was truncated
        if 0 <= partition.fetch_epoch < leader_epoch:
            return True
        partition.validated_epoch = leader_epoch
        return False

    async def _ask(
        self, node_id: int, asked: Mapping[TopicPartition, OffsetForLeaderPartition]
    ) -> dict[TopicPartition, EpochEndOffset] | None:
        """Return where leader epochs end; None if the broker does not return it to consumers."""
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER,
            topics=tuple(
                OffsetForLeaderTopic(topic=topic, partitions=tuple(each for _, each in partitions))
                for topic, partitions in by_topic(asked).items()
            ),
        )
        try:
            answer = await self._cluster.ask(
                node_id, OFFSET_FOR_LEADER_EPOCH, request, purpose=PURPOSE
            )
        except Refused as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return None
        return {
            TopicPartition(topic.topic, end.partition): end
            for topic in answer.topics
            for end in topic.partitions
        }

    def _compare(
        self,
        partition: AssignedPartition,
        asked: OffsetForLeaderPartition,
        end: EpochEndOffset | None,
    ) -> None:
        code = ErrorCode.NONE if end is None else code_of(end.error_code)
        if is_retriable(code):
            if code in LEADER_MOVED:
                self._cluster.metadata.forget_age()
            self._wait(partition)
        elif end is None or code != ErrorCode.NONE or end.end_offset >= partition.fetch_offset:
            # A broker that refuses this for good, as for want of rights, refuses the fetch as well.
            partition.validated_epoch = asked.current_leader_epoch
        elif self.is_unread(partition):
            self._wait(partition)  # the program gets first what was fetched
        else:
            self._truncate(partition, asked, end)

    def _wait(self, partition: AssignedPartition) -> None:
        partition.not_before = trio.current_time() + self._backoff.next_seconds()

    def _truncate(
        self, partition: AssignedPartition, asked: OffsetForLeaderPartition, end: EpochEndOffset
    ) -> None:
        policy, name, at = self._config.auto_offset_reset, partition.name, end.end_offset
        is_known = at >= 0 and end.leader_epoch >= 0
        text = f"the log of {name} was truncated: in leader epoch {asked.current_leader_epoch} it "
        text += (
            f"differs from what was read from offset {at} on, and the position is "
            f"{partition.fetch_offset}; records that were read from there on are not in it any more"
            if is_known
            else f"has no records of leader epoch {asked.leader_epoch}, of which the one before "
            f"the position {partition.fetch_offset} was"
        )
        if policy == "error":
            advice = f"seek to {at} to read what is there now" if is_known else "seek to an offset"
            error = OffsetOutOfRange(f"{text}; {advice}", code=ErrorCode.OFFSET_OUT_OF_RANGE)
            self._fail([partition], error)
            return
        goes_on = f"offset {at}" if is_known else f"the {policy} offset"
        self._cluster.journal.offset_reset(
            f"{name}, truncated", f"{text}; reading continues at {goes_on}"
        )
        if is_known:
            partition.truncate(at, end.leader_epoch)
            partition.validated_epoch = asked.current_leader_epoch
        else:
            partition.lose(LATEST if policy == "latest" else EARLIEST)
