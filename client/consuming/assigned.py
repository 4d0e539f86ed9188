"""One assigned partition of a consumer: its position, and the records that were fetched ahead."""

from collections import deque
from collections.abc import Sequence
from uuid import UUID

from odradek.client.consuming.fetched import Fetched
from odradek.client.consuming.read_epochs import UNKNOWN, ReadEpochs
from odradek.client.errors import OdradekError
from odradek.client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from odradek.protocol.apis.fetch import AbortedTransaction
from odradek.protocol.schema import ZERO_UUID, Buffer


class AssignedPartition:
    """A partition that is read in the order of its offsets."""

    __slots__ = (
        "_epochs",
        "_position",
        "error",
        "fetch_offset",
        "fetched",
        "high_watermark",
        "is_paused",
        "last_stable_offset",
        "max_bytes",
        "name",
        "not_before",
        "reset_to",
        "returned_id",
        "topic_id",
        "validated_epoch",
    )

    def __init__(self, name: TopicPartition, max_bytes: int) -> None:
        self.name = name
        self._position: int | None = None
        self._epochs = ReadEpochs()
        self.fetch_offset = -1
        self.validated_epoch = UNKNOWN
        """The leader epoch in whose log `fetch_offset` is; -1 as long as no leader was asked."""
        self.fetched: deque[Fetched] = deque()
        self.reset_to: int | None = None
        """EARLIEST or LATEST if the position was out of range and must be looked up again."""
        self.is_paused = False
        self.error: OdradekError | None = None
        self.max_bytes = max_bytes
        self.not_before = float("-inf")
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.topic_id = ZERO_UUID
        """The topic that the position belongs to; zero as long as that is not known."""
        self.returned_id = ZERO_UUID
        """The topic of the records that the program got last; zero before the first."""

    @property
    def unread_bytes(self) -> int:
        return sum(fetched.size_bytes for fetched in self.fetched)

    @property
    def read_id(self) -> UUID:
        """The topic of the records that the program got last, or of those that it gets first."""
        return self.topic_id if self.returned_id == ZERO_UUID else self.returned_id

    @property
    def is_placed(self) -> bool:
        """Return True if it is known where to read."""
        return self._position is not None

    def is_at(self, offset: int) -> bool:
        """Return True if seeking to this offset changes nothing."""
        return self._position == offset

    @property
    def position(self) -> int | None:
        """The next offset that is returned; None until it is looked up."""
        return self._position

    def position_before(self, unread: ConsumerRecord) -> int:
        """Return the position if the program has not got this record."""
        return unread.offset

    def to_store(self, unread: ConsumerRecord | None = None) -> OffsetAndMetadata:
        """Return the offset that a group stores. The program has not got `unread` yet."""
        assert self._position is not None, self.name
        offset = self._position if unread is None else unread.offset
        return self._with_epoch(OffsetAndMetadata(offset))

    def _with_epoch(self, stored: OffsetAndMetadata) -> OffsetAndMetadata:
        """Return an offset to store with the topic and the leader epoch that it belongs to."""
        leader_epoch = self._epochs.before(stored.offset)
        return stored._replace(leader_epoch=leader_epoch, topic_id=self.topic_id)

    @property
    def fetch_epoch(self) -> int:
        """The leader epoch of the record before `fetch_offset`; -1 if it is not known."""
        return self._epochs.before(self.fetch_offset)

    def to_fetched(self, records: Buffer, aborted: Sequence[AbortedTransaction]) -> Fetched:
        """Return what was fetched at `fetch_offset`. Raises as `Fetched` does."""
        return Fetched(self.name, self.fetch_offset, records, aborted)

    def add(self, fetched: Fetched) -> None:
        """Add what was fetched at `fetch_offset`, where the next fetch continues behind it."""
        if self._position is not None:
            self._epochs.forget_before(self._position)
        self._epochs.note(fetched.leader_epochs)
        self.fetch_offset = fetched.next_offset
        self.fetched.append(fetched)

    def take(self, count: int, check_crcs: bool) -> list[ConsumerRecord]:
        """Take up to `count` records of the first fetch; see `Fetched.take`."""
        assert self._position is not None, self.name
        return self.fetched[0].take(self._position, count, check_crcs)

    def forget_ended(self) -> None:
        """Note that the program has got all that was taken."""

    def note_passed(self, record: ConsumerRecord) -> None:
        """Note that the program gets the records up to this one."""
        self.returned_id = self.topic_id
        position = record.offset + 1
        if self._position is None or position > self._position:
            self._position = position

    def note_passed_batch(self, next_offset: int) -> None:
        """Note that the program gets a batch."""
        self.returned_id = self.topic_id
        self._position = next_offset

    def move(self, offset: int | None, leader_epoch: int = UNKNOWN) -> None:
        """Set the position, and forget what was fetched.

        The record before `offset` has `leader_epoch`, if it is known.
        """
        self._place(offset)
        self._epochs.begin(self.fetch_offset, leader_epoch)
        self.validated_epoch = UNKNOWN

    def _place(self, offset: int | None) -> None:
        if offset is None or offset > self.fetch_offset:
            self.validated_epoch = UNKNOWN
        self._position = offset
        self.fetch_offset = -1 if offset is None else offset
        self.fetched.clear()
        self.error = None
        self.reset_to = None

    def resume(self, stored: OffsetAndMetadata) -> None:
        """Continue where the group has stored an offset."""
        self.move(stored.offset, stored.leader_epoch)

    def begin_anew(self, topic_id: UUID, reset_to: int) -> None:
        """Leave a topic that was deleted for the one that has its name now."""
        self.move(None)
        self.topic_id, self.reset_to = topic_id, reset_to
        self.high_watermark = self.last_stable_offset = -1

    def go_back(self, unread: ConsumerRecord | None = None) -> None:
        """Fetch again what is behind the position, or from `unread` on."""
        self._place(self.position if unread is None else unread.offset)

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """Continue at `offset`, where the log was truncated."""
        self.move(offset, leader_epoch)

    def lose(self, reset_to: int) -> None:
        """Note that the log does not have the position. `found` then sets another one."""
        self.move(None)
        self.reset_to = reset_to

    def on_found(self, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """Begin at an offset that was looked up."""
        self.move(offset, leader_epoch)

    def skip_read(self) -> bool:
        """Drop the fetches that are read to their end. Return True if the position moved."""
        moved = False
        while self.fetched and self.fetched[0].is_empty:
            following = self.fetched.popleft().next_offset
            moved |= following != self._position
            self._position = following
        return moved
