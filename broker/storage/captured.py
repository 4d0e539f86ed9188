"""The appends of one log that the journal has not got yet, as copies."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.broker.environment.env import Buffer
from odradek.broker.storage.files import OpenFiles, name_of
from odradek.broker.storage.journal import BrokerJournal
from odradek.broker.storage.journal_file import LogKey, RecordKind
from odradek.broker.storage.segment import Segment
from odradek.broker.values.topic_partition import partition_of

CAPTURED_MAX_BYTES: Final = 64 * 1024
"""A log that grows by more in one turn is flushed itself: the journal would write it twice."""


class Piece(NamedTuple):
    """Bytes that were appended to a segment at `position`. `base_offset` is the end before."""

    segment_base: int
    position: int
    base_offset: int
    next_offset: int
    data: bytes


class Captured:
    """The pieces from `base_offset` to the end of the log, without a gap."""

    def __init__(self, journal: BrokerJournal, key: LogKey, log_end_offset: int) -> None:
        self.journal: Final = journal
        self.key: Final = key
        self.base_offset = log_end_offset
        self._pieces: list[Piece] = []
        self._size_bytes = 0

    @classmethod
    def of(
        cls, files: OpenFiles, directory: str, topic_id: UUID, log_end_offset: int
    ) -> "Captured | None":
        """Return what is captured of a log at its start; None without a journal."""
        where = partition_of(name_of(directory))
        if files.journal is None or where is None:
            return None
        return cls(files.journal, (topic_id.bytes, where.partition), log_end_offset)

    def add(
        self, segment: Segment, base_offset: int, next_offset: int, batches: Sequence[Buffer]
    ) -> None:
        """Take a copy of what was appended, or forget everything if it is too much."""
        size_bytes = sum(map(len, batches))
        self._size_bytes += size_bytes
        if self._size_bytes > CAPTURED_MAX_BYTES:
            self.forget(next_offset)
            return
        position = segment.size_bytes - size_bytes
        data = b"".join(batches)
        self._pieces.append(Piece(segment.base_offset, position, base_offset, next_offset, data))

    def on_cut(self, log_end_offset: int) -> None:
        """Note that the log was cut."""
        self.forget(log_end_offset)
        # The checkpoint of the cut says that earlier records count no more. The note says it to
        # recovery if that checkpoint is damaged.
        if self.journal.is_begun:
            self.journal.add(None, self.key, RecordKind.CUT, log_end_offset, log_end_offset)

    def forget(self, log_end_offset: int) -> None:
        """Forget everything: the log ends here, and must be flushed itself up to this offset."""
        self._pieces.clear()
        self._size_bytes = 0
        self.base_offset = log_end_offset

    def take(self, from_offset: int) -> list[Piece]:
        """Return the pieces from an offset on, and forget all of them."""
        taken = [piece for piece in self._pieces if piece.base_offset >= from_offset]
        self.forget(self._pieces[-1].next_offset if self._pieces else self.base_offset)
        return taken
