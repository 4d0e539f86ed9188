"""What stands behind the last good batch of a segment: a write that a crash cut short, or damage.

A broker that is killed leaves what it appended in the page cache. Only the append that was under
way can be incomplete, so all that can be there is the beginning of one batch. Anything else is
damage, and good batches may stand behind it.

After a power failure the pages of a file may have reached the disk in any order. Then the tail says
nothing; it is cut off, and kept in a file beside: `<offset>.cut` has the bytes from that offset on,
as they stood in the log. A number is added (`.cut-2`) if there is another one of that name. Such a
file is never overwritten or removed.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from crc32c import crc32c

from odradek.broker.env import Disk, File
from odradek.broker.storage.files import OFFSET_DIGITS
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.storage.segment import Segment
from odradek.protocol.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    crc_is_good,
    read_header,
)

LOGGER: Final = logging.getLogger(__name__)
KEPT: Final = ".cut"
KEPT_BESIDE: Final = "cut.tmp"
CHUNK_BYTES: Final = 1024 * 1024
_OFFSET_BYTES: Final = 8
_EPOCH_END: Final = 16
"""Behind offset, length and leader epoch comes the magic byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """`problem` is what is wrong with the first bytes of it, for people."""

    problem: str
    is_cut_short: bool
    """The beginning of one batch is all that is there."""


async def examine_tail(file: File, position: int, next_offset: int) -> Tail:
    """Say what the bytes from `position` to the end are, where no good batch begins.

    `next_offset` is the offset that a batch there would have.
    """
    start = bytes(await file.pread(position, HEADER_BYTES))
    problem = _problem(start, file.size - position, next_offset)
    if problem is not None:
        return Tail(problem=problem, is_cut_short=False)
    if len(start) == HEADER_BYTES:
        crc = await _crc_of(file, position + CRC_START)
        if crc == read_header(start).crc:  # all of it is there: the length is wrong
            return Tail(problem="the length of its batch is wrong", is_cut_short=False)
    if await find_batch(file, position + 1, next_offset + 1) is not None:
        return Tail(problem="whole batches follow what is none", is_cut_short=False)
    return Tail(problem="the batch there is incomplete", is_cut_short=True)


def _problem(start: bytes, size_bytes: int, next_offset: int) -> str | None:
    """Return why the first bytes do not begin an incomplete batch; None if they do."""
    offset = next_offset.to_bytes(_OFFSET_BYTES, "big")
    if not offset.startswith(start[:_OFFSET_BYTES]):
        return f"the batch there has not the offset {next_offset}"
    if len(start) > _EPOCH_END and start[_EPOCH_END] != MAGIC:
        return "the batch there has an unknown format"
    if len(start) >= LENGTH_PREFIX_BYTES:
        length = int.from_bytes(start[_OFFSET_BYTES:LENGTH_PREFIX_BYTES], "big", signed=True)
        if length + LENGTH_PREFIX_BYTES < HEADER_BYTES:
            return f"the batch there cannot have a length of {length}"
        if length + LENGTH_PREFIX_BYTES <= size_bytes:
            return "the checksum of the batch there is wrong"
    return None


async def _crc_of(file: File, position: int) -> int:
    crc = 0
    while position < file.size:
        chunk = await file.pread(position, CHUNK_BYTES)
        crc = crc32c(chunk, crc)
        position += len(chunk)
    return crc


