"""Between an asyncio event loop and the thread that runs trio, in both directions.

A call goes to trio with `Loop.begin`; its outcome comes back through an `Outbox`. All that trio
sends to one event loop in a burst (outcomes of calls, callbacks of deliveries) is carried out by
one callback of that event loop, in the order in which it was sent: waking an event loop costs a
system call and a change of threads.

If the asyncio task of a call is cancelled, its task in trio is cancelled too, and the asyncio task
waits until that has cleaned up, for `INTERRUPTED_GRACE_S` at most.
"""

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar, TypeVarTuple

import trio

from odradek.client.blocking.loop import INTERRUPTED_GRACE_S, Loop
from odradek.client.cluster.counting import call_reporter
from odradek.client.errors import Closed
from odradek.client.journal import LOGGER
from odradek.client.producing.outcomes import call_back
from odradek.client.types import OnDelivery, RecordMetadata

T = TypeVar("T")
Args = TypeVarTuple("Args")

LOOK_SECONDS: Final = 1.0
"""How often a task that waits for an event loop looks whether it was closed meanwhile."""
UNDER_TRIO: Final = (
    "odradek.client.aio needs a running asyncio event loop: in a trio program import "
    "odradek.client instead"
)
WITHOUT_LOOP: Final = (
    "odradek.client.aio needs a running asyncio event loop: use it in a coroutine, or import "
    "odradek.client.blocking instead"
)


def is_under_asyncio() -> bool:
    """Return True in a coroutine or a callback of a running asyncio event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raises RuntimeError without one, with what to import."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        is_trio = trio.lowlevel.in_trio_run()
        raise RuntimeError(UNDER_TRIO if is_trio else WITHOUT_LOOP) from None


class Outbox:
    """The functions that trio's thread wants to be called in the thread of one event loop."""

    def __init__(self, event_loop: asyncio.AbstractEventLoop) -> None:
        self.event_loop: Final = event_loop
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_scheduled = False
        self.is_turn_watched = False
        """A function will be called at the end of this turn of the event loop."""

    def at_turns_end(self, function: Callable[[], object]) -> None:
        """Call a function once at the end of this turn of the event loop, in its own thread."""
        if not self.is_turn_watched:
            self.is_turn_watched = True
            self.event_loop.call_soon(self._end_turn, function)

    def _end_turn(self, function: Callable[[], object]) -> None:
        self.is_turn_watched = False
        function()

    def post(self, function: Callable[[*Args], object], *args: *Args) -> bool:
        """Call a function soon in the event loop's thread. Return False if the loop is closed."""
        self._posted.append((function, args))
        # An event loop that is closed drops what is scheduled.
        is_on_its_way = self._is_scheduled and not self.event_loop.is_closed()
        return is_on_its_way or self._schedule()

    def _schedule(self) -> bool:
        self._is_scheduled = True
        try:
            self.event_loop.call_soon_threadsafe(self._call_posted)
        except RuntimeError:  # it is closed, and nothing of it will run again
            self._posted.clear()
            return False
        return True

    def _call_posted(self) -> None:
        self._is_scheduled = False  # first: what is posted from now on may be seen here, or not
        try:
            for _ in range(len(self._posted)):
                function, args = self._posted.popleft()
                function(*args)
        finally:  # a callback may have raised KeyboardInterrupt
            if self._posted and not self._is_scheduled:
                self._schedule()

    def callback(self, on_delivery: OnDelivery) -> OnDelivery:
        """Return a function for trio's thread that calls `on_delivery` in the event loop's."""

        def post(metadata: RecordMetadata | None, error: Any) -> None:
            if not self.post(call_back, on_delivery, metadata, error):
                LOGGER.warning(
                    "a callback of a delivery was not called, because its event loop is closed"
                )

        return post

    async def carry_out(self, function: Callable[[*Args], Awaitable[T] | T], *args: *Args) -> T:
        """Call a function, plain or async, in the event loop's thread, and return its result.

        A task of trio waits for it. If that task is cancelled, so is the asyncio task of an async
        function. Raises the exception of the function, and `Closed` if the event loop is closed.
        """
        errand = _Errand(trio.lowlevel.current_trio_token(), partial(function, *args))
        is_taken = self.post(errand.run)
        try:
            while is_taken and not errand.is_done.is_set():
                # An event loop that is closed drops what was scheduled before, too, without a word.
                with trio.move_on_after(LOOK_SECONDS):
                    await errand.is_done.wait()
                is_taken = errand.outcome is not None or not self.event_loop.is_closed()
            if not is_taken:
                raise Closed("a callback was not called, because its event loop is closed")
        except trio.Cancelled:
            self.post(errand.cancel)
            raise
        assert errand.outcome is not None
        return errand.outcome()


