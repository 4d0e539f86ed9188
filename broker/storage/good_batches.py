"""The good batches of a file whose contents no checkpoint covers: recovery and repair read them."""

from collections.abc import AsyncGenerator
from typing import Final

from odradek.broker.storage.segment import Segment
from odradek.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_good, read_header

READ_BYTES: Final = 1024 * 1024


async def good_batches(
    segment: Segment, gaps_before: int
) -> AsyncGenerator[tuple[int, BatchHeader, memoryview], None]:
    """Yield (position, header, batch) behind the end of `segment`, up to the first bad batch.

    A batch must begin at the offset at which the batch before it ended. Below `gaps_before` it may
    begin later.
    """
    position, next_offset = segment.size_bytes, segment.next_offset
    end = segment.file.size
    wanted = READ_BYTES
    while end - position >= HEADER_BYTES:
        chunk = memoryview(await segment.file.pread(position, min(wanted, end - position)))
        at = 0
        wanted = READ_BYTES
        while len(chunk) - at >= HEADER_BYTES:
            header = read_header(chunk, at)
            size_bytes = header.size_bytes
            # The header is checked before its length is used: a length of garbage could be 2 GiB.
            if not _is_plausible(header, next_offset, gaps_before):
                return
            if position + at + size_bytes > end:
                return
            if at + size_bytes > len(chunk):
                wanted = max(READ_BYTES, size_bytes)
                break
            batch = chunk[at : at + size_bytes]
            # A torn batch must not reach producer state: it would open a transaction that begins
            # beyond the end of the log (KAFKA-12153).
            if not crc_is_good(batch, header):
                return
            yield position + at, header, batch
            next_offset = header.next_offset
            at += size_bytes
        position += at


def _is_plausible(header: BatchHeader, next_offset: int, gaps_before: int) -> bool:
    return (
        header.magic == MAGIC
        and header.size_bytes >= HEADER_BYTES
        and (header.base_offset == next_offset or next_offset < header.base_offset < gaps_before)
        and header.last_offset_delta >= 0
    )
