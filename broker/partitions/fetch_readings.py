"""The partitions that a Fetch reads, and their news: the *source* that `fetch_polling.py` polls.

It is a fetch that lists everything (`WholeFetch`), or a session (`SessionFetch`), whose source
names the partitions that are ready each time before they are read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol
from uuid import UUID

from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.fetch_sessions import FetchSession, SessionPlace, next_epoch
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.partitions.reader_epochs import NOT_SAID, check_leader_epoch
from odradek.broker.partitions.watch import Watch
from odradek.broker.values.answer_size import ANSWER_ITEM_BYTES
from odradek.late import dataclass
from odradek.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.schema import ZERO_UUID

READING_STEPS: Final = 3
"""The cost of looking up one partition, in steps of a turn."""
NOT_FOUND: Final[Mapping[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_ID: 1,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 2,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
}
"""The errors for which a partition is not read, in the order in which an answer has them."""


@dataclass(slots=True)
class Reading:
    """A request for one partition, and what it has found."""

    topic_number: int
    wanted: FetchPartition
    leader: Leader | None = None
    error: KafkaError | None = None
    topic: str = ""
    place: SessionPlace | None = None
    """Where it is in the session; None without one."""
    was_there: bool = True
    """False if it was not found when the fetch began."""

    def look_up(self, partitions: Partitions, topic: str, topic_id: UUID) -> None:
        """Find the partition. `topic_id` is zero for a client that names its topics."""
        self.topic = topic
        try:
            found = partitions.leader(topic, self.wanted.partition)
            self.leader = found
            if topic_id != ZERO_UUID and found.log.topic_id != topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            # Any negative epoch is none; in other requests only -1 is.
            check_leader_epoch(found, max(NOT_SAID, self.wanted.current_leader_epoch))
        except KafkaError as error:
            self.error = error

    # invariant authorization 4
    def ask_right(self, may_read: Callable[[str], bool]) -> None:
        """Refuse the partition if its topic may not be read any more."""
        if self.leader is not None and not may_read(self.topic):
            self.leader = None
            self.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    @property
    def is_found(self) -> bool:
        return self.error is None or self.error.code not in NOT_FOUND


@dataclass(frozen=True, slots=True)
class Asked:
    """The partitions that a fetch reads now, and the bytes that it may return."""

    readings: Sequence[Reading]
    partitions_bytes: int = 0
    batch_bytes: int = 0
    """One batch is returned whatever the request's limits are; this is the largest one."""
    found_count: int = 0

    @property
    def items_bytes(self) -> int:
        return len(self.readings) * ANSWER_ITEM_BYTES


async def to_asked(readings: Sequence[Reading], turns: Turns) -> Asked:
    partitions_bytes = batch_bytes = found_count = 0
    for reading in readings:
        await turns.take()
        found_count += reading.is_found
        partitions_bytes += max(0, reading.wanted.partition_max_bytes)
        if reading.leader is not None:
            batch_bytes = max(batch_bytes, reading.leader.log.config.max_message_bytes)
    return Asked(readings, partitions_bytes, batch_bytes, found_count)


class Awaited(Protocol):
    """Returned by `Source.watch`."""

    async def wait(self) -> None: ...


class Source(Protocol):
    """The partitions of one fetch, and their news."""

    @property
    def is_over(self) -> bool:
        """True if there is no use in waiting."""
        ...

    def may_read(self, topic: str, /) -> bool:
        """Return True if the client may read a topic now."""
        ...

    async def collect(self) -> Asked:
        """Return what is to be read now, and watch for news of it."""
        ...

    def watch(self) -> AbstractContextManager[Awaited]:
        """Enter with what waits for news since the last `collect`."""
        ...


class WholeFetch:
    """A fetch that lists everything. Its partitions are looked up once."""

    def __init__(self, asked: Asked, may_read: Callable[[str], bool]) -> None:
        self._asked = asked
        self.may_read = may_read

    @property
    def is_over(self) -> bool:
        return not self._asked.found_count

    async def collect(self) -> Asked:
        return self._asked

    def watch(self) -> AbstractContextManager[Awaited]:
        return Watch(
            reading.leader.marks.readers
            for reading in self._asked.readings
            if reading.leader is not None
        )


class SessionFetch:
    """An incremental fetch: the partitions that are ready, looked up each time."""

    def __init__(
        self,
        session: FetchSession,
        request: FetchRequest,
        partitions: Partitions,
        *,
        name_of: Callable[[UUID], str],
        may_read: Callable[[str], bool],
        rights: object,
        refuses: bool,
    ) -> None:
        """`name_of` has the name of a topic by its id; "" if there is none.

        `rights` is another object when that
        may have changed. `refuses` is true for a client that asks as a follower.
        """
        self._partitions = partitions
        self._name_of = name_of
        self._session = session
        self._epoch = next_epoch(request.session_epoch)
        self.may_read = may_read
        self._refuses = refuses
        session.note_rights(rights)
        self._news = session.watch_news()
        self._not_found: frozenset[SessionPlace] | None = None
        """The partitions that were not found when the fetch began."""

    @property
    def is_over(self) -> bool:
        """True if the session has ended, goes on with a later fetch, or has nothing to read."""
        if self._session.is_ended or self._session.epoch != self._epoch:
            return True
        return len(self._not_found or ()) == len(self._session.places)

    async def collect(self) -> Asked:
        self._news = self._session.watch_news()
        turns = Turns()
        readings = []
        for place in self._session.in_turn():
            await turns.take(READING_STEPS)
            readings.append(self._reading(place))
        if self._not_found is None:
            self._not_found = frozenset(
                reading.place
                for reading in readings
                if reading.place is not None and not reading.is_found
            )
        for reading in readings:
            await turns.take()
            reading.was_there = reading.place not in self._not_found
        return await to_asked(readings, turns)

    def _reading(self, place: SessionPlace) -> Reading:
        reading = Reading(0, place.wanted, place=place)
        if self._session.by_id and not place.topic:
            place.topic = self._name_of(place.topic_id)
        if self._refuses:
            reading.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif self._session.by_id and not place.topic:
            reading.error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        elif not self.may_read(place.topic):
            reading.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            reading.look_up(self._partitions, place.topic, place.topic_id)
        place.watch(reading.leader)
        return reading

    def watch(self) -> AbstractContextManager[Awaited]:
        return nullcontext(self._news)
