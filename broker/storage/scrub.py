"""Reading one sealed segment through, to find what has rotted on the disk since it was written."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from odradek.broker.storage.chain import BrokenChain, Chain
from odradek.broker.storage.log import Log
from odradek.broker.storage.segment import DamagedSegment, Segment
from odradek.protocol.batch import HEADER_BYTES, read_header

READ_BYTES: Final = 1024 * 1024

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
Pause = Callable[[int], Awaitable[None]]
"""Awaited with the number of bytes that were read."""


async def scrub(log: Log, segment: Segment, offload: Offload, pause: Pause) -> None:
    """Check the chain of headers and the CRC of every batch, then what lies beside the batches.

    Indexes and snapshots that are damaged are made again. Raises DamagedSegment if batches are
    damaged, OSError if they cannot be read. Both mean nothing if the segment is deleted by then.
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
                    raise segment.damaged(position, "it ends inside a batch")
            position += size_bytes
    finally:
        file.close()
    if segment.is_deleted:
        return
    if chain.next_offset != segment.next_offset and segment.next_offset > rules.gaps_before:
        raise segment.damaged(end, f"it ends at offset {chain.next_offset - 1}")
    await log.reader.check_beside(segment)
