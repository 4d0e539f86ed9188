"""From the files of a log to its state: what opening does, after a clean end or after a crash.

What the checkpoint describes is believed, if the files have the sizes that it says: nothing before
it is read. What follows is read batch by batch. Batches that are found count, acknowledged or not,
so they are flushed before anybody may see them.

Without a usable checkpoint (it was damaged, or files are not what it says) the same is done from
the first batch on, beginning with the producers of the snapshot at that place, if there is one.

A crash leaves a log torn only behind what the checkpoint vouches for. How far it can be torn there
depends on what ended the last run:

- The broker was killed (`same_boot`): the system still has all that was appended. Only the last
  batch of the last segment can be incomplete; it is cut off.
- The system was started anew: pages may have reached the disk in any order. The log ends at the
  first bad batch, since a flush goes through a log from the front. What follows is cut off, and
  kept in files beside (`tail.py`).

Everything else is damage, which no crash explains: `DamagedLog`. So is whatever is wrong or missing
where the checkpoint vouches for it. Then nothing is changed, and a person decides
(`odradek log repair`): all is read and judged first, and files are changed after it. What is cut
off is on disk before the log is used, so that a second crash cannot bring it back.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from odradek.broker.env import Disk
from odradek.broker.storage.chain import ChainRules
from odradek.broker.storage.checkpoint import BESIDE, CHECKPOINT, Checkpoint, read_checkpoint
from odradek.broker.storage.damage import UNKNOWN_PAST, DamagedLog, Rules
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    OpenFiles,
    file_offset,
    file_path,
    offsets_in,
)
from odradek.broker.storage.leader_epochs import LeaderEpochs
from odradek.broker.storage.producers import Producers
from odradek.broker.storage.rebuild import (
    note_transaction,
    rebuild_aborted,
    rebuild_indexes,
    snapshot_at,
)
from odradek.broker.storage.replacement import CLEANED, put_in_place
from odradek.broker.storage.segment import (
    NO_TIMESTAMP,
    DamagedIndex,
    DamagedSegment,
    Segment,
    SegmentSummary,
)
from odradek.broker.storage.tail import KEPT_BESIDE, Cut, cut_off, examine_tail, keep_file
from odradek.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_good, read_header

LOGGER: Final = logging.getLogger(__name__)
READ_BYTES: Final = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class LogState:
    """All that a log is, besides its files. The last segment is the active one."""

    segments: list[Segment]
    producers: Producers = field(default_factory=Producers)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    log_start_offset: int = 0
    clean_offset: int = 0
    """Below it no key has two values, and offsets may be missing."""
    has_replaced: bool = False
    """Whether the checkpoint on disk names segments that have been replaced."""


@dataclass(slots=True, kw_only=True)
class Recovered:
    """The state of a log that was opened, and what it took."""

    state: LogState
    checkpoint: Checkpoint | None
    read_bytes: int = 0
    """Batches that were not covered by the checkpoint."""
    cut_off_bytes: int = 0
    is_changed: bool = False


def take_account(
    state: LogState, segment: Segment, header: BatchHeader, batch: memoryview, now_ms: int
) -> None:
    """Apply a batch that is in the log to producers, epochs and aborted transactions."""
    state.epochs.assign(header.partition_leader_epoch, header.base_offset)
    entry = note_transaction(state.producers, header, batch, now_ms)
    if entry is not None:
        assert segment.aborted is not None
        segment.aborted.append(entry)


async def good_batches(
    segment: Segment, gaps_before: int
) -> AsyncGenerator[tuple[int, BatchHeader, memoryview], None]:
    """Every batch behind those of `segment`, with its position, up to the first that is not good.

    A batch begins at the offset at which the one before it ended, or behind that as long as it is
    below `gaps_before`.
    """
    position, next_offset = segment.size_bytes, segment.next_offset
    end = segment.file.size
    wanted = READ_BYTES
    while end - position >= HEADER_BYTES:
        chunk = memoryview(await segment.file.pread(position, min(wanted, end - position)))
        at = 0
        wanted = READ_BYTES
        while len(chunk) - at >= HEADER_BYTES:
            header = read_header(chunk, at)
            size_bytes = header.size_bytes
            if not is_plausible(header, next_offset, gaps_before):
                return
            if position + at + size_bytes > end:
                return
            if at + size_bytes > len(chunk):
                wanted = max(READ_BYTES, size_bytes)
                break
            batch = chunk[at : at + size_bytes]
            if not crc_is_good(batch, header):
                return
            yield position + at, header, batch
            next_offset = header.next_offset
            at += size_bytes
        position += at


def is_plausible(header: BatchHeader, next_offset: int, gaps_before: int) -> bool:
    return (
        header.magic == MAGIC
        and header.size_bytes >= HEADER_BYTES
        and (header.base_offset == next_offset or next_offset < header.base_offset < gaps_before)
        and header.last_offset_delta >= 0
    )


class Recovery:
    """One log being opened. `run` does it all."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        *,
        now_ms: int,
        index_interval_bytes: int,
        is_compacted: bool = False,
        rules: Rules = UNKNOWN_PAST,
    ) -> None:
        self._files = files
        self._disk: Disk = files.disk
        self._directory = directory
        self._now_ms = now_ms
        self._interval_bytes = index_interval_bytes
        self._rules = rules
        self._vouched_offset = 0
        """Up to where batches are known to have been on disk."""
        self._is_compacted = is_compacted
        self._gaps_before = 0
        """Below it offsets may be missing, but never at the end of a segment."""
        self._has_replaced = False
        # what is to be done once nothing is found that forbids it
        self._cuts: list[Cut] = []
        self._dropped: list[int] = []
        self._stale: list[int] = []
        self._read: list[Segment] = []

    async def run(self) -> Recovered:
        """Raises OSError; DamagedLog if nothing should be done without a person."""
        checkpoint = await read_checkpoint(self._disk, self._directory)
        if checkpoint is not None:
            self._finish_replacement(checkpoint)
        bases = offsets_in(self._disk.listdir(self._directory), LOG)
        if checkpoint is not None:  # files before its first segment were about to be removed
            bases = [base for base in bases if base >= checkpoint.segments[0].base_offset]
        if bases and (self._is_compacted or (checkpoint is not None and checkpoint.clean_offset)):
            known = bases[-1] if checkpoint is None else checkpoint.segments[-1].base_offset
            self._gaps_before = known
        self._check_nothing_is_lost(checkpoint, bases)
        if checkpoint is not None and not self._rules.read_all and self._matches(checkpoint, bases):
            recovered = await self._from_checkpoint(checkpoint)
        else:
            if not (self._rules.read_all or self._never_had_checkpoint(bases)):
                LOGGER.warning(
                    "%s: its checkpoint is missing or is not about these files; all is read",
                    self._directory,
                )
            recovered = await self._from_the_start(bases, checkpoint)
        state = recovered.state
        state.has_replaced = self._has_replaced
        recovered.is_changed |= self._has_replaced
        following = [base for base in bases if base > state.segments[-1].base_offset]
        await self._read_on(recovered, following)
        await self._carry_out(recovered)
        if self._remove_leftovers(state):
            recovered.is_changed = True
        if recovered.is_changed and (bases or checkpoint is not None):
            await state.segments[-1].sync()
            await self._disk.fsync_dir(self._directory)
        return recovered

    def _never_had_checkpoint(self, bases: list[int]) -> bool:
        """Return True if this may be a log so young that none was written yet."""
        if bases and bases[0]:
            return False
        return not self._disk.exists(f"{self._directory}/{CHECKPOINT}")

    def _finish_replacement(self, checkpoint: Checkpoint) -> None:
        if checkpoint.replaced:
            (new,) = [s for s in checkpoint.segments if s.base_offset == checkpoint.replaced[0]]
            put_in_place(self._disk, self._directory, new, checkpoint.replaced)
            self._has_replaced = True

    # where to begin

    def _check_nothing_is_lost(self, checkpoint: Checkpoint | None, bases: list[int]) -> None:
        """Note up to where batches are known to have been on disk. Raises DamagedLog."""
        if self._rules.accept_losses:
            return
        if checkpoint is None:
            # Indexes are written behind a flush, so all before the last of them was on disk.
            indexed = [base for base in bases if self._has_index(base)]
            self._vouched_offset = indexed[-1] if indexed else 0
            return
        self._vouched_offset = checkpoint.recovery_offset
        for summary in checkpoint.segments:
            path = file_path(self._directory, summary.base_offset, LOG)
            if not summary.size_bytes:
                continue
            if summary.base_offset not in bases:
                raise DamagedLog(path, 0, summary.base_offset, "the file is missing")
            size_bytes = self._disk.size(path)
            if size_bytes < summary.size_bytes:
                problem = f"it ends there, and had {summary.size_bytes} bytes on disk"
                raise DamagedLog(path, size_bytes, summary.base_offset, problem)

    def _has_index(self, base: int) -> bool:
        return any(
            self._disk.exists(file_path(self._directory, base, suffix))
            for suffix in (OFFSET_INDEX, TIME_INDEX)
        )

    def _matches(self, checkpoint: Checkpoint, bases: list[int]) -> bool:
        """Whether the files are those that the checkpoint describes."""
        *sealed, active = checkpoint.segments
        found = [base for base in bases if sealed_or_active(base, checkpoint)]
        if found != [summary.base_offset for summary in checkpoint.segments]:
            return False
        return (
            all(self._size_is(LOG, s, s.size_bytes) for s in sealed)
            and self._has_at_least(LOG, active.base_offset, active.size_bytes)
            and active.next_offset == checkpoint.recovery_offset
        )

    def _size_is(self, suffix: str, summary: SegmentSummary, size_bytes: int) -> bool:
        path = file_path(self._directory, summary.base_offset, suffix)
        return self._disk.size(path) == size_bytes

    def _has_at_least(self, suffix: str, base_offset: int, size_bytes: int) -> bool:
        path = file_path(self._directory, base_offset, suffix)
        return size_bytes == 0 or (self._disk.exists(path) and self._disk.size(path) >= size_bytes)

    async def _from_checkpoint(self, checkpoint: Checkpoint) -> Recovered:
        segments = [
            Segment.restored(self._files, self._directory, summary)
            for summary in checkpoint.segments
        ]
        active = segments[-1]
        state = LogState(
            segments=segments,
            producers=Producers(checkpoint.producers),
            epochs=LeaderEpochs(checkpoint.epochs),
            log_start_offset=checkpoint.log_start_offset,
            clean_offset=checkpoint.clean_offset,
        )
        recovered = Recovered(state=state, checkpoint=checkpoint)
        try:
            recovered.is_changed = await self._load_active(state)
        except DamagedSegment as error:
            LOGGER.warning("%s; all is read", error)
            bases = [segment.base_offset for segment in segments]
            return await self._from_the_start(bases, checkpoint)
        active.unseal()
        return recovered

    async def _load_active(self, state: LogState) -> bool:
        """Load the active segment's indexes; True if one had to be made again."""
        segments, active = state.segments, state.segments[-1]
        rules = ChainRules(epochs=state.epochs, gaps_before=self._gaps_before)
        is_changed = False
        try:
            await active.load_indexes()
        except DamagedIndex as error:
            LOGGER.warning("%s: it is made again from the log", error)
            await rebuild_indexes(active, self._files, self._directory, rules, self._interval_bytes)
            is_changed = True
        try:
            await active.load_aborted()
        except DamagedIndex as error:
            LOGGER.warning("%s: it is made again from the log", error)
            await rebuild_aborted(segments, len(segments) - 1, self._files, self._directory, rules)
            is_changed = True
        return is_changed

    async def _from_the_start(self, bases: list[int], checkpoint: Checkpoint | None) -> Recovered:
        first = bases[0] if bases else 0
        log_start_offset = first
        if checkpoint is not None:
            log_start_offset = max(first, checkpoint.log_start_offset)
            if not bases:
                first = log_start_offset = checkpoint.recovery_offset
        self._stale += bases
        state = LogState(
            segments=[Segment(self._files, self._directory, first)],
            producers=await self._producers_before(first),
            log_start_offset=log_start_offset,
            clean_offset=0 if checkpoint is None else checkpoint.clean_offset,
        )
        if checkpoint is not None and not bases:
            state.producers = Producers(checkpoint.producers)
        # A broker may have thousands of logs in which nothing was ever appended: for those nothing
        # is flushed at the start.
        has_data = bool(bases) and self._disk.size(state.segments[0].path()) > 0
        is_changed = has_data or not self._never_had_checkpoint(bases)
        return Recovered(state=state, checkpoint=checkpoint, is_changed=is_changed)

    async def _producers_before(self, offset: int) -> Producers:
        found = await snapshot_at(self._disk, self._directory, offset, self._now_ms)
        return found or Producers()

    # what follows

    async def _read_on(self, recovered: Recovered, following: list[int]) -> None:
        """Read the active segment from where it is known, and those that came after it.

        Raises DamagedLog.
        """
        segments = recovered.state.segments
        await self._read_segment(recovered, segments[-1], next(iter(following), None))
        for number, base in enumerate(following, 1):
            last = segments[-1]
            if self._dropped or base != last.next_offset:
                self._drop(recovered, last, base)
                continue
            last.seal()
            self._stale.append(base)
            segments.append(Segment(self._files, self._directory, base))
            recovered.is_changed = True
            await self._read_segment(
                recovered, segments[-1], following[number] if following[number:] else None
            )
        last, state = segments[-1], recovered.state
        if self._rules.accept_losses:  # deleted records may be among them
            state.log_start_offset = min(state.log_start_offset, last.next_offset)
            state.clean_offset = min(state.clean_offset, last.next_offset)
        if last.next_offset < self._vouched_offset:
            problem = f"batches up to offset {self._vouched_offset} are missing"
            raise DamagedLog(last.path(), last.size_bytes, last.next_offset, problem)

    async def _read_segment(
        self, recovered: Recovered, segment: Segment, next_base: int | None
    ) -> None:
        """Take account of the good batches, and judge what follows them. Raises DamagedLog."""
        if not self._disk.exists(segment.path()):
            recovered.is_changed = True
        elif self._disk.size(segment.path()) == segment.size_bytes:
            return
        start = segment.size_bytes
        async with aclosing(good_batches(segment, self._gaps_before)) as batches:
            async for position, header, batch in batches:
                if header.partition_leader_epoch < recovered.state.epochs.latest:
                    break  # a flipped bit: the epoch is outside of the CRC, and never goes back
                if segment.first_append_ms < 0:
                    segment.first_append_ms = self._now_ms
                segment.note(
                    position,
                    header.size_bytes,
                    header.last_offset,
                    header.max_timestamp if header.record_count else NO_TIMESTAMP,
                    self._interval_bytes,
                )
                take_account(recovered.state, segment, header, batch, self._now_ms)
        recovered.read_bytes += segment.size_bytes - start
        recovered.is_changed = True
        self._read.append(segment)
        if segment.file.size > segment.size_bytes:
            await self._judge(recovered, segment, next_base)

    async def _judge(self, recovered: Recovered, segment: Segment, next_base: int | None) -> None:
        """Decide what becomes of the bytes behind the good batches. Raises DamagedLog."""
        position, offset = segment.size_bytes, segment.next_offset
        tail = await examine_tail(segment.file, position, offset)
        is_torn = tail.is_cut_short and next_base is None
        # An append that failed may leave bytes behind, and the log go on in the next segment.
        nothing_is_missing = next_base == offset
        if not (nothing_is_missing or self._rules.accept_losses) and (
            offset < self._vouched_offset or (self._rules.same_boot and not is_torn)
        ):
            raise DamagedLog(segment.path(), position, offset, tail.problem)
        is_kept = not (self._rules.same_boot and tail.is_cut_short)
        self._cuts.append(Cut(segment, segment.file.size, is_kept, tail))
        recovered.cut_off_bytes += segment.file.size - position

    def _drop(self, recovered: Recovered, last: Segment, base: int) -> None:
        """Cut off a segment behind a place where the log ends. Raises DamagedLog."""
        is_known = base < self._vouched_offset or self._rules.same_boot
        if is_known and not self._rules.accept_losses:
            problem = f"what should follow it up to offset {base} is missing"
            raise DamagedLog(last.path(), last.size_bytes, last.next_offset, problem)
        recovered.cut_off_bytes += self._disk.size(file_path(self._directory, base, LOG))
        self._dropped.append(base)
        recovered.is_changed = True

    # what was decided

    async def _carry_out(self, recovered: Recovered) -> None:
        """Change the files. What is cut off is kept beside, on disk, before it is gone here."""
        for cut in self._cuts:
            await cut_off(self._disk, self._directory, cut)
        for base in self._dropped:
            path = file_path(self._directory, base, LOG)
            if self._disk.size(path):
                kept = keep_file(self._disk, self._directory, path, base)
                LOGGER.warning("%s comes after the end of the log, and is kept as %s", path, kept)
            else:
                self._disk.remove(path)
        for base in (*self._stale, *self._dropped):
            self._remove_indexes(base)
        for segment in self._read:
            if segment is not recovered.state.segments[-1]:
                await segment.sync()
                segment.close()

    # what nobody needs

    def _remove_indexes(self, base: int) -> None:
        for suffix in (OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX):
            path = file_path(self._directory, base, suffix)
            if self._disk.exists(path):
                self._disk.remove(path)

    def _remove_leftovers(self, state: LogState) -> bool:
        """Files of segments that are not part of the log, and snapshots that cannot be used.

        Whether it matters that they stay away: a snapshot from beyond the end would be wrong as
        soon as the log is as long again.
        """
        bases = {segment.base_offset for segment in state.segments}
        end_offset = state.segments[-1].next_offset
        matters = False
        for name in self._disk.listdir(self._directory):
            stray = name in (BESIDE, KEPT_BESIDE) or name.endswith(CLEANED)
            for suffix in SEGMENT_SUFFIXES:
                offset = file_offset(name, suffix)
                stray = stray or (offset is not None and offset not in bases)
            offset = file_offset(name, SNAPSHOT)
            if offset is not None and offset not in bases and offset != end_offset:
                stray = True
            if stray:
                self._disk.remove(f"{self._directory}/{name}")
                matters = matters or (offset is not None and offset > end_offset)
        return matters


def sealed_or_active(base: int, checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint must know of a segment: it is no newer than its last."""
    first, last = checkpoint.segments[0].base_offset, checkpoint.segments[-1].base_offset
    return first <= base <= last
