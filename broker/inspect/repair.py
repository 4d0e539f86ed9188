"""Repair a damaged log: find the damage, and carry out one of two repairs.

- *Cut*: the log ends in front of the first damage. Everything behind it goes into separate files.
- *Leave out*: only the damaged bytes go into separate files, and all good batches stay. An empty
  batch takes the place of the missing offsets, as after compaction, so the log has no gap and
  readers and recovery continue behind it. If no good batch follows and no checkpoint gives the end
  of the log, this is the same as a cut.

A file changes only after the bytes that it loses are in a separate file, on disk. A crash during
the repair leaves a log that is still damaged, or a good log with a checkpoint of other files. The
same repair, repeated, continues from there. In the end the whole log is read again, so that
producers, indexes, aborted transactions and the checkpoint match the batches that are left.
"""

from contextlib import aclosing
from dataclasses import field, replace
from typing import Final
from uuid import UUID

from odradek.broker.environment.env import Disk, File
from odradek.broker.inspect.found_transactions import FoundTransaction, FoundTransactions
from odradek.broker.inspect.inspection import FoundBatch, describe_record
from odradek.broker.inspect.small_files import set_aside, small_files_of
from odradek.broker.storage.checkpoint import Checkpoint
from odradek.broker.storage.compaction.batches import emptied
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import Rules
from odradek.broker.storage.files import (
    GAPS,
    LOG,
    OpenFiles,
    file_path,
    name_of,
    offsets_in,
    parent_of,
)
from odradek.broker.storage.good_batches import good_batches
from odradek.broker.storage.identity import Identity
from odradek.broker.storage.journal import LIFE_BITS
from odradek.broker.storage.journal_replay import cut_behind, read_journal, read_life, restore
from odradek.broker.storage.last_run import read_last_run
from odradek.broker.storage.leader_epochs import OFFSET_MAX
from odradek.broker.storage.log import Log
from odradek.broker.storage.replacement import CLEANED, put_in_place
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.tail import CHUNK_BYTES, examine_tail, find_batch, keep_bytes, keep_file
from odradek.late import dataclass
from odradek.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.state_topics import (
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    state_partition,
    transaction_partition,
)
from odradek.protocol.text import printable

NONE: Final = -1
OWNERS_MAX: Final = 1_000
"""The most transactional ids or groups that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Damaged bytes of a segment (none if a file ends too early), and the loss that they cause."""

    base_offset: int
    """The base offset of the segment."""
    position: int
    end: int
    offset: int
    """The first missing offset."""
    next_offset: int | None
    """The offset of the first good batch behind the damage, None if there is none."""
    leader_epoch: int
    problem: str
    torn: tuple[FoundTransaction, ...]
    """The transactions that are open at the damage."""


@dataclass(slots=True, kw_only=True)
class Survey:
    """The result of reading a whole log."""

    directory: str
    topic: str
    topic_id: UUID | None
    is_compacted: bool
    is_copy: bool
    """True if offsets may be missing in the last segment, too (`GAPS`)."""
    checkpoint: Checkpoint | None
    identity: Identity | None
    bases: list[int]
    damages: list[Damage] = field(default_factory=list)
    log_end_offset: int = 0
    batches_behind: int = 0
    """The number of good batches behind the first damage."""
    owners_behind: dict[str, None] = field(default_factory=dict)
    """The transactional ids or groups in a state topic's records behind the first damage."""
    problems: list[str] = field(default_factory=list)
    """Sentences about the small files, and about segments that the checkpoint does not fit."""
    wrong_files: list[str] = field(default_factory=list)
    """The small files that are damaged, or those of another partition."""
    overlaps: bool = False
    """True if a segment begins before the previous one ends: leaving out is impossible."""

    @property
    def is_damaged(self) -> bool:
        return bool(self.damages) or bool(self.problems)

    @property
    def is_internal(self) -> bool:
        return self.topic in INTERNAL_TOPICS


