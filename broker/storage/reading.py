"""Reading a log: which segment has an offset, what of it a reader gets, which of it was aborted.

While somebody reads, segments may be thrown away, or a compacted one may take the place of several.
Whoever has begun with a segment that is not there any more looks for the offset anew. A compacted
log has gaps: reading at an offset that is gone begins with the next that is there.
"""

import logging
from bisect import bisect_right
from operator import attrgetter
from typing import Final

from odradek.broker.env import Buffer
from odradek.broker.storage.aborted import AbortedTransaction
from odradek.broker.storage.recovery import LogState
from odradek.broker.storage.segment import DamagedSegment, Segment
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
LOADED_SEGMENTS_MAX: Final = 8
"""Sealed segments of one log whose indexes are kept in memory."""


class LogReader:
    """Reads what `state` consists of; `name` is the log's, for messages."""

    def __init__(self, name: str, state: LogState) -> None:
        self._name = name
        self._state = state
        self._segments = state.segments
        self._loaded: dict[Segment, None] = {}
        self.is_closed = False
        self.removal_count = 0
        """How many segments have been thrown away, or replaced by compacted ones."""

    def segment_at(self, offset: int) -> int:
        """Number of the segment that has `offset`; -1 if it is below the first."""
        return bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1

    async def read(
        self, offset: int, max_bytes: int, *, to_offset: int, min_one: bool
    ) -> tuple[Buffer, int]:
        """Whole batches from the one that has `offset` on, below `to_offset`, out of one segment.

        At most `max_bytes`, but with `min_one` at least one batch. Also an offset that they are all
        below. Raises KafkaError OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        from_offset = offset
        while True:
            number = self.segment_at(offset)
            if number < 0:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{self._name}: {offset} was deleted"
                )
            segment = self._segments[number]
            try:
                found = await self._read_in(segment, offset, max_bytes, to_offset, min_one)
            except (OSError, DamagedSegment) as error:
                if self._was_replaced(segment, offset):
                    continue
                raise self._read_error(offset, error) from error
            if found is not None:
                return found
            if segment.next_offset >= to_offset or segment is self._segments[-1]:
                return b"", from_offset
            offset = max(offset, segment.next_offset)

    async def _read_in(
        self, segment: Segment, offset: int, max_bytes: int, to_offset: int, min_one: bool
    ) -> tuple[Buffer, int] | None:
        """What `read` answers, or None if the segment has nothing in [offset, to_offset)."""
        await self.load(segment)
        start = await segment.locate(offset)
        end = await segment.locate(to_offset)
        if end <= start:
            return None
        bound: int | None = min(to_offset, segment.next_offset)
        if end - start > max_bytes:
            end, bound = await segment.last_boundary(start, start + max_bytes)
            if end == start and min_one:
                end, bound = await segment.batch_end(start), None
            if end == start:
                return b"", offset
        data = await segment.read(start, end)
        return data, to_offset if bound is None else min(bound, to_offset)

    def _was_replaced(self, segment: Segment, offset: int) -> bool:
        return segment.is_deleted and not self.is_closed and offset >= self._state.log_start_offset

    def _read_error(self, offset: int, error: OSError | DamagedSegment) -> KafkaError:
        if self.is_closed:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._name} was deleted")
        if offset < self._state.log_start_offset:  # deleted meanwhile
            return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self._name}: {offset} was deleted")
        LOGGER.error("%s cannot be read at offset %d: %s", self._name, offset, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._name} cannot be read: {error}")

    async def load(self, segment: Segment) -> None:
        """Have a sealed segment's indexes in memory; those used least lately are dropped.

        Raises OSError, DamagedSegment.
        """
        if segment.is_sealed:
            self._loaded.pop(segment, None)
            self._loaded[segment] = None
            if len(self._loaded) > LOADED_SEGMENTS_MAX:
                oldest = next(iter(self._loaded))
                del self._loaded[oldest]
                oldest.unload()
            await segment.load_indexes()

    def has_loaded(self, segment: Segment) -> bool:
        return segment in self._loaded

    def forget(self, segment: Segment) -> None:
        """The segment is not part of the log any more."""
        segment.close()
        segment.is_deleted = True
        self.removal_count += 1
        self._loaded.pop(segment, None)

    async def aborted(self, from_offset: int, to_offset: int) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that touch [from, to), ascending by first offset.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        while True:
            found: list[AbortedTransaction] = []
            segment = self._segments[0]
            try:
                for segment in self._segments[max(0, self.segment_at(from_offset)) :]:
                    index = segment.aborted or await segment.load_aborted()
                    if index.collect(from_offset, to_offset, found):
                        break
            except (OSError, DamagedSegment) as error:
                if self._was_replaced(segment, from_offset):
                    continue
                raise self._read_error(from_offset, error) from error
            found.sort(key=attrgetter("first_offset"))
            return tuple(found)
