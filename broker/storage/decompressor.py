"""Decompression of clients' batches, with bounded memory and without blocking the event loop.

A batch of a few kilobytes may decompress to 64 MiB (`DECOMPRESSED_MAX_BYTES`; more is an error) and
have millions of records. A batch that does not fit in a small buffer is therefore decompressed in a
thread, which does not hold the interpreter's lock. At most `AT_ONCE` such batches are in memory,
and each is freed by `release` after its last record. The walk over the records is Python code,
which would block the loop even from a thread, so it takes turns with other tasks (`turns.py`).

The log cleaner has its own thread, for one batch at a time.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from odradek.broker.environment.env import Buffer
from odradek.broker.environment.turns import Turns
from odradek.broker.storage.compaction.raw_records import (
    RawRecord,
    check_count,
    content_of,
    walk,
)
from odradek.protocol.batch import BatchHeader, Codec
from odradek.protocol.compression import (
    DECOMPRESSED_MAX_BYTES,
    Decompressed,
    compress,
    decompress,
    release,
)
from odradek.protocol.errors import ErrorCode, KafkaError

AT_ONCE: Final = 2
"""Batches larger than `INLINE_MAX_BYTES` that are decompressed at the same time: 128 MiB."""
INLINE_MAX_BYTES: Final = 64 * 1024
"""The largest result that is decompressed without a thread: it takes 0.1 ms."""
COPIED_MAX_BYTES: Final = 1024 * 1024
"""The same limit for records that are not compressed."""
STEPS_PER_BATCH: Final = 50
"""The steps of a turn that a batch takes besides its records."""

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]


class Decompressor:
    """The decompressor that all requests of a broker share."""

    def __init__(self, offload: Offload) -> None:
        """Use `offload` for long calls (`Env.offload`)."""
        self._offload = offload
        self._slots = trio.Semaphore(AT_ONCE)

    async def records(
        self, header: BatchHeader, batch: memoryview, turns: Turns
    ) -> AsyncGenerator[RawRecord, None]:
        """Yield every record of a batch, with trio checkpoints in between. Use it with `aclosing`.

        Raises KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE.
        """
        await turns.take(STEPS_PER_BATCH)
        async with self.content(header, batch) as data:
            check_count(header, data)
            for record in walk(header, data):
                await turns.take()
                yield record

    @asynccontextmanager
    async def content(
        self, header: BatchHeader, batch: memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES
    ) -> AsyncIterator[Decompressed]:
        """Enter with the decompressed records of a batch. Raises KafkaError as `records`."""
        content = content_of(header, batch)
        limit = INLINE_MAX_BYTES if header.codec != Codec.NONE else COPIED_MAX_BYTES
        limit = min(limit, max_bytes)
        # Most batches are small. A thread would take longer than their decompression.
        try:
            small: Decompressed | None = decompress(header.codec, content, limit)
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or limit == max_bytes:
                raise
            small = None
        if small is not None:
            yield small
            return
        async with self._slots:
            data = await self._offload(partial(decompress, header.codec, content, max_bytes))
            try:
                yield data
            finally:
                release(data)

    async def compressed(self, codec: Codec, data: Decompressed, level: int | None) -> Buffer:
        """Return the records that `content` gave, compressed."""
        work = partial(_compress, codec, data, level)
        if len(data) <= INLINE_MAX_BYTES:
            return work()
        made: bytes = await self._offload(work)
        return made


def _compress(codec: Codec, data: Decompressed, level: int | None) -> bytes:
    with memoryview(data) as view:  # a mapping cannot be closed while there is a view of it
        return compress(codec, view, level)
