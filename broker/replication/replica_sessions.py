"""The fetch sessions of followers, at their leader (KIP-227).

A session remembers the partitions that a follower fetches from this broker. A fetch lists only the
partitions that are new, or of which the follower has more than it had; the answer has only those
with batches, with an error, or with other marks. So the cost of a fetch follows what moves, not how
many partitions there are.

A follower lists in its next fetch every partition that it was answered. That shows what it has on
its disk, and only a partition that is listed counts as fetched: read barriers rely on it. The other
partitions of the session are still being fetched at the offsets that were listed last; `Contact`
carries that to the judgement of who lags.

Each follower has one session with its leader, for as long as its connection lasts. It begins a new
one with a fetch that lists everything; the earlier one ends then.
"""

from collections.abc import Iterable
from itertools import count
from typing import Final
from uuid import UUID

import trio

from odradek.broker.partitions.in_sync_view import UNKNOWN_OFFSET, Contact, Progress
from odradek.broker.partitions.leader import Leader
from odradek.protocol.apis.fetch import FetchPartition, FetchRequest, PartitionData
from odradek.protocol.errors import ErrorCode, KafkaError

NO_SESSION: Final = -1
"""The session epoch of a fetch that lists everything and begins no session."""
NEW_SESSION: Final = 0
LAST_EPOCH: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Return the session epoch of the fetch after one with `epoch`. 0 never comes again."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


class FollowerPlace:
    """One partition in a session: where the follower is, and what it knows."""

    __slots__ = ("answer", "known_marks", "leader", "session", "topic_id", "wanted")

    def __init__(self, session: "ReplicaSession", topic_id: UUID, wanted: FetchPartition) -> None:
        self.session = session
        self.topic_id = topic_id
        self.wanted = wanted
        self.leader: Leader | None = None
        self.answer: PartitionData | None = None
        """The answer, if there is nothing to read for it."""
        self.known_marks: tuple[int, int] | None = None
        """The high watermark and the log start in the last answer."""

    def notify(self) -> None:
        """Note that there is news of the partition."""
        self.session.ready[self] = None
        self.session.wake()

    def watch(self, leader: Leader) -> None:
        self.leader = leader
        leader.marks.followers.watches[self] = None

    @property
    def marks(self) -> tuple[int, int]:
        """The high watermark and the log start as they are."""
        assert self.leader is not None
        return self.leader.marks.high_watermark, self.leader.log.log_start_offset

    @property
    def is_urgent(self) -> bool:
        """True if the follower must hear of the partition even without a batch."""
        if self.answer is not None or self.leader is None:
            return True
        return self._is_unknown or self._awaits

    @property
    def _awaits(self) -> bool:
        """True if a barrier waits for the follower, or a deletion whose log start it lacks."""
        leader = self.leader
        assert leader is not None
        is_known = self.known_marks is not None and self.known_marks[1] == self.marks[1]
        return bool(leader.barriers) or (bool(leader.deletions) and not is_known)

    @property
    def _is_unknown(self) -> bool:
        """True if the follower has left the in-sync set, and has to say again where it is."""
        progress = self._progress
        return progress is not None and progress.next_offset == UNKNOWN_OFFSET

    @property
    def _progress(self) -> Progress | None:
        """The leader's view of this follower; None if this broker does not lead the partition."""
        if self.leader is None or self.leader.is_over:
            return None
        return self.leader.view.followers.get(self.session.follower)

    @property
    def has_more(self) -> bool:
        """True if there are batches that the follower does not have."""
        assert self.leader is not None
        return self.wanted.fetch_offset < self.leader.log.log_end_offset

    @property
    def is_at_end(self) -> bool:
        """True if the marks will not move without news of the partition."""
        leader = self.leader
        if leader is None or leader.is_over:
            return True
        return leader.marks.high_watermark == leader.log.log_end_offset

    def leave(self) -> None:
        """Watch the partition no more. The follower is not heard through it any more, either."""
        leader, contact = self.leader, self.session.contact
        self.session.ready.pop(self, None)
        self.session.behind.pop(self, None)
        if leader is None:
            return
        leader.marks.followers.watches.pop(self, None)
        progress = self._progress
        if progress is not None and progress.contact is contact:
            progress.contact = Contact(contact.at)


class ReplicaSession:
    """The partitions that one follower fetches."""

    def __init__(self, session_id: int, *, follower: int, broker_epoch: int) -> None:
        self.session_id = session_id
        self.follower = follower
        self.broker_epoch = broker_epoch
        self.epoch = NEW_SESSION
        """The session epoch of the next fetch."""
        self.contact = Contact()
        self.places: dict[tuple[UUID, int], FollowerPlace] = {}
        self.ready: dict[FollowerPlace, None] = {}
        """The partitions that may have something for the follower, the longest wait first."""
        self.behind: dict[FollowerPlace, None] = {}
        """Partitions of which the follower does not know the marks that they had last."""
        self._news = trio.Event()

    def place(self, topic_id: UUID, wanted: FetchPartition) -> FollowerPlace:
        """Return the place of a partition that a fetch lists."""
        before = self.places.get((topic_id, wanted.partition))
        place = self.places[topic_id, wanted.partition] = FollowerPlace(self, topic_id, wanted)
        if before is not None:
            before.leave()
            place.known_marks = before.known_marks
        self.ready[place] = None
        return place

    def forget(self, topic_id: UUID, index: int) -> None:
        """Take out a partition that is not fetched any more."""
        place = self.places.pop((topic_id, index), None)
        if place is not None:
            place.leave()

    def watch_news(self) -> None:
        """Begin the period for which `news` reports."""
        self._news = trio.Event()

    def wake(self) -> None:
        self._news.set()

    async def news(self) -> None:
        await self._news.wait()

    def end(self) -> None:
        """Watch nothing any more."""
        for place in self.places.values():
            place.leave()
        self.places.clear()
        self.wake()


class ReplicaSessions:
    """The sessions of all followers with this broker, one for each."""

    def __init__(self) -> None:
        self._sessions: dict[int, ReplicaSession] = {}
        self._ids = count(1)

    def session_of(self, request: FetchRequest) -> ReplicaSession:
        """Return the session that a fetch goes on with, or a new one.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        follower = request.replica_state.replica_id
        broker_epoch = request.replica_state.replica_epoch
        if request.session_epoch == NO_SESSION:
            return ReplicaSession(0, follower=follower, broker_epoch=broker_epoch)
        if request.session_epoch == NEW_SESSION:
            self._end(follower)
            session = ReplicaSession(next(self._ids), follower=follower, broker_epoch=broker_epoch)
            self._sessions[follower] = session
        else:
            found = self._sessions.get(follower)
            if found is None or found.session_id != request.session_id:
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if found.broker_epoch != broker_epoch:
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if found.epoch != request.session_epoch:
                raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session = found
        session.epoch = next_epoch(request.session_epoch)
        return session

    def keep(self, followers: Iterable[int]) -> None:
        """End the sessions of brokers that are not among `followers`."""
        for gone in self._sessions.keys() - set(followers):
            self._end(gone)

    def _end(self, follower: int) -> None:
        session = self._sessions.pop(follower, None)
        if session is not None:
            session.end()
