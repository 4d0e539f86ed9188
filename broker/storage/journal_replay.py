"""The journal after a crash: read it, and give each log back what it lacks.

After a kill the page cache has all of a log, and what the journal has of it is only written again.
After a power failure the journal counts.

Of all files only those of the newest life count, in the order of their generations. A log counts up
to its checkpoint, and from there as the journal has it: `restore` writes what the file of the log
lacks, and returns where the log ends. Recovery cuts off what is behind that (`recovery.py`). It was
never acknowledged; it may be a marker that the kernel wrote before the journal had the decision.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field
from itertools import pairwise
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.broker.storage.checkpoint import CHECKPOINT, Checkpoint
from odradek.broker.storage.damage import DamagedLog
from odradek.broker.storage.files import LOG, OpenFiles, file_path, offsets_in, sync_file
from odradek.broker.storage.good_batches import good_batches
from odradek.broker.storage.identity import IDENTITY
from odradek.broker.storage.journal import NAMES, PREFIX, SET_ASIDE
from odradek.broker.storage.journal_file import (
    HEADER_BYTES,
    JournalFile,
    JournalRecord,
    LogKey,
    RecordKind,
    decode,
)
from odradek.broker.storage.leader_epochs import OFFSET_MAX
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.tail import keep_bytes, keep_file
from odradek.late import dataclass

LOGGER: Final = logging.getLogger(__name__)
NO_END: Final = -1
UNREADABLE: Final = (
    "it cannot be read (after a power failure it says, with the journal, where the log ends)"
)
NOT_VOUCHED: Final = "neither the checkpoint nor the journal has it, so it was never acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJournal:
    """The contents of the files of a data directory. `life` is 0 if there are none."""

    life: int = 0
    records: Mapping[LogKey, Sequence[JournalRecord]] = field(default_factory=dict)

    def of(self, key: LogKey) -> Sequence[JournalRecord]:
        return self.records.get(key, ())


async def read_life(disk: Disk, directory: str) -> int:
    """Return the newest life of the files, 0 if there are none. Raises OSError."""
    names = journal_names(disk, directory)
    return max([await _life_of(disk, f"{directory}/{name}") for name in names], default=0)


async def read_journal(disk: Disk, directory: str, life: int | None = None) -> FoundJournal:
    """Read the files of a life, without `life` of the newest. Raises OSError."""
    found: list[JournalFile] = []
    for name in journal_names(disk, directory):
        data = await small_file.read_bytes(disk, f"{directory}/{name}")
        if data is not None and (file := decode(data)) is not None:
            found.append(file)
    return gather(found, life)


def gather(files: Sequence[JournalFile], life: int | None = None) -> FoundJournal:
    """Return what the files of a life have, without `life` those of the newest."""
    if life is None:
        life = max((file.life for file in files), default=0)
    records: dict[LogKey, list[JournalRecord]] = {}
    # invariant journal 1: Only records of the newest life count, and of them only those that no
    # checkpoint of their log covers.
    # plant a journal of an earlier life is replayed
    # plant the journal is replayed over a log that was cut
    for file in sorted(files, key=lambda file: file.generation):
        if file.life == life:
            for record in file.records:
                records.setdefault(record.key, []).append(record)
    return FoundJournal(life=life, records=records)


async def flush_journal(disk: Disk, directory: str) -> None:
    """Flush the files, of which a killed broker may have left the ends in the page cache only.

    Logs that are opened now may have records that follow those. Raises OSError.
    """
    for name in journal_names(disk, directory):
        await sync_file(disk, f"{directory}/{name}")


def journal_names(disk: Disk, directory: str) -> list[str]:
    """Return the names of the files of the journal, with those that were set aside."""
    return [
        name
        for name in disk.listdir(directory)
        if name in NAMES or (name.startswith(PREFIX) and name.endswith(SET_ASIDE))
    ]


def live_records(
    checkpoint: Checkpoint | None, records: Sequence[JournalRecord]
) -> tuple[list[JournalRecord], int]:
    """Return the appends that count beside a checkpoint, and the end of the log.

    The end is -1 if there is neither a checkpoint nor a record.
    """
    # invariant journal 1
    sequence = 0 if checkpoint is None else checkpoint.journal_sequence
    end = NO_END if checkpoint is None else checkpoint.recovery_offset
    live: list[JournalRecord] = []
    for record in records:
        if record.sequence < sequence:
            continue
        if record.kind is RecordKind.CUT:
            live = [each for each in live if each.next_offset <= record.next_offset]
            end = record.next_offset
        elif record.next_offset <= end:
            continue  # the checkpoint was written before the journal got it, and covers it
        elif record.kind is RecordKind.FLUSHED:
            end = record.next_offset
        elif record.base_offset > end != NO_END:
            LOGGER.error("the journal has a gap before offset %d of a log", record.base_offset)
            break
        else:
            live.append(record)
            end = record.next_offset
    return live, end


def check_readable(disk: Disk, directory: str, checkpoint: Checkpoint | None) -> None:
    """Raise DamagedLog if there is a checkpoint that cannot be read.

    No crash explains that, as it is on disk before it has its name, where another file has the
    identity of the log. The journal alone says neither where the log ends, as it may have nothing
    of it any more, nor which of its records are of segments that compaction has replaced.
    """
    # invariant journal 7: After the machine went down a log whose checkpoint cannot be read stays
    # offline: what is in its file may be a marker whose decision is lost.
    # plant without its checkpoint a log counts as far as the disk has it
    path = f"{directory}/{CHECKPOINT}"
    if checkpoint is None and disk.exists(path) and disk.exists(f"{directory}/{IDENTITY}"):
        raise DamagedLog(path, 0, 0, UNREADABLE)


async def restore(
    files: OpenFiles,
    directory: str,
    checkpoint: Checkpoint | None,
    records: Sequence[JournalRecord],
) -> int | None:
    """Write what the journal has of a log again.

    Return where the log ends; None if there is no checkpoint that says so.

    Raises OSError. Repeating it changes nothing.
    """
    live, end = live_records(checkpoint, records)
    if checkpoint is None:
        live = await _of_unfinished_segments(files, directory, live)
    changed: dict[str, None] = {}
    for record in live:
        path = file_path(directory, record.segment_base, LOG)
        # Also what seems to be there: after a failed fsync the pages in memory are not on disk, and
        # another fsync would not write them.
        files.get(path).write_at(record.position, record.data)
        changed[path] = None
    for path in changed:
        await files.sync(path)
    return None if checkpoint is None else end


async def _of_unfinished_segments(
    files: OpenFiles, directory: str, live: Sequence[JournalRecord]
) -> list[JournalRecord]:
    """Return the records of segments that may lack them. Raises OSError.

    Without a checkpoint it is not known which records it covered. A segment that ends where the
    next one begins is whole, and compaction may have put it in the place of the one that the
    records are of. One that is not there was deleted.
    """
    bases = offsets_in(files.disk.listdir(directory), LOG)
    following = dict(pairwise(bases))
    is_unfinished: dict[int, bool] = {}
    for base in {record.segment_base: None for record in live}:
        is_unfinished[base] = base in bases[-1:] or (
            base in following and await _end_of(files, directory, base) != following[base]
        )
    return [record for record in live if is_unfinished[record.segment_base]]


async def _end_of(files: OpenFiles, directory: str, base: int) -> int:
    """Return the offset behind the last good batch of a segment. Raises OSError."""
    segment = Segment(files, directory, base)
    end = base
    async with aclosing(good_batches(segment, OFFSET_MAX)) as batches:
        async for _, header, _ in batches:
            end = header.next_offset
    return end


async def cut_behind(
    files: OpenFiles, directory: str, records: Sequence[JournalRecord]
) -> list[str]:
    """Cut off what the journal does not vouch for, if the checkpoint cannot be read.

    All that was acknowledged since the records of the journal begin is in them, so the last of
    them says where the log ends. Do nothing if there are none. Return the files that have what was
    cut off. Raises OSError.
    """
    _, end = live_records(None, records)
    kept: list[str] = []
    if end == NO_END:
        return kept
    disk = files.disk
    for base in offsets_in(disk.listdir(directory), LOG):
        path = file_path(directory, base, LOG)
        if base >= end and base:
            kept.append(keep_file(disk, directory, path, base))
            continue
        segment = Segment(files, directory, base)
        async with aclosing(good_batches(segment, OFFSET_MAX)) as batches:
            async for position, header, _ in batches:
                if header.base_offset >= end:
                    size_bytes = segment.file.size
                    args = position, size_bytes, header.base_offset
                    kept.append(await keep_bytes(disk, directory, segment.file, *args))
                    await segment.file.truncate(position)
                    await segment.file.fsync()
                    break
    await disk.fsync_dir(directory)
    return kept


async def set_journal_aside(disk: Disk, directory: str, life: int) -> list[str]:
    """Rename the files of an earlier life, and return their paths. Raises OSError."""
    kept = []
    for name in NAMES:
        if disk.exists(f"{directory}/{name}"):
            kept.append(f"{directory}/{name}-{life}{SET_ASIDE}")
            disk.rename(f"{directory}/{name}", kept[-1])
    await disk.fsync_dir(directory)
    return kept


async def remove_kept(disk: Disk, directory: str, needed: Collection[int]) -> list[str]:
    """Remove the files that were set aside, but those of the lives in `needed`.

    Return the paths of the files that are removed. Raises OSError.
    """
    removed = []
    for name in journal_names(disk, directory):
        path = f"{directory}/{name}"
        if name not in NAMES and await _life_of(disk, path) not in needed:
            await disk.rmtree(path)
            removed.append(path)
    if removed:
        await disk.fsync_dir(directory)
    return removed


async def _life_of(disk: Disk, path: str) -> int:
    """Return the life of a file of the journal, 0 if its header cannot be read. Raises OSError."""
    file = disk.open(path)
    try:
        header = decode(await file.pread(0, HEADER_BYTES))
    finally:
        file.close()
    return 0 if header is None else header.life


async def remove_journal(disk: Disk, directory: str) -> None:
    """Remove the two files, durably. Raises OSError."""
    found = [name for name in NAMES if disk.exists(f"{directory}/{name}")]
    for name in found:
        await disk.rmtree(f"{directory}/{name}")
    if found:
        await disk.fsync_dir(directory)
