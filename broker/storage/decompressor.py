"""Where the broker looks into record batches that clients wrote: bounded, and without holding up.

A batch of a few kilobytes may stand for 64 MiB (`DECOMPRESSED_MAX_BYTES`; more is an error), and
for millions of records. So what does not fit into a small buffer is decompressed in a thread, which
leaves the interpreter to the loop meanwhile; at most `AT_ONCE` such batches are in memory together,
and each goes as soon as it was read, by `release`, whatever happens. Walking the records is Python
and would make the loop wait for the interpreter, in a thread even more than on the loop: it is done
in turns (`turns.py`).

The log cleaner works on one batch at a time in a thread of its own, besides these.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from odradek.broker.storage.compaction.raw_records import (
    RawRecord,
    check_count,
    content_of,
    walk,
)
from odradek.broker.turns import Turns
from odradek.protocol.batch import BatchHeader, Codec
from odradek.protocol.compression import (
    DECOMPRESSED_MAX_BYTES,
    Decompressed,
    decompress,
    release,
)
from odradek.protocol.errors import ErrorCode, KafkaError

AT_ONCE: Final = 2
"""Batches larger than `INLINE_MAX_BYTES` that are decompressed at the same time: 128 MiB."""
INLINE_MAX_BYTES: Final = 64 * 1024
"""What is decompressed without a thread: it takes a tenth of a millisecond."""
COPIED_MAX_BYTES: Final = 1024 * 1024
"""The same of what is not compressed."""
STEPS_PER_BATCH: Final = 50
"""What a batch takes of a turn besides its records."""

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]


class Decompressor:
    """One for a broker."""

    def __init__(self, offload: Offload) -> None:
        """`offload` calls a function that takes long (`Env.offload`)."""
        self._offload = offload
        self._slots = trio.Semaphore(AT_ONCE)

    async def records(
        self, header: BatchHeader, batch: memoryview, turns: Turns
    ) -> AsyncGenerator[RawRecord, None]:
        """Every record of a batch, with a checkpoint now and then. Use it with `aclosing`.

        Raises KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE.
        """
        await turns.take(STEPS_PER_BATCH)
        async with self._content(header, batch) as data:
            check_count(header, data)
            for record in walk(header, data):
                await turns.take()
                yield record

    @asynccontextmanager
    async def _content(self, header: BatchHeader, batch: memoryview) -> AsyncIterator[Decompressed]:
        content = content_of(header, batch)
        limit = INLINE_MAX_BYTES if header.codec != Codec.NONE else COPIED_MAX_BYTES
        try:
            small: Decompressed | None = decompress(header.codec, content, limit)
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            small = None
        if small is not None:
            yield small
            return
        async with self._slots:
            data = await self._offload(
                partial(decompress, header.codec, content, DECOMPRESSED_MAX_BYTES)
            )
            try:
                yield data
            finally:
                release(data)
