"""The delivery of one record, which an asyncio program may await."""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Any, Protocol

from odradek.client.aio.crossing import Outbox
from odradek.client.blocking.delivery import QueuedDelivery
from odradek.client.types import RecordMetadata


class Tells(Protocol):
    """The method of a producer that its deliveries call."""

    async def _wait_told(self, delivery: "Delivery") -> None: ...


class Waiter:
    """A task that waits for a delivery."""

    __slots__ = ("_outbox", "future")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.future: asyncio.Future[None] = outbox.event_loop.create_future()

    def __call__(self, outcome: Callable[[], Any] | None = None) -> None:
        """Wake the task. It is called in trio's thread, with `outcome` if trio's loop has ended."""
        self._outbox.post(self._wake)

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Delivery(QueuedDelivery):
    """The delivery of one record. Awaiting it returns `RecordMetadata`, or raises the error.

    Several tasks may await it. `flush` and leaving the producer do not raise an error again that a
    task has received here.
    """

    __slots__ = ("_producer", "_waiters")

    def __init__(self, producer: Tells) -> None:
        super().__init__()
        self._producer = producer
        self._waiters: dict[Waiter, None] = {}

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._result().__await__()

    async def _result(self) -> RecordMetadata:
        await self.wait()
        return self.result_nowait()

    async def wait(self) -> None:
        """Wait until the record has an outcome. Does not raise the record's error."""
        if not self.is_done:
            await self._producer._wait_told(self)

    def _wake_all(self) -> None:
        """Wake the tasks that wait. It is called in trio's thread, once the delivery is done."""
        with contextlib.suppress(KeyError):  # the last one was cancelled just now
            while self._waiters:
                waiter, _ = self._waiters.popitem()
                waiter()
