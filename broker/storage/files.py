"""The names of a log's files, and the open ones among those that are only read."""

from collections.abc import Iterator
from typing import Final

from odradek.broker.env import Disk, File

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
ABORTED_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, ABORTED_INDEX)
OFFSET_DIGITS: Final = 20


def file_path(directory: str, offset: int, suffix: str) -> str:
    """Kafka's name: the offset in 20 digits."""
    return f"{directory}/{offset:0{OFFSET_DIGITS}}{suffix}"


def parent_of(path: str) -> str:
    """The directory in which a file or directory has its name."""
    parent, slash, _ = path.rstrip("/").rpartition("/")
    return parent or slash or "."


def file_offset(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None if it is not such a file."""
    digits = name.removesuffix(suffix)
    is_ours = name != digits and len(digits) == OFFSET_DIGITS and digits.isascii()
    return int(digits) if is_ours and digits.isdigit() else None


def offsets_in(names: list[str], suffix: str) -> list[int]:
    """The offsets of all files with `suffix`, ascending."""
    found = (file_offset(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)


async def sync_file(disk: Disk, path: str) -> None:
    """Have a file that is not open on disk. Raises OSError."""
    file = disk.open(path)
    try:
        await file.fsync()
    finally:
        file.close()


class OpenFiles:
    """Files of sealed segments, kept open while there is room: the least recently used is closed.

    Ask again for every use: a file may have been closed since.
    """

    def __init__(self, disk: Disk, max_files: int = 256) -> None:
        self.disk = disk
        self._max_files = max_files
        self._files: dict[str, File] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def get(self, path: str) -> File:
        file = self._files.pop(path, None)
        if file is None:
            file = self.disk.open(path)
            if len(self._files) >= self._max_files:
                self.close(next(iter(self._files)))
        self._files[path] = file
        return file

    def close(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in list(self._files):
            self.close(path)
