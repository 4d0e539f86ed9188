"""The tail of a segment, behind its last good batch: a torn write or damage.

A killed broker leaves everything that it appended in the page cache. Only the append that was
running can be incomplete, so the tail can only be the beginning of one batch. Anything else is
damage, and good batches may follow it.

After a power failure the pages of a file may have reached the disk in any order, so the tail proves
nothing. Recovery cuts it off and keeps a copy: `<offset>.cut` has the bytes of the log from that
offset on. If the name is taken, a number is added (`.cut-2`). The broker never overwrites or
removes such a file.
"""

import logging
import re
from collections.abc import Iterator
from itertools import count
from typing import Final

from crc32c import crc32c

from odradek.broker.environment.env import Disk, File
from odradek.broker.storage.files import OFFSET_DIGITS
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.storage.segment import Segment
from odradek.late import dataclass
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
"""The magic byte follows offset, length and leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The verdict on a tail. `problem` describes its first bytes, for log lines and errors."""

    problem: str
    is_cut_short: bool
    """True if the tail is the beginning of one batch and nothing else."""


# invariant disk 1
async def examine_tail(file: File, position: int, next_offset: int) -> Tail:
    """Judge the bytes from `position` to the end of the file, where no good batch begins.

    `next_offset` is the offset that the next batch must have.
    """
    start = bytes(await file.pread(position, HEADER_BYTES))
    problem = _problem(start, file.size - position, next_offset)
    if problem is not None:
        return Tail(problem=problem, is_cut_short=False)
    if len(start) == HEADER_BYTES:
        # A flipped bit in the length makes a whole batch look like an incomplete one. If the CRC of
        # everything up to the end of the file is right, the batch is whole.
        crc = await _crc_of(file, position + CRC_START)
        if crc == read_header(start).crc:
            return Tail(problem="the length of the batch is wrong", is_cut_short=False)
    # A good batch further on was written later, so this is not the last write of the broker.
    if await find_batch(file, position + 1, next_offset + 1) is not None:
        return Tail(problem="there is no good batch, but good batches follow", is_cut_short=False)
    return Tail(problem="the batch is incomplete", is_cut_short=True)


def _problem(start: bytes, size_bytes: int, next_offset: int) -> str | None:
    """Return why `start` is not the beginning of an incomplete batch, None if it is."""
    offset = next_offset.to_bytes(_OFFSET_BYTES, "big")
    if not offset.startswith(start[:_OFFSET_BYTES]):
        return f"the batch does not have the offset {next_offset}"
    if len(start) > _EPOCH_END and start[_EPOCH_END] != MAGIC:
        return "the batch has an unknown format"
    if len(start) >= LENGTH_PREFIX_BYTES:
        length = int.from_bytes(start[_OFFSET_BYTES:LENGTH_PREFIX_BYTES], "big", signed=True)
        if length + LENGTH_PREFIX_BYTES < HEADER_BYTES:
            return f"the batch has an impossible length of {length}"
        if length + LENGTH_PREFIX_BYTES <= size_bytes:
            return "the checksum of the batch is wrong"
    return None


async def _crc_of(file: File, position: int) -> int:
    crc = 0
    while position < file.size:
        chunk = await file.pread(position, CHUNK_BYTES)
        crc = crc32c(chunk, crc)
        position += len(chunk)
    return crc


async def find_batch(file: File, position: int, from_offset: int) -> int | None:
    """Return the position of the first good batch from `position` on, None if there is none.

    Its offset is at least `from_offset`. The value of a record could look like a batch, but it
    hardly has a good CRC and a later offset of the same log.
    """
    # A search for plausible starts, because a check at each byte would be slow: the upper half of
    # the offset hardly changes within a log, and the magic byte stands behind it.
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


# Cutting off a tail, and keeping a copy


@dataclass(frozen=True, slots=True)
class Cut:
    """The bytes from the end of a segment's good batches up to `end`, to be cut off."""

    segment: Segment
    end: int
    is_kept: bool
    tail: Tail


async def cut_off(disk: Disk, directory: str, cut: Cut) -> None:
    """Truncate a segment behind its good batches. Raises OSError."""
    segment, position, offset = cut.segment, cut.segment.size_bytes, cut.segment.next_offset
    outcome = "are an unfinished write and are not kept"
    if cut.is_kept:
        try:
            kept = await keep_bytes(disk, directory, segment.file, position, cut.end, offset)
            outcome = f"are kept as {kept}"
        except OSError as error:
            # On a full disk the broker must still start. It goes without the copy of an unfinished
            # write, but not without a copy of bytes that may have been batches.
            if error.errno not in DISK_FULL or not cut.tail.is_cut_short:
                raise
    LOGGER.warning(
        "%s is cut off at byte %d, offset %d: %s; the %d bytes from there on %s",
        segment.path(),
        position,
        offset,
        cut.tail.problem,
        cut.end - position,
        outcome,
    )
    await segment.file.truncate(position)


async def keep_bytes(
    disk: Disk, directory: str, file: File, position: int, end: int, offset: int
) -> str:
    """Copy a part of a file into a `.cut` file, flush the copy and return its path.

    Raises OSError.
    """
    for path in _names(directory, offset):
        if not disk.exists(path):
            break
        # A crash between the copy and the truncation leaves a copy: it is used again.
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
    """Rename a whole file to a free `.cut` name, and return that name. Raises OSError."""
    kept = next(name for name in _names(directory, offset) if not disk.exists(name))
    disk.rename(path, kept)
    return kept


def _names(directory: str, offset: int) -> Iterator[str]:
    """Yield `<offset>.cut`, `<offset>.cut-2`, `<offset>.cut-3` and so on."""
    name = f"{directory}/{offset:0{OFFSET_DIGITS}}{KEPT}"
    yield name
    for number in count(2):
        yield f"{name}-{number}"


async def _has(disk: Disk, path: str, file: File, position: int, end: int) -> bool:
    """Return True if the file at `path` has exactly these bytes of `file`."""
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
