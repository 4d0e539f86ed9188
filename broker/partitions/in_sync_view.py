"""A leader's view of the replicas of one partition, in one leader epoch.

It decides how far the high watermark may go, and which followers may join the in-sync set or have
to leave it. It counts only what followers report in this epoch: a position that a follower reported
to an earlier leader may have been truncated since.

- The high watermark is the smallest offset that every in-sync replica has on disk. It stands still
  while fewer than `min.insync.replicas` are in sync (KAFKA-15583), and it never falls.
- A follower that is about to join counts already, and one that is about to leave still counts.
  Whichever in-sync set the metadata store has in the end, all of it has the records below the high
  watermark (KAFKA-13091).
- A follower joins when it has everything below the high watermark, and everything that the leader
  had when its epoch began (KAFKA-7128).
- A follower leaves when it has not had everything for `replica.lag.time.max.ms`.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True, eq=False)
class Contact:
    """The time, of the leader's clock, at which a follower was last heard.

    A fetch session has one for all its partitions: a fetch that does not list a partition says that
    the follower still fetches it from where it was.
    """

    at: float = 0.0


@dataclass(slots=True)
class Progress:
    """The position of one follower, as far as its fetches in this leader epoch show it."""

    caught_up_at: float
    """The last time, of the leader's clock, at which it is known to have had everything."""
    next_offset: int = UNKNOWN_OFFSET
    """Everything below it is on the follower's disk."""
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    contact: Contact = field(default_factory=Contact)
    fetched_at: float = 0.0
    fetch_number: int = 0
    """The number that its last fetch has among all fetches from this leader."""
    end_at_fetch: int = UNKNOWN_OFFSET
    """The leader's log end at the last fetch."""

    def note_fetched(self, next_offset: int, log_end_offset: int, now: float) -> None:
        """Note a fetch from `next_offset` on: the follower has everything below it on disk."""
        if next_offset >= log_end_offset:
            self.caught_up_at = now
        elif next_offset >= self.end_at_fetch != UNKNOWN_OFFSET:
            # It has all that there was at its last fetch. Under load it never has more.
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.next_offset = next_offset
        self.fetched_at = now
        self.end_at_fetch = log_end_offset

    def lag_seconds(self, log_end_offset: int, now: float) -> float:
        """Return for how long the follower has not had everything, as far as is known."""
        self.note_contact(log_end_offset)
        return now - self.caught_up_at

    def note_contact(self, log_end_offset: int) -> None:
        """Note that the follower still fetches, if it has everything below the log end.

        Its fetches do not list a partition of which it has everything.
        """
        if self.next_offset >= log_end_offset:
            self.caught_up_at = max(self.caught_up_at, self.contact.at)


