"""The background tasks of a client: they run from its opening until its close."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from odradek.client.cluster.nursery import ClientNursery
from odradek.client.errors import Closed, Refused

WITHOUT_TRIO: Final = (
    "odradek.client needs trio.run: in an asyncio program import odradek.client.aio instead, in a "
    "program without an event loop odradek.client.blocking"
)
OPENED_ONCE: Final = "it was opened before, and is opened once: make a new one"


class BackgroundTasks:
    """The tasks of one client, in a nursery that is opened once."""

    def __init__(self) -> None:
        self.is_closed = False
        self._nursery: ClientNursery | None = None
        self._running: dict[trio.CancelScope, None] = {}

    async def open(self) -> None:
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(WITHOUT_TRIO)
        if self._nursery is not None:
            raise Refused(OPENED_ONCE)
        self._nursery = await ClientNursery().__aenter__()

    def spawn(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task until the client is closed. Do nothing if it is closed already."""
        if not self.is_closed and self._nursery is not None:
            self._nursery.start_soon(self._until_closed, task, args)

    async def _until_closed(
        self, task: Callable[..., Awaitable[None]], args: tuple[object, ...]
    ) -> None:
        """Run a task that only `cancel` cancels: a cancelled program may still have to abort."""
        with trio.CancelScope(shield=True) as scope:
            self._running[scope] = None
            if self.is_closed:  # a waiter may need the task's `finally`
                scope.cancel()
            try:
                await task(*args)
            except Closed:
                if not self.is_closed:
                    raise
            finally:
                del self._running[scope]

    @property
    def is_open(self) -> bool:
        """True if the client is entered and not left."""
        return self._nursery is not None and not self.is_closed

    def check_open(self) -> None:
        """Raise `Closed` unless the client is entered and not left."""
        if not self.is_open:
            raise Closed("it is not open: use it inside its `with` block, or make a new one")

    def cancel(self) -> None:
        """Cancel every task. The caller has set `is_closed`."""
        assert self.is_closed
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        for scope in list(self._running):
            scope.cancel()

    async def wait_ended(self) -> None:
        """Wait until every task has ended."""
        # The user's exception stays out of the nursery, which would wrap it in a group.
        assert self._nursery is not None
        await self._nursery.__aexit__(None, None, None)
