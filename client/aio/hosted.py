"""The base of the asyncio classes: an object that trio runs, opened by its first use.

An `async with` block closes it. A program whose client outlives a block (a web application, the
cells of a notebook) calls `close` instead.
"""

import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, TypeVarTuple

from odradek.client.aio.crossing import Caller, is_under_asyncio
from odradek.client.blocking.hosted import Hosted, Resource
from odradek.client.blocking.loop import Loop, the_loop
from odradek.client.errors import Closed, OdradekError
from odradek.client.journal import LOGGER, loggable

T = TypeVar("T")
P = ParamSpec("P")
Args = TypeVarTuple("Args")

Reason = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Aio(Generic[Resource]):
    """The base of the asyncio classes: an async context manager around a trio object."""

    _hosted: Hosted[Resource]
    _caller: Caller

    def __repr__(self) -> str:
        inner = self._hosted.opened
        return repr(inner) if inner is not None else f"<{type(self).__name__}, not used yet>"

    async def open(self) -> Self:
        """Open it now, and not at the first use. What is open stays as it is.

        A producer with a transactional id takes the id over here. Raises the error of that: then
        the next use tries again. Raises `Closed` after `close`. If the task is cancelled, it may be
        open or not: `close` does what is needed.
        """
        await self._opened()
        return self

    async def close(self) -> None:
        """Close it as leaving its block does. Closing twice does nothing."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException as error:  # it may have been entered at the moment of a cancellation
            self._abandon((type(error), error, error.__traceback__))
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave((exc_type, exc, traceback))

    async def _opened(self) -> Loop:
        """Open it unless it is open, and return its loop."""
        self._caller.outbox()  # raises under trio, and without a running event loop
        if not self._hosted.is_open:
            self._hosted.check_usable()
            loop = the_loop()
            await self._caller.call(loop, self._hosted.begin, loop)
        return self._hosted.entered

    async def _call(self, task: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run a task in trio's thread. Open the object before, unless it is open."""
        return await self._caller.call(await self._opened(), task, *args)

    async def _leave(self, reason: Reason) -> None:
        """Leave the object. If the block is left by an exception, an error becomes a note on it."""
        if not is_under_asyncio():  # the event loop was closed, and the coroutine is destroyed
            self._abandon(reason)
            return
        loop, end = self._hosted.begun_in, self._closing()
        if end is None or loop is None:
            return
        try:
            await self._caller.call(loop, end, reason)
        except Exception as error:
            exc = reason[1]
            if exc is None:
                raise
            exc.add_note(f"Closing the client failed as well: {error}")

    def _abandon(self, reason: Reason) -> None:
        """Leave the object in the background, unless it is left already."""
        end = self._closing()
        if end is not None:
            self._start_soon(end, reason)

    def _closing(self) -> Callable[[Reason], Awaitable[None]] | None:
        """Set it closed. Return the function that leaves it, in trio's thread; None without."""
        return self._hosted.closing()

    def _start_soon(self, task: Callable[[*Args], Awaitable[None]], *args: *Args) -> None:
        """Run a task in trio's thread, and do not wait for it. Its errors are logged."""
        loop = self._hosted.begun_in
        if loop is None:
            return

        async def run() -> None:
            try:
                await task(*args)
            except OdradekError as error:
                LOGGER.warning("closing a client failed: %s", loggable(error))

        with contextlib.suppress(Closed):  # with its loop, everything of it has ended
            loop.run_soon(loop.start_soon, run)


def aio(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Aio[Any], P], Coroutine[Any, Any, T]]:
    """Make an asyncio method of a trio one, with its arguments and its docstring."""

    @wraps(method)
    async def call(self: Aio[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = await self._opened()
        run = partial(method, self._hosted.resource, *args, **kwargs)
        return await self._caller.call(loop, run)

    return call
