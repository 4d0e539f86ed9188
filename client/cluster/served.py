"""A client that a task keeps open, for programs that cannot hold it in an `async with` block.

The tasks of a client need a nursery that outlives them. `serve` is the block as a task of the
program's own nursery, and `close` leaves it.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

import trio

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.tasks import OPENED_ONCE
from odradek.client.errors import Refused

NOT_SERVED: Final = (
    "only `serve` is ended by close: leave the `async with` block that has opened it"
)


class _Service:
    """The task that has called `serve`, as `close` sees it."""

    def __init__(self) -> None:
        self.close = trio.Event()
        self.scope = trio.CancelScope()
        self.is_over = trio.Event()
        self.error: Exception | None = None


@ends_where_it_waits
class Served(ABC):
    """The base of the trio clients: what their users do with a nursery instead of a block."""

    _cluster: Cluster
    _service: _Service | None = None

    @property
    def _is_open(self) -> bool:
        """True if it is entered and not left."""
        return self._cluster.tasks.is_open

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Connect, in the task of the block."""

    @abstractmethod
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish or drop what is under way, and close the connections."""

    async def serve(self, *, task_status: trio.TaskStatus[Self] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it open until `close`: `await nursery.start(producer.serve)`.

        `start` returns the open client, or raises the error of opening it. If the nursery is
        cancelled, the client is left as a block is by an exception. Afterwards its calls raise
        `Closed`.
        """
        if self._service is not None or self._is_open:
            raise Refused(OPENED_ONCE)
        service = self._service = _Service()
        try:
            with service.scope:
                async with self:
                    task_status.started(self)
                    await service.close.wait()
        except Exception as error:
            if not service.close.is_set():
                raise
            service.error = error  # the task that closes it raises it
        finally:
            service.is_over.set()

    async def close(self) -> None:
        """End `serve`, as leaving a block does. Closing twice does nothing.

        Raises the error of leaving, and `Refused` if it was opened by an `async with` block, which
        closes it.
        """
        service = self._service
        if service is None:
            if self._is_open:
                raise Refused(NOT_SERVED)
            return
        is_first = not service.close.is_set()
        service.close.set()
        try:
            await service.is_over.wait()
        except trio.Cancelled:  # the caller does not wait for the rest: leave without it
            service.scope.cancel()
            with trio.CancelScope(shield=True):
                await service.is_over.wait()
            raise
        if is_first and service.error is not None:
            raise service.error
