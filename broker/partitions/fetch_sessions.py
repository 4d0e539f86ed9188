"""The fetch sessions of clients (KIP-227), at the broker that they fetch from.

A session remembers the partitions that a client fetches here, and where it is in each of them. An
incremental fetch lists only what has changed at the client, and its answer has only the partitions
that have records, an error, or another high watermark or log start than the client knows. A
partition puts itself among the *ready* ones of each session when it has news. So the cost of a
fetch follows what moves, not how many partitions there are.

Partitions are read in the order in which they were added. One whose records were returned goes to
the end, so that each one gets its turn although an answer has a limit.

Sessions belong to no connection: the id is random, and only the client knows it. A session lasts
until the client closes it, or until another one needs its place. There are at most
`max.incremental.fetch.session.cache.slots`, and they hold at most `SESSIONS_MAX_BYTES`. A new
session takes the place of the one that was silent for longest, if that is two minutes. Otherwise it
takes the place of the smallest one that has been used for two minutes, if the new one is larger.
Otherwise the client gets none. It then lists everything in each fetch.
"""

import random
from typing import Final
from uuid import UUID

import trio

from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.leader import Leader
from odradek.protocol.apis.fetch import FetchPartition, FetchRequest, PartitionData
from odradek.protocol.errors import ErrorCode, KafkaError

NEW_SESSION: Final = 0
"""The session epoch of a fetch that lists everything and asks for a session."""
NO_SESSION: Final = -1
"""The session epoch of a fetch that lists everything and ends its session."""
NO_ID: Final = 0
LAST_EPOCH: Final = 2**31 - 1
SILENT_SECONDS: Final = 120.0
"""A session that was silent for this time may lose its place to any other."""
SESSIONS_MAX_BYTES: Final = 128 * 1024 * 1024
PLACE_BYTES: Final = 800
"""The memory of one partition in a session, without the name of its topic."""
UNKNOWN: Final = -1
NONE_YET: Final = -1
"""The epoch of a divergence where there is none."""

PlaceKey = tuple[UUID | str, int]
"""The id of a topic, or its name up to version 12, and the number of a partition."""


def is_urgent(data: PartitionData) -> bool:
    """Return True for an answer that is repeated until its cause is gone."""
    return data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch != NONE_YET


def next_epoch(epoch: int) -> int:
    """Return the session epoch of the fetch after one with `epoch`. 0 never comes again."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


class SessionPlace:
    """One partition in a session: where the client is, and what it knows."""

    __slots__ = (
        "known_high_watermark",
        "known_log_start",
        "leader",
        "session",
        "topic",
        "topic_id",
        "turn",
        "wanted",
    )

    def __init__(
        self, session: "FetchSession", topic: str, topic_id: UUID, wanted: FetchPartition
    ) -> None:
        self.session = session
        self.topic = topic
        """The name of the topic; "" as long as no topic has had the id."""
        self.topic_id = topic_id
        self.wanted = wanted
        self.leader: Leader | None = None
        self.turn = 0
        """Its place in the order of reading."""
        self.known_high_watermark = self.known_log_start = UNKNOWN

    def notify(self) -> None:
        """Note that there is news of the partition."""
        self.session.ready[self] = None
        self.session.wake()

    def watch(self, leader: Leader | None) -> None:
        """Watch this leader's partition, and no other."""
        if self.leader is not leader:
            self.leave()
            if leader is not None and not self.session.is_ended:
                self.leader = leader
                leader.marks.readers.watches[self] = None

    def leave(self) -> None:
        if self.leader is not None:
            self.leader.marks.readers.watches.pop(self, None)
            self.leader = None

    def has_not_told(self, data: PartitionData) -> bool:
        """Return True if an answer has something that the client does not know."""
        return (
            bool(data.records)
            or is_urgent(data)
            or self.known_high_watermark != data.high_watermark
            or self.known_log_start != data.log_start_offset
        )

    def note_answer(self, data: PartitionData, *, read_committed: bool) -> None:
        """Note what the client knows of the partition now, and whether there is more for it."""
        # When the error is gone, the partition is answered again.
        is_failed = data.error_code != ErrorCode.NONE
        self.known_high_watermark = UNKNOWN if is_failed else data.high_watermark
        self.known_log_start = data.log_start_offset
        is_ready = is_urgent(data) or bool(data.records)
        if not is_ready and not self.has_news(read_committed=read_committed):
            self.session.ready.pop(self, None)

    def has_news(self, *, read_committed: bool) -> bool:
        """Return True if there is more than the client was told: records, other marks, an error."""
        leader = self.leader
        if leader is None:
            return True
        # It may have gone, or have another leader, since it was read. It has notified then, and
        # does so never again: without this look the client would wait for it for ever.
        # invariant readers 6: What a partition notified between its reading and its answer is not
        # lost to a fetch session.
        # plant a session takes a partition for answered that has gone since it was read
        try:
            leader.check()
        except KafkaError:
            return True
        high_watermark = leader.marks.high_watermark
        end = leader.marks.end_for(read_committed=read_committed)
        return (
            self.wanted.fetch_offset < end
            or self.known_high_watermark != high_watermark
            or self.known_log_start != leader.log.log_start_offset
        )


