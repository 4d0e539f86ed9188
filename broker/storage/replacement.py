"""Replace segments by the compacted segment that was made of them, atomically.

1. Compaction writes the new files with the suffix `.cleaned`, and flushes them.
2. The log writes a checkpoint that describes the new segment and names the old ones. The rename of
   this checkpoint is the commit point. (Kafka renames the segment to `.swap` for this.)
3. The log renames the new files and removes the old ones, the oldest first. If the checkpoint is
   lost during this step, the remaining old files are superfluous but not wrong.
4. The log writes a checkpoint that names no replaced segments.

After a crash before 2, recovery removes the `.cleaned` files. After a crash behind 2, recovery
repeats 3, and each of its steps can be repeated. No other `.cleaned` files are made before 4, so
that recovery cannot mistake them for those of this replacement.
"""

from collections.abc import Iterable
from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage.end_sum import end_crc_of
from odradek.broker.storage.files import (
    ABORTED_INDEX,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    file_path,
    parent_of,
    sync_file,
)
from odradek.broker.storage.segment import Segment
from odradek.broker.storage.segment_summary import SegmentSummary

CLEANED: Final = ".cleaned"


def cleaned_path(segment: Segment, suffix: str = LOG) -> str:
    """Return the path of a compacted segment's file before the commit point."""
    return segment.path(suffix) + CLEANED


async def write_indexes(disk: Disk, segment: Segment) -> None:
    """Write a new segment's indexes, and flush its files and their names. Raises OSError."""
    log = disk.open(cleaned_path(segment))
    try:
        segment.has_end(segment.size_bytes, await end_crc_of(log, segment.size_bytes))
    finally:
        log.close()
    summary = segment.summary()
    for suffix, position, data in segment.indexes.unsaved():
        assert position == 0, segment.path(suffix)
        file = disk.open(cleaned_path(segment, suffix))
        try:
            file.append(data)
            await file.fsync()
        finally:
            file.close()
    await sync_file(disk, cleaned_path(segment))
    await disk.fsync_dir(parent_of(segment.path()))
    segment.indexes.note_saved(summary)


# invariant disk 4: A compacted segment takes the place of the old ones at one moment, the rename of
# a checkpoint.
# tests/broker/storage/test_compaction_crashes.py
def put_in_place(disk: Disk, directory: str, new: SegmentSummary, replaced: Iterable[int]) -> None:
    """Carry out step 3, or the rest of it after a crash. Raises OSError."""
    for suffix, size_bytes in (
        (LOG, new.size_bytes),
        (OFFSET_INDEX, new.index_bytes),
        (TIME_INDEX, new.time_index_bytes),
        (ABORTED_INDEX, new.aborted_bytes),
    ):
        path = file_path(directory, new.base_offset, suffix)
        if disk.exists(path + CLEANED):
            disk.rename(path + CLEANED, path)
        # The new segment has no such file: a file with this name belongs to an old segment.
        elif size_bytes == 0:
            _remove(disk, path)
    for base_offset in sorted(replaced):
        if base_offset != new.base_offset:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
                _remove(disk, file_path(directory, base_offset, suffix))


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove the files of compacted segments that were not committed. Raises OSError."""
    for name in disk.listdir(directory):
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")


def _remove(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.remove(path)
