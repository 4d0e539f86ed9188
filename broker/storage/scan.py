"""Read a range of a log: for coordinators that load their state, and for timestamp look-ups."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from odradek.broker.environment.env import Buffer
from odradek.broker.storage.log import Log
from odradek.protocol.batch import BatchHeader, iter_batches, last_header

RUN_BYTES: Final = 512 * 1024
"""About 3,000 records of a state topic, which take about 5 ms to process."""


async def runs(log: Log, from_offset: int, to_offset: int) -> AsyncGenerator[Buffer, None]:
    """Yield runs of whole batches, from the batch with `from_offset` on, below `to_offset`.

    Raises KafkaError as `LogReader.read`.
    """
    offset = max(from_offset, log.log_start_offset)
    while offset < to_offset:
        data, _ = await log.reader.read(offset, RUN_BYTES, to_offset=to_offset, min_one=True)
        if not data:
            return
        yield data
        offset = last_header(data).next_offset


async def batches(
    log: Log, from_offset: int, to_offset: int
) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
    """Yield the batches of `runs` one by one."""
    async with aclosing(runs(log, from_offset, to_offset)) as found:
        async for data in found:
            for header, batch in iter_batches(data):
                yield header, batch
