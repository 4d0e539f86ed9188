"""The journal after the machine went down: read it, and give each log back what it lacks.

Of all files only those of the newest life count, in the order of their generations. A log counts up
to its checkpoint, and from there as the journal has it: `restore` writes what the file of the log
lacks, and returns where the log ends. Recovery cuts off what is behind that (`recovery.py`). It was
never acknowledged; it may be a marker that the kernel wrote before the journal had the decision.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage import small_file
from odradek.broker.storage.checkpoint import Checkpoint
from odradek.broker.storage.files import LOG, OpenFiles, file_path
from odradek.broker.storage.journal import NAMES, PREFIX, SET_ASIDE
from odradek.broker.storage.journal_file import (
    HEADER_BYTES,
    JournalFile,
    JournalRecord,
    LogKey,
    RecordKind,
    decode,
)
from odradek.late import dataclass

LOGGER: Final = logging.getLogger(__name__)
NO_END: Final = -1
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
    life = 0
    for name in journal_names(disk, directory):
        file = disk.open(f"{directory}/{name}")
        try:
            header = decode(await file.pread(0, HEADER_BYTES))
        finally:
            file.close()
        life = max(life, 0 if header is None else header.life)
    return life


async def read_journal(disk: Disk, directory: str, life: int | None = None) -> FoundJournal:
    """Read the files of a life, without `life` of the newest. Raises OSError."""
    found: list[JournalFile] = []
    for name in journal_names(disk, directory):
        data = await small_file.read_bytes(disk, f"{directory}/{name}")
        if data is not None and (file := decode(data)) is not None:
            found.append(file)
    if life is None:
        life = max((file.life for file in found), default=0)
    records: dict[LogKey, list[JournalRecord]] = {}
    # invariant journal 1: Only records of the newest life count, and of them only those that no
    # checkpoint of their log covers.
    # plant a journal of an earlier life is replayed
    # plant the journal is replayed over a log that was cut
    for file in sorted(found, key=lambda file: file.generation):
        if file.life == life:
            for record in file.records:
                records.setdefault(record.key, []).append(record)
    return FoundJournal(life=life, records=records)


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


async def set_journal_aside(disk: Disk, directory: str, life: int) -> list[str]:
    """Rename the files of an earlier life, and return their paths. Raises OSError."""
    kept = []
    for name in NAMES:
        if disk.exists(f"{directory}/{name}"):
            kept.append(f"{directory}/{name}-{life}{SET_ASIDE}")
            disk.rename(f"{directory}/{name}", kept[-1])
    await disk.fsync_dir(directory)
    return kept


async def remove_journal(disk: Disk, directory: str) -> None:
    """Remove the two files. Raises OSError."""
    for name in NAMES:
        if disk.exists(f"{directory}/{name}"):
            await disk.rmtree(f"{directory}/{name}")