class _Errand(Generic[T]):
    """A function that a task of trio wants to be carried out in an event loop's thread."""

    def __init__(
        self, token: trio.lowlevel.TrioToken, function: Callable[[], Awaitable[T] | T]
    ) -> None:
        self.is_done: Final = trio.Event()
        self.outcome: Callable[[], T] | None = None
        self._token = token
        self._function = function
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Call the function, and start a task if it is async."""
        try:
            result = self._function()
        except BaseException as error:
            self._end(partial(_raise, error))
            return
        if inspect.isawaitable(result):
            self._task = asyncio.ensure_future(self._wait(result))
        else:
            self._end(lambda: result)

    async def _wait(self, result: Awaitable[T]) -> None:
        try:
            value = await result
        except BaseException as error:
            self._end(partial(_raise, error))
        else:
            self._end(lambda: value)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, outcome: Callable[[], T]) -> None:
        self.outcome = outcome
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.is_done.set)


def _raise(error: BaseException) -> NoReturn:
    raise error


class PendingCall(Generic[T]):
    """The outcome of a call, which comes from trio's thread."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._outcome: Callable[[], T] | None = None
        self._arrived = outbox.event_loop.create_future()

    def __call__(self, outcome: Callable[[], T]) -> None:
        """Take the outcome. It is called in trio's thread."""
        self._outcome = outcome
        self._outbox.post(self._wake)

    def _wake(self) -> None:
        if not self._arrived.done():
            self._arrived.set_result(None)

    async def wait(self) -> T:
        """Return the result of the call, or raise its error."""
        await self._arrived
        assert self._outcome is not None
        return self._outcome()

    async def wait_cancelled(self) -> None:
        """Wait a little longer, after the wait was cancelled, for a call that is cancelled now."""
        self._arrived = self._outbox.event_loop.create_future()
        if self._outcome is None:
            await asyncio.wait([self._arrived], timeout=INTERRUPTED_GRACE_S)


class Caller:
    """The asyncio side of one client. Several event loops, in several threads, may use it."""

    def __init__(self) -> None:
        self._outbox: Outbox | None = None

    def outbox(self) -> Outbox:
        """Return an outbox to the running event loop. Raises RuntimeError without one."""
        running, outbox = running_loop(), self._outbox
        if outbox is None or outbox.event_loop is not running:
            outbox = self._outbox = Outbox(running)
        return outbox

    def reporter(self, report: Callable[[T], object]) -> Callable[[T], object]:
        """Return a function for trio's thread that calls `report` in the last event loop's."""

        def post(statistics: T) -> None:
            if self._outbox is not None:  # a loop that is closed wants no reports
                self._outbox.post(call_reporter, report, statistics)

        return post

    async def call(self, loop: Loop, task: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run `await task(*args)` in trio's thread, and return its result.

        Raises every exception of the task, and `Closed` if the loop ends before.
        """
        pending = PendingCall[T](self.outbox())
        scope = trio.CancelScope()
        loop.begin(scope, pending, task, *args)
        try:
            return await pending.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(Closed):
                loop.run_soon(scope.cancel)
                await pending.wait_cancelled()
            raise
        except GeneratorExit:  # the coroutine is being destroyed, and cannot wait
            with contextlib.suppress(Closed):
                loop.run_soon(scope.cancel)
            raise
