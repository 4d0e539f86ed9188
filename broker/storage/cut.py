"""Cut files of a log off behind its new end, atomically.

A follower whose log differs from its leader's removes everything from an offset on.

1. `truncation.py` derives the state that the log had at its new end.
2. The log writes a checkpoint that describes this state and has `is_cut` set. The rename of this
   checkpoint is the commit point.
3. `carry_out` removes the segments behind the new end and truncates the last file.
4. The log writes a checkpoint with `follows_cut` instead. Appends wait until it is on disk, because
   recovery from the checkpoint of step 2 would remove them.

After a crash before 2 the log is as it was. After a crash behind 2, recovery repeats 3 and 4, and
each step can be repeated. So a crash leaves the old log or the new one, and nothing in between. A
killed broker may leave step 4's checkpoint in the page cache only. `follows_cut` then makes
recovery flush its name, because a power failure would bring back that of step 2.
"""

from collections.abc import Sequence

from odradek.broker.environment.env import Disk
from odradek.broker.storage.files import LOG, SEGMENT_SUFFIXES, SNAPSHOT, file_path, offsets_in
from odradek.broker.storage.segment_summary import SegmentSummary


# invariant disk 5: A follower's log is cut at one moment, the rename of a checkpoint, and is then
# as if it never had the rest. The tests crash before every operation.
# tests/broker/storage/test_truncation.py
async def carry_out(disk: Disk, directory: str, segments: Sequence[SegmentSummary]) -> None:
    """Remove what the files have beyond these segments; durable on return. Raises OSError."""
    bases = {segment.base_offset for segment in segments}
    active = segments[-1]
    names = disk.listdir(directory)
    for suffix in SEGMENT_SUFFIXES:
        for base in offsets_in(names, suffix):
            if base not in bases:
                await disk.rmtree(file_path(directory, base, suffix))
    # A snapshot above the end would be wrong once the log has grown to its offset again
    # (KAFKA-12520).
    for offset in offsets_in(names, SNAPSHOT):
        if offset > active.next_offset:
            await disk.rmtree(file_path(directory, offset, SNAPSHOT))
    file = disk.open(file_path(directory, active.base_offset, LOG))
    try:
        if file.size > active.size_bytes:
            await file.truncate(active.size_bytes)
        await file.fsync()
    finally:
        file.close()
    await disk.fsync_dir(directory)