async def survey_log(disk: Disk, directory: str) -> Survey:
    """Read a whole log, without changes. Raises OSError."""
    small = await small_files_of(disk, directory)
    checkpoint, identity = small.checkpoint, small.identity
    topic = name_of(directory).rpartition("-")[0] if identity is None else identity.where.topic
    bases = offsets_in(disk.listdir(directory), LOG)
    if checkpoint is not None:
        bases = [base for base in bases if base >= checkpoint.segments[0].base_offset]
        if checkpoint.is_cut:  # the segments behind it are not removed yet
            bases = [base for base in bases if base <= checkpoint.segments[-1].base_offset]
    configs = {} if identity is None else identity.configs
    found = Survey(
        directory=directory,
        topic=topic,
        topic_id=small.topic_id,
        is_compacted="compact" in configs.get("cleanup.policy", "")
        or topic in INTERNAL_TOPICS
        or (checkpoint is not None and checkpoint.clean_offset > checkpoint.log_start_offset),
        is_copy=disk.exists(f"{directory}/{GAPS}"),
        checkpoint=checkpoint,
        identity=identity,
        bases=bases,
        problems=small.problems,
        wrong_files=small.wrong,
    )
    await small.compare(disk, directory, bases)
    files = OpenFiles(disk)
    try:
        await _Walk(files, found).run()
    finally:
        files.close_all()
    return found


