"""An async object that lives in the loop, and what makes a blocking one of it."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import trio

from odradek.client.blocking.loop import Loop, the_loop
from odradek.client.errors import Closed

T = TypeVar("T")
P = ParamSpec("P")
Resource = TypeVar("Resource", bound=AbstractAsyncContextManager[Any])


class Hosted(Generic[Resource]):
    """An async context manager that is entered and left in one task of the loop.

    It is entered at the first use, so that an object which is only made costs nothing, and may be
    pickled-by-making-anew wherever it is needed.
    """

    def __init__(self, make: Callable[[], Resource]) -> None:
        self._make = make
        self._loop: Loop | None = None
        self._resource: Resource | None = None
        self._leave: trio.Event | None = None
        self._left: trio.Event | None = None
        self._reason: tuple[Any, Any, Any] = (None, None, None)
        self._error: BaseException | None = None
        self._is_closed = False

    @property
    def loop(self) -> Loop:
        self.enter()
        assert self._loop is not None
        return self._loop

    @property
    def resource(self) -> Resource:
        """The async object; use it in the loop only."""
        self.enter()
        assert self._resource is not None
        return self._resource

    @property
    def opened(self) -> Resource | None:
        """The async object if it has been entered."""
        return self._resource

    def enter(self) -> None:
        """Raises what entering raises; `Closed` after `close`, or in another process."""
        if self._is_closed:
            raise Closed("it is closed: make a new one")
        if self._loop is None:
            loop = the_loop()
            self._resource = loop.call(self._enter, loop)
            self._loop = loop
        elif self._loop.process_id != os.getpid():
            raise Closed("it was made before a fork: make a new one in the child process")

    async def _enter(self, loop: Loop) -> Resource:
        resource = self._make()
        entered = trio.Event()
        self._leave, self._left = trio.Event(), trio.Event()
        assert loop._nursery is not None
        host_scope = trio.CancelScope()
        loop._nursery.start_soon(self._host, resource, entered, host_scope)
        try:
            await entered.wait()
        except BaseException:
            host_scope.cancel()
            raise
        if self._error is not None:
            raise self._error
        return resource

    async def _host(self, resource: Resource, entered: trio.Event, scope: trio.CancelScope) -> None:
        assert self._leave is not None
        assert self._left is not None
        try:
            with scope:
                await resource.__aenter__()
                entered.set()
                try:
                    await self._leave.wait()
                finally:
                    await resource.__aexit__(*self._reason)
        except Exception as error:
            self._error = error
        finally:
            entered.set()
            self._left.set()

    def close(
        self,
        exc_type: type[BaseException] | None = None,
        exc: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Leave it. Raises what leaving raises; closing twice is nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is not None and self._loop.process_id == os.getpid():
            self._reason = (exc_type, exc, traceback)
            self._loop.call(self._wait_left)

    async def _wait_left(self) -> None:
        assert self._leave is not None
        assert self._left is not None
        self._leave.set()
        await self._left.wait()
        if self._error is not None:
            raise self._error


class Blocking(Generic[Resource]):
    """What a blocking class has around its async object: it is entered, left and closed."""

    _hosted: Hosted[Resource]

    def __enter__(self) -> Self:
        self._hosted.enter()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hosted.close(exc_type, exc, traceback)

    def close(self) -> None:
        self._hosted.close()

    @property
    def _async(self) -> Resource:
        return self._hosted.resource


def blocking(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Blocking[Any], P], T]:
    """A method that waits for the async one of the same name: its arguments, its docstring."""

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._hosted.loop.call(partial(method, self._async, *args, **kwargs))

    return call
