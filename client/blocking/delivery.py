"""A record in the queue of a blocking or asyncio producer, and its delivery."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.client.arguments import in_ms
from odradek.client.blocking.hosted import Hosted
from odradek.client.errors import OdradekError, TimedOut
from odradek.client.producing.delivery import Delivery as AsyncDelivery
from odradek.client.producing.outcomes import call_back, known_error
from odradek.client.producing.record_checks import headers_bytes
from odradek.client.types import Header, OnDelivery, RecordMetadata


class HandsOver(Protocol):
    """A producer as its deliveries know it."""

    _hosted: Hosted[Any]


class QueuedDelivery:
    """The delivery of a record that waits for the loop, and then of the loop's producer."""

    __slots__ = ("_inner", "_is_read", "_wakes", "error")

    def __init__(self) -> None:
        self.error: OdradekError | None = None
        """Why the record was lost before it was in a batch."""
        self._inner: AsyncDelivery | None = None
        self._is_read = False
        self._wakes: dict[Callable[[], object], None] | None = None
        """What to call once it is done, until the producer has the record."""

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
        wakes, self._wakes = self._wakes, None
        for wake in wakes or ():
            inner.when_done(wake)

    def _on_lost(self, error: OdradekError) -> None:
        """Note that the record is not sent."""
        self.error = error
        wakes, self._wakes = self._wakes, None
        for wake in wakes or ():
            wake()

    def _when_done(self, wake: Callable[[], object]) -> None:
        """Call `wake` once it is done, on behalf of a program that then reads the result."""
        self._is_read = True
        if self._inner is not None:
            self._inner.when_done(wake)
        elif self.error is not None:
            wake()
        elif self._wakes is None:
            self._wakes = {wake: None}
        else:
            self._wakes[wake] = None

    def _stop_waiting(self, wake: Callable[[], object]) -> None:
        """Note that the program that has given `wake` does not wait, and has not read the error."""
        if self._wakes is not None:
            self._wakes.pop(wake, None)
        if not self._wakes:
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
            limit_s = threading.TIMEOUT_MAX  # three hundred years
            if timeout_ms is not None:
                limit_s = min(timeout_ms / 1000, limit_s)
            if not self._producer._hosted.loop.wait(self._when_done, self._give_up, limit_s):
                raise TimedOut(f"the record was not acknowledged within {timeout_ms} ms")
        return self.result_nowait()

    def _give_up(self, wake: Callable[[], object]) -> bool:
        """Stop waiting. Return True if it is done meanwhile."""
        if not self.is_done:
            self._stop_waiting(wake)
        return self.is_done


def own_bytes(given: bytes | None) -> bytes | None:
    """Return a copy of bytes that the program might change before trio's thread encodes them."""
    return bytes(given) if isinstance(given, bytearray | memoryview) else given


def own_headers(headers: Sequence[Header]) -> Sequence[Header]:
    """Return a copy of headers, as of a list that the program uses again for the next record."""
    if isinstance(headers, list | tuple):
        with contextlib.suppress(TypeError, ValueError):
            return tuple((name, own_bytes(value)) for name, value in headers)
    return headers  # trio's thread refuses the record, and says what is wrong with it


def queued_headers_bytes(headers: Sequence[Header]) -> int:
    """Return the size of headers; 0 if they are wrong."""
    if isinstance(headers, list | tuple):  # others may be gone once they were looked at
        with contextlib.suppress(TypeError, ValueError):
            return headers_bytes(headers)
    return 0


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