async def find_batch(file: File, position: int, from_offset: int) -> int | None:
    """Return where the first good batch from `position` on begins, None if there is none.

    Its offset is at least `from_offset`. What looks like a batch may be the value of a record, but
    one with a good CRC and a later offset of this very log is not worth a rule.
    """
    # The upper half of the offset hardly changes within a log, so it sets batches apart.
    high = (from_offset >> 32).to_bytes(_OFFSET_BYTES // 2, "big")
    looks = re.compile(b"(?s)(?=" + re.escape(high) + b".{12}\\x02)")
    while file.size - position >= HEADER_BYTES:
        chunk = bytes(await file.pread(position, CHUNK_BYTES))
        for match in looks.finditer(chunk):
            if await _is_good(file, position + match.start(), from_offset):
                return position + match.start()
        if position + len(chunk) >= file.size:
            return None
        position += len(chunk) - _EPOCH_END  # a batch may begin in one chunk and go on in the next
    return None


async def _is_good(file: File, position: int, from_offset: int) -> bool:
    start = bytes(await file.pread(position, HEADER_BYTES))
    if len(start) < HEADER_BYTES:
        return False
    header = read_header(start)
    if (
        header.magic != MAGIC
        or header.base_offset < from_offset
        or not HEADER_BYTES <= header.size_bytes <= file.size - position
    ):
        return False
    return crc_is_good(await file.pread(position, header.size_bytes), header)


# what is cut off is kept


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes behind the good batches of a segment, up to `end`, that are to go."""

    segment: Segment
    end: int
    is_kept: bool
    tail: Tail


async def cut_off(disk: Disk, directory: str, cut: Cut) -> None:
    """Let a segment end behind its good batches. Raises OSError."""
    segment, position, offset = cut.segment, cut.segment.size_bytes, cut.segment.next_offset
    said = "are the beginning of a write, and not kept"
    if cut.is_kept:
        try:
            kept = await keep_bytes(disk, directory, segment.file, position, cut.end, offset)
            said = f"are kept as {kept}"
        except OSError as error:
            if error.errno not in DISK_FULL or not cut.tail.is_cut_short:
                raise
    LOGGER.warning(
        "%s is cut off at byte %d, offset %d: %s; the %d bytes from there on %s",
        segment.path(),
        position,
        offset,
        cut.tail.problem,
        cut.end - position,
        said,
    )
    await segment.file.truncate(position)


async def keep_bytes(
    disk: Disk, directory: str, file: File, position: int, end: int, offset: int
) -> str:
    """Copy a part of a file into a file beside, on disk on return, and return its path.

    If a crash came between this and the cutting, the same bytes are there already and serve again.
    Raises OSError.
    """
    for path in _names(directory, offset):
        if not disk.exists(path):
            break
        if await _has(disk, path, file, position, end):
            await disk.fsync_dir(directory)
            return path
    beside = f"{directory}/{KEPT_BESIDE}"
    if disk.exists(beside):
        disk.remove(beside)
    copy = disk.open(beside)
    try:
        while position < end:
            chunk = await file.pread(position, min(CHUNK_BYTES, end - position))
            copy.append(chunk)
            position += len(chunk)
        await copy.fsync()
    finally:
        copy.close()
    disk.rename(beside, path)
    await disk.fsync_dir(directory)
    return path


def keep_file(disk: Disk, directory: str, path: str, offset: int) -> str:
    """Give a whole file its name among those that are kept, and return that. Raises OSError."""
    kept = next(name for name in _names(directory, offset) if not disk.exists(name))
    disk.rename(path, kept)
    return kept


def _names(directory: str, offset: int) -> Iterator[str]:
    """`<offset>.cut`, `<offset>.cut-2`, `<offset>.cut-3` and so on."""
    name = f"{directory}/{offset:0{OFFSET_DIGITS}}{KEPT}"
    yield name
    for number in count(2):
        yield f"{name}-{number}"


async def _has(disk: Disk, path: str, file: File, position: int, end: int) -> bool:
    """Return True if the file at `path` has these bytes of `file`, and no others."""
    if disk.size(path) != end - position:
        return False
    kept = disk.open(path)
    try:
        start = position
        while position < end:
            wanted = min(CHUNK_BYTES, end - position)
            chunk = await kept.pread(position - start, wanted)
            if bytes(chunk) != bytes(await file.pread(position, wanted)):
                return False
            position += len(chunk)
        await kept.fsync()
        return True
    finally:
        kept.close()
