"""The agreement of a checkpoint with the files of its log.

Everything that a checkpoint describes was on disk when it was written. Files that have less are
damaged. So are files that do not end as those did: another log may have been put in the place of
this one. Files that have more have grown since.
"""

from collections.abc import Sequence

from odradek.broker.environment.env import Disk
from odradek.broker.storage.checkpoint import Checkpoint
from odradek.broker.storage.damage import DamagedLog
from odradek.broker.storage.end_sum import end_crc_of
from odradek.broker.storage.files import LOG, file_path


def check_sizes(disk: Disk, directory: str, checkpoint: Checkpoint, bases: Sequence[int]) -> None:
    """Check that the files have all that the checkpoint covers. Raises OSError, DamagedLog.

    `bases` are the segments that are there.
    """
    for summary in checkpoint.segments:
        path = file_path(directory, summary.base_offset, LOG)
        if not summary.size_bytes:
            continue
        if summary.base_offset not in bases:
            raise DamagedLog(path, 0, summary.base_offset, "the file is missing")
        size_bytes = disk.size(path)
        if size_bytes < summary.size_bytes:
            problem = f"the file ends there, but {summary.size_bytes} bytes were on disk"
            raise DamagedLog(path, size_bytes, summary.base_offset, problem)


async def check_ends(disk: Disk, directory: str, checkpoint: Checkpoint) -> None:
    """Check the last bytes of each segment that the checkpoint covers.

    Raises OSError, DamagedLog.
    """
    for summary in checkpoint.segments:
        if not summary.size_bytes or summary.end_crc is None:
            continue
        path = file_path(directory, summary.base_offset, LOG)
        file = disk.open(path)
        try:
            end_crc = await end_crc_of(file, summary.size_bytes)
        finally:
            file.close()
        if end_crc != summary.end_crc:
            problem = (
                "the bytes before it are not those for which the checkpoint was written; the file "
                "may be that of another log"
            )
            raise DamagedLog(path, summary.size_bytes, summary.next_offset, problem)


def matches(disk: Disk, directory: str, checkpoint: Checkpoint, bases: Sequence[int]) -> bool:
    """Return True if the files are those that the checkpoint describes. Raises OSError."""
    *sealed, active = checkpoint.segments
    covered = [base for base in bases if base <= active.base_offset]
    if covered != [summary.base_offset for summary in checkpoint.segments]:
        return False

    def size_of(base_offset: int) -> int:
        return disk.size(file_path(directory, base_offset, LOG))

    return (
        all(size_of(summary.base_offset) == summary.size_bytes for summary in sealed)
        and size_of(active.base_offset) >= active.size_bytes
        and active.next_offset == checkpoint.recovery_offset
    )
