"""A record in the queue of a blocking or asyncio producer, and its delivery."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from odradek.client.arguments import in_ms
from odradek.client.blocking.hosted import Hosted
from odradek.client.errors import OdradekError, TimedOut
from odradek.client.producing.delivery import Delivery as AsyncDelivery
from odradek.client.producing.outcomes import call_back, known_error
from odradek.client.types import Header, OnDelivery, RecordMetadata


class HandsOver(Protocol):
    """A producer as its deliveries know it."""

    _hosted: Hosted[Any]

    async def _wait_handed_over(self) -> None: ...


class QueuedDelivery:
    """The delivery of a record that waits for the loop, and then of the loop's producer."""

    __slots__ = ("_inner", "_is_read", "_wake", "error")

    def __init__(self) -> None:
        self.error: OdradekError | None = None
        """Why the record was lost before it was in a batch."""
        self._inner: AsyncDelivery | None = None
        self._is_read = False
        self._wake: Callable[[], object] | None = None

    def __repr__(self) -> str:
        return f"<Delivery, {'done' if self.is_done else 'under way'}>"

    @property
    def is_done(self) -> bool:
        """True once the record has an outcome: it was stored, or it was lost."""
        return self.error is not None or (self._inner is not None and self._inner.is_done)

    @property
    def unread(self) -> int:
        """1, or 0 if a program has read `error` or waits for it."""
        return 0 if self._is_read else 1

    def result_nowait(self) -> RecordMetadata:
        """Return where the record was stored, or raise its error. It must be done."""
        if self.error is not None:
            self._is_read = True
            raise self.error.copy()
        assert self._inner is not None, "the record has not been acknowledged yet"
        return self._inner.result_nowait()

    # In the loop's thread

    def _on_taken(self, inner: AsyncDelivery) -> None:
        """Note that the producer has the record."""
        self._inner = inner
        if self._wake is not None and self._is_read:
            inner.when_done(self._wake)

    def _on_lost(self, error: OdradekError) -> None:
        """Note that the record is not sent."""
        self.error = error
        if self._wake is not None:
            self._wake()

    def _when_done(self, wake: Callable[[], object]) -> None:
        """Call `wake` once it is done, on behalf of a program that then reads the result."""
        self._is_read = True
        if self._inner is not None:
            self._inner.when_done(wake)
        elif self.error is not None:
            wake()
        else:
            self._wake = wake

    def _unread(self) -> None:
        """Note that the program has stopped waiting, and has not read the error."""
        self._is_read = False
        if self._inner is not None:
            self._inner.not_read()


class Delivery(QueuedDelivery):
    """The delivery of one record. `result()` waits for its outcome."""

    __slots__ = ("_producer",)

    def __init__(self, producer: HandsOver) -> None:
        super().__init__()
        self._producer = producer

    def result(self, timeout_ms: float | None = None) -> RecordMetadata:
        """Return where the record was stored. Raises its error, or `TimedOut` after `timeout_ms`.

        Without `timeout_ms` it ends within `max_block_ms` plus `delivery_timeout_ms`. `flush` and
        `close` do not raise an error again that was raised here.
        """
        if timeout_ms is not None:
            in_ms(timeout_ms)
        if not self.is_done:
            self._producer._hosted.loop.call(self._wait, timeout_ms)
        return self.result_nowait()

    async def _wait(self, timeout_ms: float | None) -> None:
        """Wait in the loop until it is done. Raises `TimedOut` after `timeout_ms`."""
        limit = float("inf") if timeout_ms is None else timeout_ms / 1000
        with trio.move_on_after(limit):
            await self._wait_to_read()
        if not self.is_done:
            raise TimedOut(f"the record was not acknowledged within {timeout_ms} ms")

    async def _wait_to_read(self) -> None:
        """Wait until it is done. A program that waits to the end reads the error."""
        self._is_read = True
        try:
            await self._producer._wait_handed_over()
            if self._inner is not None:
                await self._inner.wait_to_read()
        except BaseException:
            self._is_read = False
            raise


class Queued(NamedTuple):
    """A record that waits for the loop."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int | None
    on_delivery: OnDelivery | None
    delivery: QueuedDelivery
    queued_at: float

    def fail(self, error: BaseException) -> None:
        """Fail a record that was not sent: set its delivery's error and call its callback."""
        known = known_error(error)
        if self.on_delivery is not None:
            self.delivery._is_read = True
        self.delivery._on_lost(known)
        if self.on_delivery is not None:
            call_back(self.on_delivery, None, known)
