"""One daemon thread that runs trio, for all blocking and asyncio objects of a process.

The thread starts when the first object is used. After a fork the child process starts its own: it
has none of its parent's threads, and must not use its parent's connections (Spark's daemon forks
its workers). A call from a program's thread becomes a task in the loop. Ctrl-C interrupts the
waiting caller, and then the task is cancelled too. A thread that waits for a record's delivery
needs no task: what settles the record wakes the thread.

All clients of a process share the loop, so no client may end it. There are four ways in, and an
exception leaves the loop through none of them: `call` raises it in the caller (as `begin` does for
asyncio), the others log it. (trio ends the whole loop if a system task or a
function given to `run_sync_soon` raises.) If the loop ends all the same, every waiting call raises
`Closed` at once, and the next client starts a new loop.
"""

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn, Protocol, TypeVar, TypeVarTuple

import trio

from odradek.client.errors import Closed, Refused
from odradek.client.green import why_not
from odradek.late import dataclass

T = TypeVar("T")
Args = TypeVarTuple("Args")

LOGGER: Final = logging.getLogger("odradek.client")

INTERRUPTED_GRACE_S: Final = 2.0
"""The time that an interrupted call has to clean up, for example to abort a transaction."""


@dataclass(frozen=True, slots=True)
class _Errand:
    """A function that a call's task wants to be run in the thread of its caller."""

    run: Callable[[], None]


class StaysBehind(Protocol):
    """An object of a program that cannot be used after a fork."""

    def _on_forked(self) -> None: ...