@dataclass(slots=True, kw_only=True)
class InSyncView:
    """A leader's knowledge of the replicas of its partition."""

    node_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    """The in-sync replicas that the metadata store is known to have."""
    elr: Sequence[int] = ()
    """The eligible leader replicas that it is known to have."""
    partition_epoch: int = 0
    """The revision of the metadata store in which `isr` was written."""
    start_offset: int = 0
    """The log end when the epoch began. What is below it may have been acknowledged before."""
    followed_offset: int = 0
    """Markers in other logs may follow what is below it (`early.py`)."""
    adding: Sequence[int] = ()
    """Replicas that a reassignment adds, or was adding when another took its place. They do not
    raise the number that must be in sync."""
    proposed: Sequence[int] | None = None
    """The in-sync set of a change whose outcome is not known yet."""
    followers: dict[int, Progress] = field(default_factory=dict)
    fetch_count: int = 0
    end_at_look: int = UNKNOWN_OFFSET
    """The log end when the leader last looked for followers that lag."""

    @classmethod
    def alone(cls, node_id: int, leader_epoch: int) -> "InSyncView":
        """Return the view of a partition that has one replica."""
        here = (node_id,)
        return cls(node_id=node_id, leader_epoch=leader_epoch, replicas=here, isr=here)

    @classmethod
    def over(
        cls,
        *,
        node_id: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        elr: Sequence[int] = (),
        partition_epoch: int,
        now: float,
        adding: Sequence[int] = (),
    ) -> "InSyncView":
        """Return the view of a new leader. In-sync followers have had everything until `now`."""
        return cls(
            node_id=node_id,
            leader_epoch=leader_epoch,
            replicas=replicas,
            isr=isr,
            elr=elr,
            partition_epoch=partition_epoch,
            adding=adding,
            followers={node: Progress(now) for node in replicas if node != node_id},
        )

    @property
    def is_alone(self) -> bool:
        return not self.followers

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Return True if enough replicas are in sync for an acks=all write.

        A partition with fewer replicas than the setting needs all of them, as in Kafka 4.
        """
        return len(self.isr) >= self._enough(min_insync_replicas)

    def _enough(self, min_insync_replicas: int) -> int:
        return min(min_insync_replicas, len(self.replicas) - len(self.adding))

    def note_fetched(self, node: int, next_offset: int, log_end_offset: int, now: float) -> None:
        """Note where a follower stands, and the number of its fetch for `has_heard`."""
        self.fetch_count += 1
        progress = self.followers[node]
        progress.fetch_number = self.fetch_count
        progress.note_fetched(next_offset, log_end_offset, now)

    def has_heard(self, since: int, min_insync_replicas: int) -> bool:
        """Return True if enough in-sync replicas have fetched after the fetch numbered `since`."""
        heard = [
            node
            for node in self.isr
            if node == self.node_id or self.followers[node].fetch_number > since
        ]
        return len(heard) >= self._enough(min_insync_replicas)

    def is_followed(self, since: float, min_insync_replicas: int) -> bool:
        """Return True if no other broker can have been elected that knows of in-sync replicas.

        Enough of them have been heard after `since`, or this one is the only one.
        """
        if len(self.isr) == 1:
            return True
        heard = [node for node in self.isr if node != self.node_id]
        heard = [node for node in heard if self.followers[node].contact.at > since]
        return 1 + len(heard) >= max(2, self._enough(min_insync_replicas))

    def check_in_sync(self, min_insync_replicas: int) -> None:
        """Raise KafkaError NOT_ENOUGH_REPLICAS unless an acks=all write may be accepted."""
        if not self.has_enough(min_insync_replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"In sync are brokers {list(self.isr)}, and min.insync.replicas is "
                f"{min_insync_replicas}.",
            )

    def high_watermark(self, own: int, before: int, min_insync_replicas: int) -> int:
        """Return the high watermark. `own` is what the leader has, `before` the last one."""
        # invariant durable 4: With `log.flush=ack` the high watermark never passes what is on disk,
        # with `journal` never what is on disk in the log or in the journal.
        # tests/broker/partitions/test_readers.py
        if not self.followers:
            return own
        if not self.has_enough(min_insync_replicas):
            return before
        # invariant settings 1: All brokers agree on the `min.insync.replicas` of a topic: it is
        # kept with the topic. When it becomes smaller, the high watermark stands still until the
        # leader has removed the eligible leader replicas from the metadata store: one of them could
        # be elected otherwise, without what is acknowledged by now.
        # plant an eligible replica stays while the high watermark passes it
        # plant eligible replicas stay although a smaller min isr is reached
        if self.elr:
            return before
        counted = dict.fromkeys((*self.isr, *(self.proposed or ())))
        lowest = own
        for node in counted:
            if node != self.node_id:
                lowest = min(lowest, self.followers[node].next_offset)
        return max(before, lowest)

    def joining(self, high_watermark: int) -> list[int]:
        """Return the followers that may join the in-sync set."""
        needed = max(high_watermark, self.start_offset, self.followed_offset)
        return [
            node
            for node, progress in self.followers.items()
            if node not in self.isr and progress.next_offset >= needed
        ]

    def note_news(self) -> None:
        """Note the followers that had everything until now, as something has just changed.

        The log may have grown since the leader looked last. Without this a follower would seem to
        lag since that look.
        """
        for progress in self.followers.values():
            progress.note_contact(self.end_at_look)

    def leaves_at(self, log_end_offset: int, max_lag_seconds: float) -> float:
        """Return when the first in-sync follower has to leave unless it is heard of before.

        Infinity if none is in sync.
        """
        first = math.inf
        for node, progress in self.followers.items():
            if node in self.isr:
                progress.note_contact(log_end_offset)
                first = min(first, progress.caught_up_at)
        return first + max_lag_seconds

    def leaving(self, log_end_offset: int, now: float, max_lag_seconds: float) -> list[int]:
        """Return the in-sync followers that have not had everything for too long."""
        return [
            node
            for node, progress in self.followers.items()
            if node in self.isr and progress.lag_seconds(log_end_offset, now) > max_lag_seconds
        ]

    def moves(self, replicas: Sequence[int], adding: Sequence[int], now: float) -> None:
        """Note the replicas of a reassignment that begins in this leader epoch.

        It only adds followers. When it ends, and removes some, the partition gets another epoch.
        """
        for node in replicas:
            if node != self.node_id and node not in self.followers:
                self.followers[node] = Progress(now)
        assert {self.node_id, *self.followers} == set(replicas), (replicas, self.followers)
        self.replicas, self.adding = replicas, adding

    def note_changed(
        self, isr: Sequence[int], partition_epoch: int, elr: Sequence[int] = ()
    ) -> None:
        """Note the in-sync set of the metadata store, unless a later one is known.

        A follower that has left it must say again where it is: it may have left because its log is
        damaged, and what it reported before is worth nothing then.
        """
        if partition_epoch >= self.partition_epoch:
            for node in self.isr:
                if node not in isr and node in self.followers:
                    self.followers[node].next_offset = UNKNOWN_OFFSET
            self.isr = isr
            self.elr = elr
            self.partition_epoch = partition_epoch
            self.proposed = None
