"""One daemon thread that runs trio, for all blocking objects of a process.

It starts when something is first used and is made anew after a fork: a child has none of its
parent's threads, and must use none of its parent's connections (Spark's daemon forks its
workers). A call from a program's thread becomes a task in that thread; the caller waits in a way
that Ctrl-C interrupts, and then the task is cancelled too.
"""

import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, TypeVar, TypeVarTuple

import trio

from odradek.client.errors import Closed

T = TypeVar("T")
Resource = TypeVar("Resource", bound=AbstractAsyncContextManager[Any])
Args = TypeVarTuple("Args")

INTERRUPTED_GRACE_S: Final = 2.0
"""How long an interrupted call may still tidy up (abort a transaction, say)."""


class Loop:
    """A thread with a trio loop in it."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        started: SimpleQueue[trio.lowlevel.TrioToken] = SimpleQueue()
        self._nursery: trio.Nursery | None = None
        thread = threading.Thread(
            target=trio.run, args=(self._main, started), name="odradek-client", daemon=True
        )
        thread.start()
        self.token = started.get()
        self._thread = thread

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    async def _main(self, started: SimpleQueue[trio.lowlevel.TrioToken]) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            started.put(trio.lowlevel.current_trio_token())
            await trio.sleep_forever()

    def call(self, task: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run `await task(*args)` in the loop and wait for its result."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call cannot be made from a delivery's callback")
        answer: SimpleQueue[Callable[[], T]] = SimpleQueue()
        scope = trio.CancelScope()

        async def run() -> None:
            failure: BaseException = Closed("the call was interrupted")
            try:
                with scope:
                    value = await task(*args)
                    answer.put(lambda: value)
                    return
            except Exception as error:
                failure = error
            answer.put(lambda: _raise(failure))

        assert self._nursery is not None
        self.token.run_sync_soon(self._nursery.start_soon, run)
        try:
            result = answer.get()
        except BaseException:
            self.token.run_sync_soon(scope.cancel)
            with contextlib.suppress(Empty):  # it goes on ending; the user wants to leave now
                answer.get(timeout=INTERRUPTED_GRACE_S)
            raise
        return result()

    def call_nowait(self, function: Callable[[*Args], T], *args: *Args) -> T:
        """Run a plain function in the loop and wait for its result."""

        async def task() -> T:
            return function(*args)

        return self.call(task)


def _raise(error: BaseException) -> NoReturn:
    raise error


class _Holder:
    """Where a process keeps its loop."""

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self.process_id = -1
        self.lock = threading.Lock()


# The one piece of module state there is: "one thread per process" cannot hang from anything else.
_HOLDER: Final = _Holder()


def the_loop() -> Loop:
    """This process's loop, made at the first call."""
    process_id = os.getpid()
    if _HOLDER.process_id != process_id:
        # After a fork; the lock may have been held by a thread that this process does not have.
        _HOLDER.lock = threading.Lock()
    with _HOLDER.lock:
        loop = _HOLDER.loop
        if loop is None or loop.process_id != process_id or not loop.is_running:
            loop = _HOLDER.loop = Loop()
            _HOLDER.process_id = process_id
        return loop


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