class _Walk:
    """A walk over all segments in order, which fills in a `Survey`."""

    def __init__(self, files: OpenFiles, found: Survey) -> None:
        self._files = files
        self._found = found
        self._transactions = FoundTransactions()
        self._epoch = NONE
        self._next_offset = NONE
        self._is_misplaced = False
        self._good: list[tuple[int, BatchHeader]] = []
        """The good batches of the current segment, with their positions."""

    async def run(self) -> None:
        found = self._found
        for number, base in enumerate(found.bases):
            segment = Segment(self._files, found.directory, base)
            if number == 0:
                self._first(base)
            elif base != self._next_offset:
                self._missing(found.bases[number - 1], self._next_offset, base)
            following = found.bases[number + 1] if found.bases[number + 1 :] else None
            await self._segment(segment, following)
            self._next_offset = segment.next_offset
        found.log_end_offset = max(self._next_offset, 0)
        checkpoint = found.checkpoint
        if checkpoint is not None and checkpoint.recovery_offset > found.log_end_offset:
            if found.bases:
                end = checkpoint.recovery_offset
                self._missing(found.bases[-1], self._next_offset, end)
            if not found.problems:
                found.problems.append("The checkpoint covers more than the files have.")

    def _first(self, base: int) -> None:
        checkpoint = self._found.checkpoint
        known = None if checkpoint is None else checkpoint.segments[0]
        if known is not None and known.size_bytes and known.base_offset < base:
            self._add(base, 0, 0, known.base_offset, base, "the files in front of it are missing")

    def _missing(self, base: int, offset: int, next_offset: int) -> None:
        """Note that the segment at `base` ends at `offset`, the next begins at `next_offset`."""
        found = self._found
        last = found.damages[-1] if found.damages else None
        if next_offset < offset:
            found.overlaps = True
        if last is not None and last.base_offset == base and last.next_offset is None:
            found.damages[-1] = replace(last, next_offset=next_offset)
            return
        size_bytes = self._files.disk.size(file_path(found.directory, base, LOG))
        problem = f"batches up to offset {next_offset} are missing behind it"
        if next_offset < offset:
            problem = f"the next file begins at offset {next_offset}, before this one ends"
        self._add(base, size_bytes, size_bytes, offset, next_offset, problem)

    def _add(
        self, base: int, position: int, end: int, offset: int, next_offset: int | None, problem: str
    ) -> None:
        self._found.damages.append(
            Damage(
                base_offset=base,
                position=position,
                end=end,
                offset=offset,
                next_offset=next_offset,
                leader_epoch=max(self._epoch, 0),
                problem=problem,
                torn=tuple(
                    transaction
                    for transaction in self._transactions.open.values()
                    if transaction.first_offset is not None
                ),
            )
        )

    async def _segment(self, segment: Segment, following: int | None) -> None:
        found, last_base = self._found, self._found.bases[-1]
        gaps_before = last_base if found.is_compacted else 0
        if found.is_copy:
            gaps_before = OFFSET_MAX
        self._good.clear()
        while True:
            await self._good_batches(segment, gaps_before)
            position, offset, size_bytes = (
                segment.size_bytes,
                segment.next_offset,
                segment.file.size,
            )
            if position == size_bytes or offset == following:
                return  # the bytes of a failed append are no damage
            tail = await examine_tail(segment.file, position, offset)
            vouched = 0 if found.checkpoint is None else found.checkpoint.recovery_offset
            if tail.is_cut_short and following is None and offset >= vouched:
                return
            again = await find_batch(segment.file, position + 1, offset)
            if again is None:
                self._add(segment.base_offset, position, size_bytes, offset, None, tail.problem)
                return
            start = await segment.file.pread(again, HEADER_BYTES)
            next_offset = read_header(start).base_offset
            self._add(segment.base_offset, position, again, offset, next_offset, tail.problem)
            segment.size_bytes, segment.next_offset = again, next_offset

    async def _good_batches(self, segment: Segment, gaps_before: int) -> None:
        async with aclosing(good_batches(segment, gaps_before)) as batches:
            async for position, header, data in batches:
                epoch = header.partition_leader_epoch
                if epoch < self._epoch:
                    self._take_back(segment, position, header)
                self._epoch = max(self._epoch, epoch)
                self._good.append((position, header))
                self._see(FoundBatch(position, header, data))
                segment.size_bytes = position + header.size_bytes
                segment.next_offset = header.next_offset

    def _take_back(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """Note that the batches in front of a lower leader epoch are the damaged ones."""
        first: tuple[int, BatchHeader] | None = None
        while self._good and self._good[-1][1].partition_leader_epoch > (
            header.partition_leader_epoch
        ):
            first = self._good.pop()
        self._epoch = header.partition_leader_epoch
        if first is not None:
            self._add(
                segment.base_offset,
                first[0],
                position,
                first[1].base_offset,
                header.base_offset,
                "its leader epoch is later than that of the batches behind it",
            )

    def _see(self, batch: FoundBatch) -> None:
        found = self._found
        self._transactions.see(batch)
        found.batches_behind += bool(found.damages)
        if not found.is_internal or batch.header.is_control:
            return
        try:
            described = [describe_record(record, found.topic) for record in batch.records()]
        except (KafkaError, ProtocolError):
            return
        for facts in described:
            owner = facts.get("transactional_id", facts.get("group"))
            if owner is None:
                continue
            if found.damages and len(found.owners_behind) < OWNERS_MAX:
                found.owners_behind[str(owner)] = None
            if not self._is_misplaced and found.identity is not None:
                self._check_place(str(owner), found.identity)

    def _check_place(self, owner: str, identity: Identity) -> None:
        """Note that a partition of a state topic has records of an id that another one keeps."""
        count = identity.partition_count
        if identity.where.topic == TRANSACTION_STATE_TOPIC:
            index = transaction_partition(owner, count, by_tag=identity.is_by_tag)
        else:
            index = state_partition(owner, count)
        if index != identity.where.partition:
            self._is_misplaced = True
            self._found.problems.append(
                f"It has records of {printable(owner)!r}, which {identity.where.topic}-{index} "
                "keeps: it may be the log of that partition. No repair mends this; put the right "
                "files back."
            )


# Repair


async def restore_from_journal(disk: Disk, directory: str) -> list[str]:
    """Write what the file of a log lacks and the journal of its data directory has.

    If the checkpoint cannot be read after a power failure, cut off what the journal has not, which
    was never acknowledged. Return the files that have it. Raises OSError. Repeating it changes
    nothing.
    """
    data_dir, small = parent_of(directory), await small_files_of(disk, directory)
    number = name_of(directory).rpartition("-")[2]
    last = await read_last_run(disk, data_dir)
    life = last.unrestored.get(name_of(directory))
    if small.topic_id is None or not (last.uses_journal or life is not None):
        return []
    found = await read_journal(disk, data_dir, life)
    records = found.of((small.topic_id.bytes, int(number)))
    is_all_here = life is None and last.boot_id is not None and last.boot_id == disk.boot_id()
    files = OpenFiles(disk)
    try:
        await restore(files, directory, small.checkpoint, records)
        if small.checkpoint is None and not is_all_here:
            return await cut_behind(files, directory, records)
    finally:
        files.close_all()
    return []


async def repair(disk: Disk, found: Survey, *, leaves_out: bool, now_ms: int) -> list[str]:
    """Carry out a repair, and return the files in which the damaged bytes are kept.

    Raises OSError. It can be repeated, with a new survey.
    """
    checkpoint = found.checkpoint
    if checkpoint is not None and checkpoint.replaced:
        (new,) = [s for s in checkpoint.segments if s.base_offset == checkpoint.replaced[0]]
        put_in_place(disk, found.directory, new, checkpoint.replaced)
    kept = [set_aside(disk, found.directory, name) for name in found.wrong_files]
    if leaves_out:
        for base in found.bases:
            damages = [damage for damage in found.damages if damage.base_offset == base]
            if damages:
                kept += await _leave_out(disk, found, base, damages)
    elif found.damages:
        kept += await _cut(disk, found, found.damages[0])
    await disk.fsync_dir(found.directory)
    if found.topic_id is not None:
        await _read_anew(disk, found, found.topic_id, now_ms)
    return kept


async def _cut(disk: Disk, found: Survey, damage: Damage) -> list[str]:
    directory, kept = found.directory, []
    file = disk.open(file_path(directory, damage.base_offset, LOG))
    try:
        # The damage is in front of the first file that exists.
        is_in_front = damage.offset < damage.base_offset
        if file.size > damage.position:
            size_bytes = file.size
            first = damage.base_offset if is_in_front else damage.offset
            kept.append(await keep_bytes(disk, directory, file, damage.position, size_bytes, first))
            await file.truncate(damage.position)
            await file.fsync()
    finally:
        file.close()
    for base in found.bases:
        if base > damage.base_offset:
            path = file_path(directory, base, LOG)
            if disk.size(path):
                kept.append(keep_file(disk, directory, path, base))
            else:
                disk.remove(path)
    return kept


async def _leave_out(disk: Disk, found: Survey, base: int, damages: list[Damage]) -> list[str]:
    """Write a segment without its damage, and replace the old one by it atomically."""
    path, kept = file_path(found.directory, base, LOG), []
    beside = path + CLEANED
    if disk.exists(beside):
        disk.remove(beside)
    old, new = disk.open(path), disk.open(beside)
    try:
        position = 0
        for damage in damages:
            await _copy(old, new, position, damage.position)
            if damage.end > damage.position:
                kept.append(
                    await keep_bytes(
                        disk, found.directory, old, damage.position, damage.end, damage.offset
                    )
                )
            if damage.next_offset is not None and base <= damage.offset < damage.next_offset:
                new.append(empty_batch(damage.offset, damage.next_offset, damage.leader_epoch))
            position = damage.end
        await _copy(old, new, position, old.size)
        await new.fsync()
    finally:
        old.close()
        new.close()
    disk.set_modified_ms(beside, disk.modified_ms(path))
    disk.rename(beside, path)
    await disk.fsync_dir(found.directory)
    return kept


async def _copy(source: File, target: File, position: int, end: int) -> None:
    while position < end:
        chunk = await source.pread(position, min(CHUNK_BYTES, end - position))
        target.append(chunk)
        position += len(chunk)


def empty_batch(offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch without records that takes the place of these offsets."""
    return emptied(
        BatchHeader(
            base_offset=offset,
            batch_length=0,
            partition_leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=next_offset - offset - 1,
            base_timestamp=NONE,
            max_timestamp=NONE,
            producer_id=NONE,
            producer_epoch=NONE,
            base_sequence=NONE,
            record_count=0,
        )
    )


async def _read_anew(disk: Disk, found: Survey, topic_id: UUID, now_ms: int) -> None:
    """Open the log as a broker does, reading all of it, so that its checkpoint is written again."""
    files = OpenFiles(disk)
    # The checkpoint covers what the journal had of the log, which may be at other places now.
    files.first_sequence = (await read_life(disk, parent_of(found.directory)) + 1) << LIFE_BITS
    try:
        log, _ = await Log.open(
            files,
            found.directory,
            topic_id=topic_id,
            config=LogConfig(is_compacted=found.is_compacted),
            now_ms=now_ms,
            rules=Rules(read_all=True, accept_losses=True),
        )
        log.close()
    finally:
        files.close_all()
