"""The trio object behind a blocking or asyncio one: entered, used and left in the loop's thread.

Nothing in the loop refers to the program's object. So one that the program drops without closing it
is collected, and a finaliser leaves the trio object: it must not keep its sockets for ever.
"""

import contextlib
import os
import warnings
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

import trio

from odradek.client.blocking.loop import Loop, the_loop
from odradek.client.errors import Closed, OdradekError
from odradek.client.journal import LOGGER

T = TypeVar("T")
P = ParamSpec("P")
Resource = TypeVar("Resource", bound=AbstractAsyncContextManager[Any])

MADE_BEFORE_FORK: Final = "it was made before a fork: make a new one in the child process"
CLOSED: Final = "it is closed: make a new one"


class _Stay(Generic[Resource]):
    """The task of the loop that enters one async object, and leaves it when it is closed."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._entered, self._leave, self._left = trio.Event(), trio.Event(), trio.Event()
        self._scope = trio.CancelScope()
        self._reason: tuple[Any, Any, Any] = (None, None, None)
        self._error: BaseException | None = None

    async def begin(self, loop: Loop) -> None:
        """Start the task, and wait until the object is entered. Raises the error of entering."""
        loop.start_soon(self._run, loop)
        try:
            await self._entered.wait()
        except BaseException:
            self._scope.cancel()
            raise
        if self._error is not None:
            raise self._error

    async def _run(self, loop: Loop) -> None:
        try:
            with self._scope:
                await self.resource.__aenter__()
                self._entered.set()
                try:
                    await self._leave.wait()
                finally:
                    await self.resource.__aexit__(*self._reason)
        except trio.Cancelled:  # the loop is ending
            raise
        except BaseException as error:  # also a SystemExit of a callback: the program must get it
            self._error = error
        finally:
            loop.at_exit.pop(self.resource, None)
            self._entered.set()
            self._left.set()

    async def end(self, reason: tuple[Any, Any, Any]) -> None:
        """Leave the object, and end the task. Raises the error of leaving."""
        self._reason = reason
        self._leave.set()
        try:
            await self._left.wait()
        except trio.Cancelled:  # the caller does not wait for the rest: leave without it
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._left.wait()
            raise
        if self._error is not None:
            raise self._error

    async def end_dropped(self, error: BaseException | None) -> None:
        """Leave an object that the program has dropped, as if by `error`."""
        try:
            await self.end((None if error is None else type(error), error, None))
        except OdradekError as failure:
            LOGGER.warning("closing %r, which was dropped, failed: %s", self.resource, failure)


def _end_dropped(loop: Loop, stay: _Stay[Any], error: BaseException | None) -> None:
    """Leave an object that the program has dropped without close. Every thread may call it."""
    if loop.process_id != os.getpid() or not loop.is_running:
        return  # after a fork the connections are the parent's; with its loop everything has ended
    with contextlib.suppress(Closed):
        loop.run_soon(loop.start_soon, stay.end_dropped, error)
    warnings.warn(
        f"{stay.resource!r} was dropped and not closed: use it in a `with` block, or call close",
        ResourceWarning,
        stacklevel=2,
    )


class Hosted(Generic[Resource]):
    """An async context manager that is entered and left in one task of the loop.

    It is entered at the first use, so an object that is never used starts no thread and opens no
    connection.
    """

    def __init__(
        self, make: Callable[[], Resource], *, dropped: BaseException | None = None
    ) -> None:
        """Host what `make` returns. If the program drops it, it is left as if by `dropped`."""
        self.make = make
        self._dropped = dropped
        self._loop: Loop | None = None
        self._stay: _Stay[Resource] | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._begun_in: Loop | None = None
        self._entering = trio.Lock()
        self._attempt = trio.CancelScope()
        self.is_closed = False

    @property
    def loop(self) -> Loop:
        self.enter()
        assert self._loop is not None
        return self._loop

    @property
    def entered(self) -> Loop:
        """The loop of an object that is entered, or was. Raises `Closed` before, and after a fork.

        An asyncio program must not wait for entering here: it would block its event loop.
        """
        if self._loop is None:
            raise Closed("it is not open: open it, or use it in its `async with` block")
        if self._loop.process_id != os.getpid():
            raise Closed(MADE_BEFORE_FORK)
        return self._loop

    @property
    def begun_in(self) -> Loop | None:
        """The loop in which it is entered, or is being entered. None before, and after a fork."""
        loop = self._begun_in
        return loop if loop is not None and loop.process_id == os.getpid() else None

    @property
    def resource(self) -> Resource:
        """The async object. Use it in the loop's thread only."""
        self.enter()
        assert self._stay is not None
        return self._stay.resource

    @property
    def opened(self) -> Resource | None:
        """The async object if it was ever entered, also after it was left; else None."""
        return self._stay.resource if self._stay is not None else None

    @property
    def is_open(self) -> bool:
        """True if the object is entered and not left, and this process has entered it."""
        loop = self._loop
        return not self.is_closed and loop is not None and loop.process_id == os.getpid()

    def enter(self) -> None:
        """Enter the object unless it is entered.

        Raises the error of entering, and `Closed` after `close` or in another process.
        """
        self.check_usable()
        if self._loop is None:
            loop = the_loop()
            loop.call(self.begin, loop)

    def check_usable(self) -> None:
        """Raise `Closed` after `close`, and in a process that has not entered it."""
        if self.is_closed:
            raise Closed(CLOSED)
        if self._loop is not None and self._loop.process_id != os.getpid():
            raise Closed(MADE_BEFORE_FORK)

    async def begin(self, loop: Loop) -> None:
        """Enter the object unless it is entered. Call it in the loop's thread.

        Several threads or tasks may use it first at the same time: one enters it, the others wait.
        If that one fails or is cancelled, the next one tries again. Closing it ends the attempt.
        """
        if self._begun_in is not loop:
            # A parent process, or a loop that has ended, may have held the lock.
            self._begun_in, self._entering = loop, trio.Lock()
        async with self._entering:
            self._attempt = trio.CancelScope()
            self.check_usable()
            if self._stay is not None:
                return
            stay = _Stay(self.make())
            with self._attempt:
                await stay.begin(loop)
                self._stay, self._loop = stay, loop
                self._finalizer = weakref.finalize(self, _end_dropped, loop, stay, self._dropped)
                self._finalizer.atexit = False
            if self._stay is None:
                raise Closed("it was closed while it was being opened")

    def close(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Leave the object. Closing twice does nothing.

        Raises the error of leaving. If `exc` is given, that error becomes a note on it instead.
        """
        loop = self.begun_in
        if loop is not None and not self.is_closed:
            loop.check_caller()  # a callback must not close it; raise before anything changes
        end = self.closing()
        if end is None or loop is None:
            return
        try:
            loop.call(end, (exc_type, exc, traceback))
        except Exception as error:
            if exc is None:
                raise
            exc.add_note(f"Closing the client failed as well: {error}")

    def closing(self) -> Callable[[tuple[Any, Any, Any]], Awaitable[None]] | None:
        """Set it closed. Return the function that leaves it, in the loop's thread; None without."""
        was_closed, self.is_closed = self.is_closed, True
        if self._finalizer is not None:
            self._finalizer.detach()
        return None if was_closed or self.begun_in is None else self._end

    async def _end(self, reason: tuple[Any, Any, Any]) -> None:
        """Leave the object. If it is being entered, end that. Raises the error of leaving."""
        # invariant client 14: A closed client stays closed, also if it was being opened.
        # plant a client that is closed while it is being opened is open afterwards
        self._attempt.cancel()
        # A caller that is cancelled already must not end here: nobody would leave the object then.
        with trio.CancelScope(shield=True):
            async with self._entering:
                pass
        if self._stay is not None:
            await self._stay.end(reason)


class Blocking(Generic[Resource]):
    """The base of the blocking classes: a context manager around an async object."""

    _hosted: Hosted[Resource]

    def __repr__(self) -> str:
        inner = self._hosted.opened
        return repr(inner) if inner is not None else f"<{type(self).__name__}, not used yet>"

    def open(self) -> Self:
        """Open it now, and not at the first use. What is open stays as it is.

        A producer with a transactional id takes the id over here. Raises the error of that: then
        the next use tries again. Raises `Closed` after `close`.
        """
        self._hosted.enter()
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hosted.close(exc_type, exc, traceback)

    def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        self._hosted.close()

    @property
    def _async(self) -> Resource:
        return self._hosted.resource


def blocking(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Blocking[Any], P], T]:
    """Make a blocking method of an async one, with its arguments and its docstring."""

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._hosted.loop.call(partial(method, self._async, *args, **kwargs))

    return call
