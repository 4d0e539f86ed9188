"""Read one sealed segment from its first byte to its last, to find bit rot."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from odradek.broker.storage.chain import BrokenChain, Chain
from odradek.broker.storage.damage import DamagedSegment
from odradek.broker.storage.log import Log
from odradek.broker.storage.segment import Segment
from odradek.protocol.batch import HEADER_BYTES, read_header

READ_BYTES: Final = 1024 * 1024

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
Pause = Callable[[int], Awaitable[None]]
"""A wait between two reads; its argument is the number of bytes of the last read."""


async def scrub(log: Log, segment: Segment, offload: Offload, pause: Pause) -> None:
    """Check a segment's headers and the CRC of every batch, then its indexes and its snapshot.

    Damaged indexes and snapshots are rebuilt. Raises DamagedSegment if batches are damaged, OSError
    if they cannot be read. The caller ignores both if the segment was deleted during the scrub.
    """
    if not log.files.disk.exists(segment.path()):
        raise DamagedSegment(f"{segment.path()} is missing")
    rules = log.reader.rules
    chain = Chain(rules, segment.base_offset)
    position, end, wanted = 0, segment.size_bytes, READ_BYTES
    file = log.files.disk.open(segment.path())
    try:
        while position < end and not segment.is_deleted:
            data = memoryview(await file.pread_once(position, min(wanted, end - position)))
            try:
                size_bytes = await offload(partial(chain.follow, data, with_crc=True))
            except BrokenChain as error:
                raise segment.damaged(position + error.at, str(error)) from error
            await pause(len(data))
            wanted = READ_BYTES
            if size_bytes == 0:  # the batch is larger than what was read
                wanted = read_header(data).size_bytes if len(data) >= HEADER_BYTES else 0
                if wanted <= len(data) or position + wanted > end:
                    raise segment.damaged(position, "the segment ends inside a batch")
            position += size_bytes
    finally:
        file.close()
    if segment.is_deleted:
        return
    if chain.next_offset != segment.next_offset and segment.next_offset > rules.gaps_before:
        raise segment.damaged(end, f"the segment ends at offset {chain.next_offset - 1}")
    await log.reader.check_beside(segment)