class FetchSession:
    """The partitions that one client fetches. Made by `FetchSessions`."""

    def __init__(self, session_id: int, *, by_id: bool, owner: str, now: float) -> None:
        self.session_id = session_id
        self.owner = owner
        """The principal that began it. Others cannot go on with it, whatever they guess."""
        self.by_id = by_id
        """True if its topics have ids: version 13 and later."""
        self.epoch = next_epoch(NEW_SESSION)
        """The session epoch of the next fetch."""
        self.began_at = self.used_at = now
        self.read_committed: bool | None = None
        self._rights: object = None
        self.places: dict[PlaceKey, SessionPlace] = {}
        self.ready: dict[SessionPlace, None] = {}
        """The partitions that may have something for the client."""
        self.size_bytes = 0
        self.counted_bytes = 0
        """What `FetchSessions` has counted of it."""
        self.is_ended = False
        self._turns = 0
        self._news = trio.Event()

    def place(self, topic: str, topic_id: UUID, wanted: FetchPartition) -> SessionPlace:
        """Return the place of a partition that a fetch lists. It is ready."""
        key: PlaceKey = (topic_id if self.by_id else topic, wanted.partition)
        place = self.places.get(key)
        if place is None:
            place = SessionPlace(self, topic, topic_id, wanted)
            self.to_the_end(place)
            if not self.is_ended:
                self.places[key] = place
                self.size_bytes += self._cost_bytes(topic)
        place.wanted = wanted
        self.ready[place] = None
        return place

    def forget(self, topic: str, topic_id: UUID, index: int) -> None:
        """Take out a partition that the client does not fetch any more."""
        place = self.places.pop((topic_id if self.by_id else topic, index), None)
        if place is not None:
            self.size_bytes -= self._cost_bytes(topic)
            self.ready.pop(place, None)
            place.leave()

    def _cost_bytes(self, topic: str) -> int:
        return PLACE_BYTES if self.by_id else PLACE_BYTES + len(topic)

    def to_the_end(self, place: SessionPlace) -> None:
        """Read a partition after all others from now on."""
        self._turns += 1
        place.turn = self._turns

    def in_turn(self) -> list[SessionPlace]:
        """Return the partitions that are ready, in the order of reading."""
        return sorted(self.ready, key=_turn)

    def read_as(self, *, read_committed: bool) -> None:
        """Look at all partitions again if the fetch has another isolation level than the last."""
        if self.read_committed is not read_committed:
            self.read_committed = read_committed
            self.ready = dict.fromkeys(self.places.values())

    def note_rights(self, rights: object) -> None:
        """Look at all partitions again if what the client may read may have changed."""
        if self._rights is not rights:
            self._rights = rights
            self.ready = dict.fromkeys(self.places.values())

    def watch_news(self) -> trio.Event:
        """Return an event that is set by what comes from now on."""
        self._news = trio.Event()
        return self._news

    def wake(self) -> None:
        self._news.set()

    def end(self) -> None:
        """Watch nothing any more."""
        self.is_ended = True
        for place in self.places.values():
            place.leave()
        self.places.clear()
        self.wake()


def _turn(place: SessionPlace) -> int:
    return place.turn


class FetchSessions:
    """The sessions of all clients."""

    def __init__(
        self, rng: random.Random, slots: int, *, max_bytes: int = SESSIONS_MAX_BYTES
    ) -> None:
        self._rng = rng
        self._slots = slots
        self._max_bytes = max_bytes
        self._sessions: dict[int, FetchSession] = {}
        """By id, the one that was silent for longest first."""
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, size: int, *, by_id: bool, owner: str = "") -> FetchSession | None:
        """Return a new session for `size` partitions; None if there is no place for it."""
        now = trio.current_time()
        is_full = len(self._sessions) >= self._slots
        if is_full and not (self._end_silent(now) or self._end_smaller(size)):
            return None
        session_id = self._rng.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(
            session_id, by_id=by_id, owner=owner, now=now
        )
        return session

    def go_on(self, session_id: int, epoch: int, *, by_id: bool, owner: str = "") -> FetchSession:
        """Return the session that an incremental fetch goes on with.

        `owner` is who asks: a session of another principal is not there for it. Raises KafkaError:
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id is not by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = next_epoch(epoch)
        session.wake()  # an earlier fetch of it, on another connection, is outdated
        session.used_at = trio.current_time()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    async def update(self, session: FetchSession, request: FetchRequest) -> None:
        """Take what the client fetches from elsewhere now, and leave out what it does not fetch.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND if memory is short and the session has ended.
        """
        turns = Turns()
        for topic in request.topics:
            for wanted in topic.partitions:
                await turns.take()
                session.place(topic.topic, topic.topic_id, wanted)
                if not self.has_room(session):
                    raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                await turns.take()
                session.forget(forgotten.topic, forgotten.topic_id, index)

    def has_room(self, session: FetchSession) -> bool:
        """Count what a session holds now. End it, and return False, if there is no memory for it.

        What was silent for long makes room first.
        """
        if not session.is_ended:
            self.size_bytes += session.size_bytes - session.counted_bytes
            session.counted_bytes = session.size_bytes
            while self.size_bytes > self._max_bytes:
                if not self._end_silent(trio.current_time()):
                    self.end(session.session_id)
        return not session.is_ended

    def end_own(self, session_id: int, owner: str) -> None:
        """End a session, if there is one with this id and owner."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self.end(session_id)

    def end(self, session_id: int) -> None:
        """End a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.size_bytes -= session.counted_bytes
            session.end()

    def _end_silent(self, now: float) -> bool:
        """End the session that was silent for longest, if it was for two minutes."""
        first = next(iter(self._sessions.values()), None)
        if first is None or now - first.used_at <= SILENT_SECONDS:
            return False
        self.end(first.session_id)
        return True

    def _end_smaller(self, size: int) -> bool:
        """End the smallest session that was used for two minutes, if it is smaller than `size`."""
        smallest = min(
            (it for it in self._sessions.values() if it.used_at - it.began_at > SILENT_SECONDS),
            key=lambda it: (len(it.places), it.session_id),
            default=None,
        )
        if smallest is None or size <= len(smallest.places):
            return False
        self.end(smallest.session_id)
        return True
