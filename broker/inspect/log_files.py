"""The files of logs, for commands beside a running broker, which may delete any of them meanwhile.

A file or directory that is gone is no error here: retention, compaction and the deletion of a topic
end a log's files at any moment, and what is left of the data directory can still be read.
"""

import os.path

from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import LOG, file_path, offsets_in
from odradek.broker.values.topic_partition import partition_of

GONE = (FileNotFoundError, NotADirectoryError)


def logs_in(data_dir: str) -> list[str]:
    """Return the directories of a data directory that have segments, by name. Raises OSError.

    A directory that may not be read is an error only if it may be that of a partition: `lost+found`
    of a file system is root's alone.
    """
    found: list[str] = []
    for name in SystemDisk().listdir(data_dir):
        directory = f"{data_dir}/{name}"
        try:
            if os.path.isdir(directory) and segments_in(directory):
                found.append(directory)
        except PermissionError:
            if partition_of(name) is not None:
                raise
    return found


def segments_in(directory: str) -> list[str]:
    """Return the paths of a log's segments in their order, none if it is gone. Raises OSError."""
    try:
        names = SystemDisk().listdir(directory)
    except GONE:
        return []
    return [file_path(directory, base, LOG) for base in offsets_in(names, LOG)]


def content_of(path: str) -> memoryview | None:
    """Return the bytes of a file, None if it is gone. Raises OSError."""
    try:
        return read_only(path)
    except GONE:
        return None


def has_bytes(path: str) -> bool:
    """Return True if a file is there and not empty. Raises OSError."""
    try:
        return SystemDisk().size(path) > 0
    except GONE:
        return False
