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
from queue import Empty, SimpleQueue
from typing import Final, NoReturn, TypeVar, TypeVarTuple

import trio

from odradek.client.errors import Closed

T = TypeVar("T")
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