class Loop:
    """A thread that runs a trio loop."""

    def __init__(self, clock: trio.abc.Clock | None = None) -> None:
        """Start the thread. Raises `Closed` if the loop cannot start (no file descriptors left).

        Raises `Refused` if gevent or eventlet has patched what it needs.
        """
        if (why := why_not()) is not None:
            raise Refused(why)
        self.process_id = os.getpid()
        self.at_exit: dict[object, Callable[[], None]] = {}
        """The functions that are called if the process ends while these trio objects are open."""
        self.at_fork: weakref.WeakSet[StaysBehind] = weakref.WeakSet()
        """The objects that learn in a child process that this loop is the parent's."""
        self._lock = threading.Lock()
        self._waiting: dict[Callable[[Callable[[], Any]], object], None] = {}
        self._callers: dict[trio.lowlevel.Task, Callable[[Any], object]] = {}
        """The function that takes the answer of each call's task."""
        self._why_ended: str | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._clock: trio.abc.Clock | None = None
        self._nursery: trio.Nursery | None = None
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(started, clock), name="odradek-client", daemon=True
        )
        self._thread.start()
        started.wait()
        self.check_running()

    @property
    def is_running(self) -> bool:
        return self._why_ended is None and self._thread.is_alive()

    def _run(self, started: threading.Event, clock: trio.abc.Clock | None) -> None:
        why = "it has ended"
        try:
            trio.run(self._main, started, clock=clock)
        except BaseException as error:
            LOGGER.critical("the loop of all blocking clients has ended", exc_info=error)
            why = f"{type(error).__name__}: {error.__cause__ or error}"
        finally:
            self._end(why)
            started.set()

    async def _main(self, started: threading.Event) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._token = trio.lowlevel.current_trio_token()
            self._clock = trio.lowlevel.current_clock()
            started.set()
            await trio.sleep_forever()

    def _end(self, why: str) -> None:
        """Fail every waiting call, because its task will not continue."""
        with self._lock:
            self._why_ended = why
            waiting, self._waiting = self._waiting, {}
        for answer in waiting:
            answer(self.check_running)

    def check_running(self) -> None:
        """Raise `Closed` if the loop has ended, with the reason."""
        if self._why_ended is not None:
            raise Closed(f"the loop of the client has ended ({self._why_ended}): make a new one")

    @property
    def clock(self) -> trio.abc.Clock:
        """The loop's clock. Every thread may read it."""
        assert self._clock is not None
        return self._clock

    # The ways in

    def call(self, task: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run `await task(*args)` in the loop, and return its result.

        Raises every exception of the task, also SystemExit, and `Closed` if the loop ends before.
        """
        self.check_caller()
        answers: SimpleQueue[Callable[[], T] | _Errand] = SimpleQueue()
        scope = trio.CancelScope()
        try:
            self.begin(scope, answers.put, task, *args)
            while isinstance(result := answers.get(), _Errand):
                result.run()
        except BaseException:
            with contextlib.suppress(Empty, Closed):  # late: the task goes on ending by itself
                self.run_soon(scope.cancel)
                while isinstance(answers.get(timeout=INTERRUPTED_GRACE_S), _Errand):
                    pass  # its task is cancelled
            raise
        return result()

    def wait(
        self,
        ask: Callable[[Callable[[], object]], object],
        give_up: Callable[[Callable[[], object]], bool],
        timeout_s: float,
    ) -> bool:
        """Run `ask(wake)` in the loop, and return True when `wake` is called, from any thread.

        It starts no task, as `call` does. After `timeout_s`, return what `give_up(wake)` returns in
        the loop. Raises `Closed` if the loop ends before.
        """
        self.check_caller()
        woken: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        wake = partial(woken.put, None)
        self.expect(woken.put)
        try:
            self.run_soon(ask, wake)
            outcome = woken.get(timeout=timeout_s)
        except Empty:
            return self.call_nowait(give_up, wake)
        except BaseException:
            with contextlib.suppress(Closed):
                self.run_soon(give_up, wake)
            raise
        finally:
            self.forget(woken.put)
        if outcome is not None:
            outcome()  # it raises `Closed`
        return True

    def begin(
        self,
        scope: trio.CancelScope,
        answer: Callable[[Callable[[], T]], object],
        task: Callable[[*Args], Awaitable[T]],
        *args: *Args,
    ) -> None:
        """Start `await task(*args)` in the loop, inside `scope`. Every thread may call it.

        `answer` is called once, in the loop's thread, with a function that returns the result or
        raises what `call` raises. Cancel the scope in the loop's thread. Raises `Closed` if the
        loop has ended.
        """

        async def run() -> None:
            failure: BaseException = Closed("the call was interrupted")
            this_task = trio.lowlevel.current_task()
            self._callers[this_task] = answer
            try:
                with scope:
                    value = await task(*args)
                    self.forget(answer)
                    answer(lambda: value)
                    return
            except trio.Cancelled:  # the loop is ending: fail the waiting call
                raise
            except BaseException as error:
                failure = error
            finally:
                del self._callers[this_task]
            self.forget(answer)
            answer(lambda: _raise(failure))

        self.expect(answer)
        try:
            self.run_soon(self._start, run)
        except BaseException:
            self.forget(answer)
            raise

    def expect(self, answer: Callable[[Callable[[], Any]], object]) -> None:
        """Call `answer` if the loop ends, with a function that raises `Closed`. Raises `Closed`."""
        with self._lock:
            self.check_running()
            self._waiting[answer] = None

    def forget(self, answer: Callable[[Callable[[], Any]], object]) -> None:
        """Undo `expect`."""
        self._waiting.pop(answer, None)

    def check_caller(self) -> None:
        """Raise `RuntimeError` in the loop's own thread, which cannot wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call cannot be made from a delivery's callback")

    async def in_caller(self, function: Callable[[], T]) -> T:
        """Run a function in the program's thread that waits for this task's call.

        Callbacks of a program run there: they may use blocking clients, and Ctrl-C reaches them.
        """
        answer = self._callers[trio.lowlevel.current_task()]
        done = trio.Event()
        outcome: list[Callable[[], T]] = []

        def run() -> None:
            try:
                value = function()
                outcome.append(lambda: value)
            except BaseException as error:
                failure = error
                outcome.append(lambda: _raise(failure))
            self.run_soon(done.set)

        answer(_Errand(run))
        await done.wait()
        return outcome[0]()

    def call_nowait(self, function: Callable[[*Args], T], *args: *Args) -> T:
        """Run a plain function in the loop and wait for its result."""

        async def task() -> T:
            return function(*args)

        return self.call(task)

    def start_soon(self, task: Callable[[*Args], Awaitable[None]], *args: *Args) -> None:
        """Start a background task. Call it only in the loop's own thread."""

        async def run() -> None:
            try:
                await task(*args)
            except trio.Cancelled:
                raise
            except BaseException:
                LOGGER.exception("a task of a blocking client failed; this is a bug")

        self._start(run)

    def run_soon(self, function: Callable[[*Args], object], *args: *Args) -> None:
        """Run a plain function in the loop soon. Every thread may call it. Raises `Closed`."""

        def run() -> None:
            try:
                function(*args)
            except BaseException:
                LOGGER.exception("a call of a blocking client failed; this is a bug")

        assert self._token is not None
        try:
            self._token.run_sync_soon(run)
        except trio.RunFinishedError:
            self.check_running()
            raise Closed("the loop of the client is ending: make a new one") from None

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(task)


def _raise(error: BaseException) -> NoReturn:
    raise error


class _Holder:
    """The loop of this process."""

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self.process_id = -1
        self.lock = threading.Lock()
        self.is_registered = False

    def at_exit(self) -> None:
        if self.loop is not None and self.loop.process_id == os.getpid():
            for warn in list(self.loop.at_exit.values()):
                warn()

    def on_forked(self) -> None:
        if self.loop is not None:
            for each in list(self.loop.at_fork):
                each._on_forked()


# The only module state of the client: no object is above "one thread for each process".
_HOLDER: Final = _Holder()


def the_loop() -> Loop:
    """Return this process's loop. Start it at the first call, and again after it has ended."""
    process_id = os.getpid()
    if _HOLDER.process_id != process_id:
        # After a fork: a thread of the parent process may have held the lock.
        _HOLDER.lock = threading.Lock()
    with _HOLDER.lock:
        loop = _HOLDER.loop
        if loop is None or loop.process_id != process_id or not loop.is_running:
            loop = _HOLDER.loop = Loop()
            _HOLDER.process_id = process_id
        if not _HOLDER.is_registered:
            _HOLDER.is_registered = True
            atexit.register(_HOLDER.at_exit)
            os.register_at_fork(after_in_child=_HOLDER.on_forked)
        return loop
