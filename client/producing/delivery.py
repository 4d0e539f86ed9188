"""The answer to one record, which the program may wait for."""

from collections.abc import Generator
from typing import Any

from odradek.client.producing.batches import Batch
from odradek.client.types import RecordMetadata


class Delivery:
    """The answer to one record: await it for its `RecordMetadata`, or for what went wrong."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        state = "done" if self._batch.is_done else "under way"
        return f"<Delivery to {self._batch.queue.name}, {state}>"

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        await self.wait_to_read()
        return self.result_nowait()

    async def wait(self) -> None:
        """Wait until it is done, with or without an error."""
        await self._batch.wait()

    async def wait_to_read(self) -> None:
        """Wait for a program that then reads the result, so that `flush` does not raise it."""
        batch = self._batch
        batch.mark_read(self._index)
        try:
            await batch.wait()
        except BaseException:  # a program that stops waiting has not read it
            batch.mark_unread(self._index)
            raise

    @property
    def is_done(self) -> bool:
        """True once the record has an outcome: it was stored, or it was lost."""
        return self._batch.is_done

    def result_nowait(self) -> RecordMetadata:
        """What awaiting it gives, once it is done."""
        batch = self._batch
        assert batch.is_done, "the record has not been acknowledged yet"
        batch.mark_read(self._index)
        if batch.error is not None:
            raise batch.error.copy()
        return batch.metadata(self._index, self._timestamp_ms)
