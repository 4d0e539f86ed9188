"""The reading side of a log: find the segment of an offset, read batches, list aborted ones.

During a read, retention may delete the segment or compaction may replace it. The read then starts
again and looks up the segment of its offset. A compacted log has gaps: a read at a missing offset
starts at the next offset that exists.

A read checks each batch header against the header before it (`chain.py`). If a header is wrong, the
reader gets an error and never the bytes. A damaged index is rebuilt from the log (`rebuild.py`).
"""

import logging
from bisect import bisect_right
from operator import attrgetter
from typing import Final

import trio

from odradek.broker.environment.env import Buffer
from odradek.broker.storage.aborted import AbortedIndex, AbortedTxn
from odradek.broker.storage.chain import BrokenChain, Chain, ChainRules
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import DamagedIndex, DamagedSegment
from odradek.broker.storage.files import ABORTED_INDEX, OFFSET_INDEX, TIME_INDEX, OpenFiles
from odradek.broker.storage.index import TimeIndex
from odradek.broker.storage.log_state import LogState
from odradek.broker.storage.rebuild import check_snapshot, rebuild_aborted, rebuild_indexes
from odradek.broker.storage.segment import Segment
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
LOADED_SEGMENTS_MAX: Final = 8
"""The most sealed segments of one log whose indexes are kept in memory."""
BATCHES_PER_TURN: Final = 2000
"""Headers checked between two trio checkpoints: about a millisecond."""


