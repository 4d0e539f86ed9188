"""The files of logs, for commands beside a running broker, which may delete any of them meanwhile.

A file or directory that is gone is no error here: retention, compaction and the deletion of a topic
end a log's files at any moment, and what is left of the data directory can still be read.
"""

from odradek.broker.storage.disk import SystemDisk, read_only
from odradek.broker.storage.files import LOG, file_path, offsets_in

GONE = (FileNotFoundError, NotADirectoryError)


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
