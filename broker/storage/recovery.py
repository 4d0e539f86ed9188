"""Recovery: open a log and derive its state from its files, after a shutdown or a crash.

Recovery trusts the checkpoint if the files have the sizes that the checkpoint gives, and does not
read the batches below its recovery offset. It reads the batches from there on. Each batch that it
finds is part of the log, acknowledged or not, so all of them are flushed before a reader sees them.

Without a usable checkpoint (it is damaged, or the files do not match it) recovery reads the whole
log. It starts with the producer snapshot at the first offset, if there is one.

A crash can only tear the part of a log that the checkpoint does not cover. How much of it can be
torn depends on how the last run ended:

- The broker was killed (`same_boot`): the page cache still has every append. Only the last batch
  of the last segment can be incomplete. Recovery cuts it off.
- The machine was restarted: pages may have reached the disk in any order. The log ends at the
  first bad batch, because a flush writes a log from front to back. Recovery cuts off the rest and
  keeps it in separate files (`tail.py`). With a journal, the log ends where that says.

Everything else is damage that no crash explains (`Rules.is_damage`), and so is a wrong or missing
batch in the part that the checkpoint covers. Recovery then raises `DamagedLog`, changes nothing,
and leaves the decision to an operator (`odradek log repair`). For this reason recovery reads and
judges the whole log before it changes a file. A cut is on disk before the log is used: a second
crash cannot bring the bytes back.
"""

import logging
from contextlib import aclosing
from typing import Final
from uuid import UUID

from odradek.broker.environment.env import Disk
from odradek.broker.storage.agreement import check_ends, check_sizes, matches
from odradek.broker.storage.chain import ChainRules
from odradek.broker.storage.checkpoint import CHECKPOINT, Checkpoint, read_checkpoint
from odradek.broker.storage.cut import carry_out
from odradek.broker.storage.damage import (
    UNKNOWN_PAST,
    DamagedIndex,
    DamagedLog,
    DamagedSegment,
    ForeignFile,
    Rules,
)
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    GAPS,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    OpenFiles,
    file_path,
    name_of,
    offsets_in,
)
from odradek.broker.storage.good_batches import good_batches
from odradek.broker.storage.journal_replay import NOT_VOUCHED, check_readable, restore
from odradek.broker.storage.leader_epochs import OFFSET_MAX, LeaderEpochs
from odradek.broker.storage.leftovers import remove_leftovers
from odradek.broker.storage.log_start import LOG_START, WRONG, read_log_start
from odradek.broker.storage.log_state import LogState, Recovered, log_start_to_keep, take_account
from odradek.broker.storage.producers import Producers
from odradek.broker.storage.rebuild import (
    rebuild_aborted,
    rebuild_indexes,
    snapshot_at,
)
from odradek.broker.storage.replacement import put_in_place
from odradek.broker.storage.segment import NO_TIMESTAMP, Segment
from odradek.broker.storage.tail import Cut, Tail, cut_off, examine_tail, keep_file
from odradek.broker.values.topic_partition import partition_of

LOGGER: Final = logging.getLogger(__name__)