class LogReader:
    """The reader of the log in `directory` whose state is `state`."""

    def __init__(
        self, files: OpenFiles, directory: str, config: LogConfig, state: LogState
    ) -> None:
        self._files = files
        self._directory = directory
        self._name = directory.rpartition("/")[2]
        self.config = config
        self._state = state
        self._segments = state.segments
        self._loaded: dict[Segment, None] = {}
        self._rebuilding = trio.Lock()
        self._last_error = ""
        self.damage: str | None = None
        """What was found damaged by reading, in words; None if nothing was."""
        self.has_rebuilt = False
        """True if indexes were rebuilt in memory and their files are not written yet."""
        self.is_closed = False
        self.removal_count = 0
        """The number of segments that retention deleted or compaction replaced."""

    def segment_at(self, offset: int) -> int:
        """Return the number of the segment with `offset`, -1 if it is below the first segment."""
        return bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1

    async def read(
        self, offset: int, max_bytes: int, *, to_offset: int, min_one: bool
    ) -> tuple[Buffer, int]:
        """Read whole batches of one segment, from the batch with `offset` on, below `to_offset`.

        Return them and an offset that all of them are below. They have at most `max_bytes`; with
        `min_one` there is at least one batch. Raises KafkaError OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
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
                # Compaction replaced the segment while the read waited for the disk.
                if self._was_replaced(segment, offset):
                    continue
                raise self._read_error(offset, error) from error
            if found is not None:
                return found
            # Compaction may have removed all records from `offset` to the end of the segment. The
            # next batch is then in a later segment.
            if segment.next_offset >= to_offset or segment is self._segments[-1]:
                return b"", from_offset
            offset = max(offset, segment.next_offset)

    async def _read_in(
        self, segment: Segment, offset: int, max_bytes: int, to_offset: int, min_one: bool
    ) -> tuple[Buffer, int] | None:
        """Return the result of `read`, or None if the segment has nothing below `to_offset`."""
        await self.load(segment)
        rules = self.rules
        start, first_offset = await segment.locate(offset, rules)
        end, _ = await segment.locate(to_offset, rules)
        if end <= start:
            return None
        bound: int | None = min(to_offset, segment.next_offset)
        if end - start > max_bytes:
            chain = Chain(rules, first_offset)
            end, bound = await segment.last_boundary(start, start + max_bytes, chain)
            if end == start and min_one:
                chain = Chain(rules, first_offset)
                end, bound = await segment.first_boundary(start, chain), None
            if end == start:
                return b"", offset
        data = await segment.read(start, end)
        bound = to_offset if bound is None else min(bound, to_offset)
        chain = Chain(rules, first_offset)
        await self._check(segment, start, data, chain, bound)
        if end < segment.size_bytes:
            segment.note_boundary(chain.next_offset, end)
        return data, bound

    @property
    def rules(self) -> ChainRules:
        """Return the rules that headers of this log follow."""
        # `clean_offset` also counts for a topic that is not compacted any more. Compaction never
        # touches the active segment: there a gap is damage, unless the leader sent it.
        gaps_before = max(self._state.clean_offset, self._state.gaps_before)
        if self.config.is_compacted:
            gaps_before = max(gaps_before, self._segments[-1].base_offset)
        return ChainRules(epochs=self._state.epochs, gaps_before=gaps_before)

    async def _check(
        self, segment: Segment, start: int, data: Buffer, chain: Chain, bound: int
    ) -> None:
        """Check the headers in `data`, read at position `start`. Raises DamagedSegment."""
        at = 0
        while at < len(data):
            began = at
            try:
                at = chain.follow(data, at, batches_max=BATCHES_PER_TURN)
            except BrokenChain as error:
                raise segment.damaged(start + error.at, str(error)) from error
            if at == began:
                raise segment.damaged(start + at, "a batch does not end where the next one begins")
            if at < len(data):
                await trio.lowlevel.checkpoint()
        # The length of the last batch is checked only against the next header, which may not be in
        # `data`. A damaged length must not show records above the last stable offset.
        if chain.next_offset > bound:
            raise segment.damaged(start, f"a batch before offset {bound} reaches beyond it")

    def _was_replaced(self, segment: Segment, offset: int) -> bool:
        return segment.is_deleted and not self.is_closed and offset >= self._state.log_start_offset

    def _read_error(self, offset: int, error: OSError | DamagedSegment) -> KafkaError:
        if self.is_closed:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._name} was deleted")
        if offset < self._state.log_start_offset:  # deleted during the read
            return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self._name}: {offset} was deleted")
        # Readers retry without end: one log line for each damage is enough.
        if str(error) != self._last_error:
            self._last_error = str(error)
            LOGGER.error("%s cannot be read at offset %d: %s", self._name, offset, error)
        # CORRUPT_MESSAGE is Kafka's code here: clients raise it to the application. They would
        # retry KAFKA_STORAGE_ERROR silently.
        is_damaged = isinstance(error, DamagedSegment)
        if is_damaged:
            self.note_damage(str(error))
        code = ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.KAFKA_STORAGE_ERROR
        return KafkaError(code, f"{self._name} cannot be read: {error}")

    def note_damage(self, problem: str) -> None:
        """Note what was found damaged, in words."""
        self.damage = problem
        self._files.in_trouble[self._directory] = None

    async def load(self, segment: Segment) -> None:
        """Load a sealed segment's indexes, and drop the least recently used ones.

        Raises OSError, DamagedSegment.
        """
        if segment.is_sealed:
            self._loaded.pop(segment, None)
            self._loaded[segment] = None
            if len(self._loaded) > LOADED_SEGMENTS_MAX:
                oldest = next(iter(self._loaded))
                del self._loaded[oldest]
                oldest.unload()
            if segment.indexes.loaded is None:
                await self._load_indexes(segment)

    async def _load_indexes(self, segment: Segment) -> None:
        async with self._rebuilding:
            try:
                await segment.indexes.load()
            except DamagedIndex as error:
                await self._rebuild_indexes(segment, error)

    async def _rebuild_indexes(self, segment: Segment, why: DamagedIndex) -> None:
        LOGGER.warning("%s: rebuilding it from the log", why)
        interval_bytes = self.config.index_interval_bytes
        await rebuild_indexes(segment, self._files, self._directory, self.rules, interval_bytes)
        self.has_rebuilt = True

    async def times_of(self, segment: Segment) -> TimeIndex:
        """Return a segment's time index. Raises KafkaError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE."""
        try:
            await self.load(segment)
            _, times = await segment.indexes.load()
        except (OSError, DamagedSegment) as error:
            raise self._read_error(segment.base_offset, error) from error
        return times

    async def load_aborted(self, segment: Segment) -> AbortedIndex:
        """Return a segment's aborted transactions. Raises OSError, DamagedSegment."""
        async with self._rebuilding:
            try:
                return await segment.indexes.load_aborted()
            except DamagedIndex as error:
                if segment.is_deleted:
                    raise
                await self._rebuild_aborted(segment, error)
            return await segment.indexes.load_aborted()

    async def _rebuild_aborted(self, segment: Segment, why: DamagedIndex) -> None:
        LOGGER.warning("%s: rebuilding it from the log", why)
        # An entry stands in the segment of its abort marker. The transaction may begin in an
        # earlier segment, so the rebuild reads those as well.
        segments = list(self._segments)
        number = segments.index(segment)
        await rebuild_aborted(segments, number, self._files, self._directory, self.rules)
        self.has_rebuilt = True

    async def check_beside(self, segment: Segment) -> None:
        """Check a sealed segment's indexes and snapshot, and rebuild those that are damaged.

        Raises OSError and DamagedSegment.
        """
        async with self._rebuilding:
            if segment.is_deleted or segment.indexes.unsaved():
                return
            try:
                for suffix in (OFFSET_INDEX, TIME_INDEX):
                    await segment.indexes.read(suffix, exactly=True)
            except DamagedIndex as error:
                await self._rebuild_indexes(segment, error)
            try:
                await segment.indexes.read(ABORTED_INDEX, exactly=True)
            except DamagedIndex as error:
                if not segment.is_deleted:
                    await self._rebuild_aborted(segment, error)
            segments = list(self._segments)
            if not segment.is_deleted:
                await check_snapshot(
                    segments, segments.index(segment), self._files, self._directory, self.rules
                )

    def has_loaded(self, segment: Segment) -> bool:
        return segment in self._loaded

    def forget(self, segment: Segment) -> None:
        """Note that the segment is not part of the log any more."""
        segment.delete()
        self.removal_count += 1
        self._loaded.pop(segment, None)

    async def aborted(self, from_offset: int, to_offset: int) -> tuple[AbortedTxn, ...]:
        """Return the aborted transactions that touch [from, to), ascending by first offset.

        Raises KafkaError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        while True:
            found: list[AbortedTxn] = []
            segment = self._segments[0]
            try:
                # The abort marker may be segments behind the records. The search goes on until an
                # entry shows that no later transaction can touch the range.
                # invariant readers 3
                for segment in self._segments[max(0, self.segment_at(from_offset)) :]:
                    index = segment.indexes.aborted or await self.load_aborted(segment)
                    if index.collect(from_offset, to_offset, found):
                        break
            except (OSError, DamagedSegment) as error:
                if self._was_replaced(segment, from_offset):
                    continue
                raise self._read_error(from_offset, error) from error
            # The index is in the order of the markers. Clients (librdkafka, brod, franz-go) rely on
            # the order of the first offsets.
            # invariant readers 4: The aborted transactions in a Fetch answer are sorted by first
            # offset.
            # plant the aborted list must be sorted by first offset
            found.sort(key=attrgetter("first_offset"))
            return tuple(found)
