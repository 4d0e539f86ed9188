"""Putting a compacted segment in the place of those that it was made of, at one moment.

1. The new files are written under their names with `.cleaned` behind, and are on disk.
2. A checkpoint is written that describes the new segment and names the old ones: from the moment at
   which it has its name, the new segment counts. (Kafka renames to `.swap` for this.)
3. The new files get their names and the old ones are removed, the oldest first: should somebody
   lose the checkpoint just then, what is still there of the old ones is superfluous, not wrong.
4. A checkpoint is written that names nothing any more.

After a crash before 2 the `.cleaned` files are thrown away, after it 3 is done again: each of its
steps can be. No other `.cleaned` files are made before 4, so that none is taken for another's.
"""

from collections.abc import Iterable
from typing import Final

from odradek.broker.env import Disk
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
from odradek.broker.storage.segment import Segment, SegmentSummary

CLEANED: Final = ".cleaned"


def cleaned_path(segment: Segment, suffix: str = LOG) -> str:
    """Where a file of a segment is written that does not count yet."""
    return segment.path(suffix) + CLEANED


async def write_indexes(disk: Disk, segment: Segment) -> None:
    """Write the indexes of a new segment, and have all of it on disk, names too. Raises OSError."""
    summary = segment.summary()
    for suffix, position, data in segment.unsaved():
        assert position == 0, segment.path(suffix)
        file = disk.open(cleaned_path(segment, suffix))
        try:
            file.append(data)
            await file.fsync()
        finally:
            file.close()
    await sync_file(disk, cleaned_path(segment))
    await disk.fsync_dir(parent_of(segment.path()))
    segment.saved(summary)


def put_in_place(disk: Disk, directory: str, new: SegmentSummary, replaced: Iterable[int]) -> None:
    """Step 3, all of it or what is left of it. Raises OSError."""
    for suffix, size_bytes in (
        (LOG, new.size_bytes),
        (OFFSET_INDEX, new.index_bytes),
        (TIME_INDEX, new.time_index_bytes),
        (ABORTED_INDEX, new.aborted_bytes),
    ):
        path = file_path(directory, new.base_offset, suffix)
        if disk.exists(path + CLEANED):
            disk.rename(path + CLEANED, path)
        elif size_bytes == 0:
            _remove(disk, path)
    for base_offset in sorted(replaced):
        if base_offset != new.base_offset:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
                _remove(disk, file_path(directory, base_offset, suffix))


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove what was written and does not count. Raises OSError."""
    for name in disk.listdir(directory):
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")


def _remove(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.remove(path)