class Recovery:
    """The recovery of one log; call `run` once."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        *,
        topic_id: UUID,
        now_ms: int,
        index_interval_bytes: int,
        is_compacted: bool = False,
        rules: Rules = UNKNOWN_PAST,
    ) -> None:
        self._files = files
        self._disk: Disk = files.disk
        self._directory = directory
        self._where = partition_of(name_of(directory))
        self._topic_id = topic_id
        self._now_ms = now_ms
        self._interval_bytes = index_interval_bytes
        self._rules = rules
        self._durable_offset = 0
        """All batches below this offset are known to have been on disk."""
        self._is_compacted = is_compacted
        self._gaps_before = 0
        """Offsets below it may be missing, but never at the end of a segment."""
        self._vouched_end: int | None = None
        """The end of the log by checkpoint and journal; None if the journal does not count."""
        self._has_replaced = False
        # Changes that `_carry_out` makes, after the whole log was read without a DamagedLog.
        self._cuts: list[Cut] = []
        self._dropped: list[int] = []
        self._stale: list[int] = []
        self._read: list[Segment] = []

    async def run(self) -> Recovered:
        """Open the log. Raises OSError, DamagedLog and ForeignFile if an operator has to decide."""
        checkpoint = await self._read_checkpoint()
        # A checkpoint can describe a compacted segment whose rename a crash has prevented. The
        # files must match the checkpoint before anything compares the two.
        if checkpoint is not None:
            # A killed broker may have left the name of this checkpoint in the page cache only. It
            # must be on disk before the files change to what it describes.
            if checkpoint.replaced or checkpoint.is_cut:
                await self._disk.fsync_dir(self._directory)
            self._finish_replacement(checkpoint)
        bases = self._bases(checkpoint)
        await self._check_nothing_is_lost(checkpoint, bases)
        if checkpoint is not None and checkpoint.is_cut:
            await carry_out(self._disk, self._directory, checkpoint.segments)
            bases = self._bases(checkpoint)
        await self._restore(checkpoint)
        # Compaction rewrites sealed segments only. A gap in the active segment is damage, also in
        # a compacted topic.
        if bases and (self._is_compacted or (checkpoint is not None and checkpoint.clean_offset)):
            known = bases[-1] if checkpoint is None else checkpoint.segments[-1].base_offset
            self._gaps_before = known
        if has_gaps := self._disk.exists(f"{self._directory}/{GAPS}"):
            self._gaps_before = OFFSET_MAX
        if checkpoint is None and bases and bases[0] and self._rules.may_lack_beginning:
            path = file_path(self._directory, bases[0], LOG)
            raise DamagedLog(path, 0, bases[0], "what was before it is not there")
        if (
            checkpoint is not None
            and not self._rules.read_all
            and matches(self._disk, self._directory, checkpoint, bases)
        ):
            recovered = await self._from_checkpoint(checkpoint)
        else:
            if not (self._rules.read_all or self._never_had_checkpoint(bases)):
                LOGGER.warning(
                    "%s: the checkpoint is missing or does not match the files; "
                    "recovery reads the whole log",
                    self._directory,
                )
            recovered = await self._from_the_start(bases, checkpoint)
        state = recovered.state
        await self._read_log_start(state, checkpoint)
        state.has_replaced = self._has_replaced
        recovered.is_changed |= self._has_replaced
        if checkpoint is not None and (checkpoint.is_cut or checkpoint.follows_cut):
            recovered.is_changed = True
        following = [base for base in bases if base > state.segments[-1].base_offset]
        # The order matters: `_read_on` raises DamagedLog with all files as they were, `_carry_out`
        # changes them, and the fsync at the end makes the changes durable before the first append.
        # invariant disk 2: Recovery reads and judges a whole log before it changes a file.
        # tests/broker/storage/test_damage.py
        await self._read_on(recovered, following)
        await self._carry_out(recovered)
        end_offset = state.segments[-1].next_offset
        state.high_watermark = min(state.high_watermark, end_offset)
        # After reading a whole log these are all of its transactions.
        state.producers.high_watermark_is(state.high_watermark)
        # A crash before the first append to a log that starts inside that batch.
        state.log_start_offset = min(state.log_start_offset, end_offset)
        if has_gaps:
            state.gaps_before = end_offset
        if state.log_start_on_disk != log_start_to_keep(state):
            recovered.is_changed = True
        if await remove_leftovers(self._disk, self._directory, state):
            recovered.is_changed = True
        if recovered.is_changed and (bases or checkpoint is not None):
            await state.segments[-1].sync()
            await self._disk.fsync_dir(self._directory)
        return recovered

    def _bases(self, checkpoint: Checkpoint | None) -> list[int]:
        """Return the base offsets of the segments that are there."""
        bases = offsets_in(self._disk.listdir(self._directory), LOG)
        if checkpoint is None:
            return bases
        # Retention writes the checkpoint first and removes files after it. Files below the first
        # segment of the checkpoint are left from a removal that a crash has interrupted.
        return [base for base in bases if base >= checkpoint.segments[0].base_offset]

    async def _read_checkpoint(self) -> Checkpoint | None:
        """Return the log's checkpoint, None without one. Raises OSError, ForeignFile."""
        checkpoint = await read_checkpoint(self._disk, self._directory)
        if checkpoint is not None:
            files, sequence = self._files, checkpoint.journal_sequence
            files.latest_sequence = max(files.latest_sequence, sequence)
        # invariant files 2: A checkpoint is believed only for its own partition.
        # plant the checkpoint of another partition is believed
        if checkpoint is None or checkpoint.is_of(self._where, self._topic_id):
            return checkpoint
        if self._rules.accept_losses:
            return None
        raise ForeignFile(f"{self._directory}/{CHECKPOINT}", checkpoint.owner)

    async def _read_log_start(self, state: LogState, checkpoint: Checkpoint | None) -> None:
        """Apply the log start of the file `log-start`, too. Raises OSError."""
        found = await read_log_start(self._disk, self._directory, self._where, self._topic_id)
        if found is not None and checkpoint is not None and checkpoint.where is None:
            found = WRONG  # an earlier version has changed the log since, and not this file
        state.log_start_on_disk = found
        # invariant files 3: The log start is in two places, so that one damaged file undoes no
        # deletion.
        # plant deleted records are back when the checkpoint is damaged
        state.log_start_offset = max(state.log_start_offset, WRONG if found is None else found)
        if found == WRONG:
            path = f"{self._directory}/{LOG_START}"
            LOGGER.warning("%s is damaged or not up to date: it does not count", path)
        is_unreadable = checkpoint is None and self._disk.exists(f"{self._directory}/{CHECKPOINT}")
        if is_unreadable and found in (None, WRONG):
            LOGGER.warning(
                "%s: the checkpoint is damaged, and nothing else says where the log begins. If "
                "records from offset %d on were deleted with DeleteRecords, they are back",
                self._directory,
                state.log_start_offset,
            )

    def _never_had_checkpoint(self, bases: list[int]) -> bool:
        """Return True if the log may be so young that no checkpoint was written yet."""
        if bases and bases[0]:
            return False
        return not self._disk.exists(f"{self._directory}/{CHECKPOINT}")

    def _finish_replacement(self, checkpoint: Checkpoint) -> None:
        """Put the compacted segment of the checkpoint in place, if a crash came before that."""
        if checkpoint.replaced:
            (new,) = [s for s in checkpoint.segments if s.base_offset == checkpoint.replaced[0]]
            put_in_place(self._disk, self._directory, new, checkpoint.replaced)
            self._has_replaced = True

    async def _restore(self, checkpoint: Checkpoint | None) -> None:
        """Write what the journal has and the files lack. Raises OSError, DamagedLog."""
        records = self._rules.journal
        if records is not None:  # also for a log that is read completely, as it was damaged
            check_readable(self._disk, self._directory, checkpoint)
            end = await restore(self._files, self._directory, checkpoint, records)
            self._vouched_end, self._durable_offset = end, max(self._durable_offset, end or 0)
        elif self._rules.rewritten:
            await restore(self._files, self._directory, checkpoint, self._rules.rewritten)

    # The starting point

    async def _check_nothing_is_lost(self, checkpoint: Checkpoint | None, bases: list[int]) -> None:
        """Find the durable offset and check the files below it. Raises OSError, DamagedLog."""
        if self._rules.accept_losses:
            return
        if checkpoint is None:
            # Indexes are written after a flush: everything before the last index was on disk.
            indexed = [base for base in bases if self._has_index(base)]
            self._durable_offset = indexed[-1] if indexed else 0
            self._say_lost_segments(bases)
            return
        self._durable_offset = checkpoint.recovery_offset
        check_sizes(self._disk, self._directory, checkpoint, bases)
        # invariant files 8: A file of batches ends as it did when the checkpoint was written.
        # plant exchanged logs of one size are served as each other
        await check_ends(self._disk, self._directory, checkpoint)

    def _say_lost_segments(self, bases: list[int]) -> None:
        """Log the segments of which only an index is left: no checkpoint names them any more."""
        indexed = offsets_in(self._disk.listdir(self._directory), OFFSET_INDEX)
        lost = [file_path(self._directory, base, LOG) for base in indexed if base not in bases]
        if lost:
            LOGGER.error(
                "%s is missing, and so are the checkpoint and the records that were in it: put the "
                "files back while the broker is stopped",
                ", ".join(lost),
            )

    def _has_index(self, base: int) -> bool:
        return any(
            self._disk.exists(file_path(self._directory, base, suffix))
            for suffix in (OFFSET_INDEX, TIME_INDEX)
        )

    async def _from_checkpoint(self, checkpoint: Checkpoint) -> Recovered:
        segments = [
            Segment.restored(self._files, self._directory, summary)
            for summary in checkpoint.segments
        ]
        active = segments[-1]
        state = LogState(
            segments=segments,
            producers=Producers(checkpoint.producers, checkpoint.ended),
            epochs=LeaderEpochs(checkpoint.epochs),
            log_start_offset=checkpoint.log_start_offset,
            clean_offset=checkpoint.clean_offset,
            high_watermark=checkpoint.high_watermark,
        )
        # The log may have gone on in an older epoch than the one in which this broker led it last,
        # if it appended nothing in that (KAFKA-10706).
        state.epochs.truncate_end(checkpoint.recovery_offset)
        recovered = Recovered(state=state, checkpoint=checkpoint)
        try:
            recovered.is_changed = await self._load_active(state)
        except DamagedSegment as error:
            LOGGER.warning("%s; recovery reads the whole log", error)
            bases = [segment.base_offset for segment in segments]
            return await self._from_the_start(bases, checkpoint)
        active.unseal()
        return recovered

    async def _load_active(self, state: LogState) -> bool:
        """Load the active segment's indexes. Return True if an index had to be rebuilt."""
        segments, active = state.segments, state.segments[-1]
        rules = ChainRules(epochs=state.epochs, gaps_before=self._gaps_before)
        is_changed = False
        # The batches have everything that an index has, so a damaged index is not a damaged log.
        try:
            await active.indexes.load()
        except DamagedIndex as error:
            LOGGER.warning("%s: rebuilding it from the log", error)
            await rebuild_indexes(active, self._files, self._directory, rules, self._interval_bytes)
            is_changed = True
        try:
            await active.indexes.load_aborted()
        except DamagedIndex as error:
            LOGGER.warning("%s: rebuilding it from the log", error)
            await rebuild_aborted(segments, len(segments) - 1, self._files, self._directory, rules)
            is_changed = True
        return is_changed

    async def _from_the_start(self, bases: list[int], checkpoint: Checkpoint | None) -> Recovered:
        first = bases[0] if bases else 0
        log_start_offset = first
        if checkpoint is not None:
            log_start_offset = max(first, checkpoint.log_start_offset)
            # No file is left, but the offsets below the recovery offset were given out. The log
            # goes on there and does not start again at 0.
            if not bases:
                first = log_start_offset = checkpoint.recovery_offset
        self._stale += bases
        state = LogState(
            segments=[Segment(self._files, self._directory, first)],
            # Records below the first offset were deleted, their producers' sequences still count
            # (KAFKA-7190).
            producers=await self._producers_before(first),
            log_start_offset=log_start_offset,
            clean_offset=0 if checkpoint is None else checkpoint.clean_offset,
        )
        if checkpoint is not None:
            state.high_watermark = checkpoint.high_watermark
        if checkpoint is not None and not bases:
            state.producers = Producers(checkpoint.producers, checkpoint.ended)
        # A broker may have thousands of empty logs. Start-up does not wait for a flush of those.
        has_data = bool(bases) and self._disk.size(state.segments[0].path()) > 0
        is_changed = has_data or not self._never_had_checkpoint(bases)
        return Recovered(state=state, checkpoint=checkpoint, is_changed=is_changed)

    async def _producers_before(self, offset: int) -> Producers:
        found = await snapshot_at(self._disk, self._directory, offset, self._now_ms)
        return found or Producers()

    # The batches behind the starting point

    async def _read_on(self, recovered: Recovered, following: list[int]) -> None:
        """Read the rest of the active segment and the segments after it. Raises DamagedLog."""
        segments = recovered.state.segments
        await self._read_segment(recovered, segments[-1], next(iter(following), None))
        for number, base in enumerate(following, 1):
            last = segments[-1]
            # The log ends at the first gap between two segments. All segments behind it are cut
            # off, even whole ones: a log with a gap would hide lost records from its readers.
            if self._dropped or base != last.next_offset or self._is_unvouched(base):
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
        if self._rules.accept_losses:  # the losses may reach below the log start offset
            state.log_start_offset = min(state.log_start_offset, last.next_offset)
            state.clean_offset = min(state.clean_offset, last.next_offset)
        if last.next_offset < self._durable_offset:
            problem = f"batches up to offset {self._durable_offset} are missing"
            raise DamagedLog(last.path(), last.size_bytes, last.next_offset, problem)

    async def _read_segment(
        self, recovered: Recovered, segment: Segment, next_base: int | None
    ) -> None:
        """Apply the good batches to the state, and judge the rest. Raises DamagedLog."""
        if not self._disk.exists(segment.path()):
            recovered.is_changed = True
        elif self._disk.size(segment.path()) == segment.size_bytes:
            return
        start = segment.size_bytes
        async with aclosing(good_batches(segment, self._gaps_before)) as batches:
            async for position, header, batch in batches:
                # The leader epoch is not covered by the CRC. It never falls in a log (KIP-101), so
                # a lower epoch is a flipped bit.
                if header.partition_leader_epoch < recovered.state.epochs.latest:
                    break
                if self._is_unvouched(header.base_offset):
                    break
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
        """Decide if the bytes behind the good batches are torn or damaged. Raises DamagedLog."""
        position, offset = segment.size_bytes, segment.next_offset
        if self._is_unvouched(offset):
            tail = Tail(problem=NOT_VOUCHED, is_cut_short=False)
            self._cuts.append(Cut(segment, segment.file.size, True, tail))
            recovered.cut_off_bytes += segment.file.size - position
            return
        tail = await examine_tail(segment.file, position, offset)
        # Torn: the start of one batch, at the end of the log. After a kill nothing else can be
        # incomplete. After a restart of the machine any page may be missing, so bad bytes prove
        # damage only below the durable offset.
        is_torn = tail.is_cut_short and next_base is None
        # A failed append may leave bytes behind, and the log go on in the next segment.
        nothing_is_missing = next_base == offset
        if not nothing_is_missing and self._rules.is_damage(
            is_torn=is_torn, was_durable=offset < self._durable_offset, is_last=next_base is None
        ):
            raise DamagedLog(segment.path(), position, offset, tail.problem)
        # A batch that a kill cut short was never acknowledged: nothing worth keeping is in it.
        is_kept = not (self._rules.same_boot and tail.is_cut_short)
        self._cuts.append(Cut(segment, segment.file.size, is_kept, tail))
        recovered.cut_off_bytes += segment.file.size - position

    def _drop(self, recovered: Recovered, last: Segment, base: int) -> None:
        """Cut off the segment at `base`, behind the end of the log. Raises DamagedLog."""
        was_durable = base < self._durable_offset
        is_damage = self._rules.is_damage(is_torn=False, was_durable=was_durable, is_last=False)
        if is_damage and not self._is_unvouched(base):
            problem = f"the batches from there up to offset {base} are missing"
            raise DamagedLog(last.path(), last.size_bytes, last.next_offset, problem)
        recovered.cut_off_bytes += self._disk.size(file_path(self._directory, base, LOG))
        self._dropped.append(base)
        recovered.is_changed = True

    def _is_unvouched(self, offset: int) -> bool:
        """Return True if a batch with this offset was never acknowledged, so that it must go."""
        # invariant journal 4: After the machine went down a log counts up to its checkpoint and
        # from there as the journal has it. The rest is cut off, and its bytes are kept.
        # plant a marker counts that the kernel wrote before its decision
        return self._vouched_end is not None and offset >= self._vouched_end

    # Changes to the files

    async def _carry_out(self, recovered: Recovered) -> None:
        """Change the files. A copy of each cut is on disk before the bytes are removed."""
        for cut in self._cuts:
            await cut_off(self._disk, self._directory, cut)
        for base in self._dropped:
            path = file_path(self._directory, base, LOG)
            if self._disk.size(path):
                kept = keep_file(self._disk, self._directory, path, base)
                LOGGER.warning("%s is behind the end of the log: it is kept as %s", path, kept)
            else:
                self._disk.remove(path)
        for base in (*self._stale, *self._dropped):
            self._remove_indexes(base)
        for segment in self._read:
            # A killed broker leaves batches that only the page cache has. The checkpoint that
            # follows covers them. The last segment is flushed by `run`.
            if segment is not recovered.state.segments[-1]:
                await segment.sync()
                segment.close()

    def _remove_indexes(self, base: int) -> None:
        for suffix in (OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX):
            path = file_path(self._directory, base, suffix)
            if self._disk.exists(path):
                self._disk.remove(path)
