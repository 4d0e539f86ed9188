"""Files in the directory of a log that are not part of it: what crashes have left."""

from typing import Final

from odradek.broker.environment.env import Disk
from odradek.broker.storage.checkpoint import BESIDE as CHECKPOINT_BESIDE
from odradek.broker.storage.files import LOG, SEGMENT_SUFFIXES, SNAPSHOT, file_offset
from odradek.broker.storage.log_start import BESIDE as LOG_START_BESIDE
from odradek.broker.storage.log_state import LogState
from odradek.broker.storage.replacement import CLEANED
from odradek.broker.storage.tail import KEPT_BESIDE

BESIDES: Final = (CHECKPOINT_BESIDE, LOG_START_BESIDE, KEPT_BESIDE)
"""Names of files that a crash left half-written."""


async def remove_leftovers(disk: Disk, directory: str, state: LogState) -> bool:
    """Remove files of segments that are not part of the log, and unusable snapshots.

    Return True if the removal must be durable. A snapshot above the log end offset would be
    wrong once the log has grown to its offset again (KAFKA-12520).
    """
    bases = {segment.base_offset for segment in state.segments}
    end_offset = state.segments[-1].next_offset
    matters = False
    strays: list[str] = []
    for name in disk.listdir(directory):
        stray = name in BESIDES or name.endswith(CLEANED)
        for suffix in SEGMENT_SUFFIXES:
            offset = file_offset(name, suffix)
            stray = stray or (offset is not None and offset not in bases)
        offset = file_offset(name, SNAPSHOT)
        if offset is not None and offset not in bases and offset != end_offset:
            stray = True
        if stray:
            strays.append(name)
            matters = matters or (offset is not None and offset > end_offset)
    # The checkpoint that names these segments no more may be in the page cache only.
    if any(name.endswith(LOG) for name in strays):
        await disk.fsync_dir(directory)
    for name in strays:
        disk.remove(f"{directory}/{name}")
    return matters
