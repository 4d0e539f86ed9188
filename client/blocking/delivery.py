"""A record in the queue of a blocking producer, and its delivery."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.client.errors import OdradekError
from odradek.client.producing.delivery import Delivery as AsyncDelivery
from odradek.client.producing.outcomes import call_back, known_error
from odradek.client.types import Header, OnDelivery, RecordMetadata


class HandsOver(Protocol):
    """The methods of a producer that its deliveries call."""

    async def _handed_over(self) -> None: ...

    def _wait_delivered(self, delivery: "Delivery", timeout_ms: float | None) -> None: ...


class Delivery:
    """The delivery of one record. `result()` waits for its outcome."""

    __slots__ = ("_inner", "_is_read", "_producer", "error")

    def __init__(self, producer: HandsOver) -> None:
        self.error: OdradekError | None = None
        """Why the record was lost before it was in a batch."""
        self._producer = producer
        self._inner: AsyncDelivery | None = None
        self._is_read = False

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

    def result(self, timeout_ms: float | None = None) -> RecordMetadata:
        """Return where the record was stored. Raises its error, or `TimedOut` after `timeout_ms`.

        Without `timeout_ms` it ends within `max_block_ms` plus `delivery_timeout_ms`. `flush` and
        `close` do not raise an error again that was raised here.
        """
        if not self.is_done:
            self._producer._wait_delivered(self, timeout_ms)
        if self.error is not None:
            self._is_read = True
            raise self.error.copy()
        assert self._inner is not None
        return self._inner.result_nowait()

    async def _wait(self) -> None:
        """Wait in the loop until it is done. A program that waits to the end reads the error."""
        self._is_read = True
        try:
            await self._producer._handed_over()
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
    delivery: Delivery
    queued_at: float

    def lost(self, error: BaseException) -> None:
        """Fail a record that was not sent: set its delivery's error and call its callback."""
        known = known_error(error)
        if self.on_delivery is not None:
            self.delivery._is_read = True
        self.delivery.error = known
        if self.on_delivery is not None:
            call_back(self.on_delivery, None, known)
