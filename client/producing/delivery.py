"""The delivery of one record, which a program may await."""

from collections.abc import Callable, Generator
from typing import Any

from odradek.client.producing.batches import ProducerBatch
from odradek.client.types import RecordMetadata


class Delivery:
    """The delivery of one record. Awaiting it returns `RecordMetadata`, or raises the error."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        state = "done" if self._batch.is_done else "under way"
        return f"<Delivery to {self._batch.queue.name}, {state}>"

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if not batch.is_done:
            batch.mark_read(self._index)  # so that `flush` does not raise the error
            try:
                yield from batch.wait().__await__()
            except BaseException:  # a program that stops waiting has not read the error
                batch.mark_unread(self._index)
                raise
        return self.result_nowait()

    async def wait(self) -> None:
        """Wait until the record has an outcome. Does not raise the record's error."""
        await self._batch.wait()

    def when_done(self, wake: Callable[[], object]) -> None:
        """Call `wake` once it is done, on behalf of a program that then reads the result."""
        self._batch.mark_read(self._index)
        self._batch.when_done(wake)

    def not_read(self) -> None:
        """Note that the program of `when_done` does not read the result after all."""
        self._batch.mark_unread(self._index)

    @property
    def is_done(self) -> bool:
        """True once the record has an outcome: it was stored, or it was lost."""
        return self._batch.is_done

    def result_nowait(self) -> RecordMetadata:
        """Return what awaiting it returns, or raise its error. It must be done."""
        batch = self._batch
        assert batch.is_done, "the record has not been acknowledged yet"
        batch.mark_read(self._index)
        if batch.error is not None:
            raise batch.error.copy()
        return batch.metadata(self._index, self._timestamp_ms)
