"""The base of the asyncio classes: an async context manager around an object that trio runs."""

import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, TypeVarTuple

from odradek.client.aio.crossing import Caller, is_under_asyncio
from odradek.client.blocking.hosted import Hosted, Resource
from odradek.client.blocking.loop import the_loop
from odradek.client.errors import Closed, OdradekError, Refused
from odradek.client.journal import LOGGER, loggable

T = TypeVar("T")
P = ParamSpec("P")
Args = TypeVarTuple("Args")

Reason = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Aio(Generic[Resource]):
    """The base of the asyncio classes: an async context manager, which is entered once."""

    _hosted: Hosted[Resource]
    _caller: Caller
    _is_entered = False

    def __repr__(self) -> str:
        inner = self._hosted.opened
        return repr(inner) if inner is not None else f"<{type(self).__name__}, not used yet>"

    async def __aenter__(self) -> Self:
        self._caller.outbox()  # raises under trio, and without a running event loop
        if self._is_entered:
            raise Refused("it was entered before: make a new one")
        self._is_entered = True
        loop = the_loop()
        try:
            await self._caller.call(loop, self._hosted.begin, loop)
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

    async def _call(self, task: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run a task in trio's thread. Raises `Closed` before the object is entered."""
        return await self._caller.call(self._hosted.entered, task, *args)

    async def _leave(self, reason: Reason) -> None:
        """Leave the object. If the block is left by an exception, an error becomes a note on it."""
        if not is_under_asyncio():  # the event loop was closed, and the coroutine is destroyed
            self._abandon(reason)
            return
        end = self._closing()
        if end is None:
            return
        try:
            await self._call(end, reason)
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
        loop = self._hosted.entered

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
        loop = self._hosted.entered
        run = partial(method, self._hosted.resource, *args, **kwargs)
        return await self._caller.call(loop, run)

    return call
