"""A clock for the loop of blocking and asyncio clients: its time jumps while the program waits.

trio's mock clock jumps whenever the loop is idle. The loop is idle, too, while a program's thread
is at work or was preempted; then minutes pass between two of its statements, for example between
queueing a record and waking the loop, and the record counts as too old.
"""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import trio

from odradek.client.blocking.loop import Loop

LOOK_S: Final = 0.001
"""The pause between two looks whether the program waits now."""


class ProgramClock(trio.abc.Clock, trio.abc.Instrument):
    """A clock that jumps to the next deadline if nothing else happens and the program waits.

    It must also be an instrument of its loop, from which it learns that something has happened.
    """

    def __init__(self) -> None:
        self.does_program_wait: Callable[[], bool] = bool
        self._now = 0.0
        self._is_quiet = False
        """No task has become runnable since the loop last asked how long to sleep."""

    def start_clock(self) -> None:
        """Do nothing: the time stands still until it jumps."""

    def current_time(self) -> float:
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how long the loop waits for others. It asks when no task is runnable."""
        if deadline <= self._now:
            return 0
        if deadline == float("inf") or not self.does_program_wait():
            self._is_quiet = False
            return LOOK_S
        if self._is_quiet:
            self._now = deadline
        self._is_quiet = not self._is_quiet
        return 0  # what other threads have asked for comes first

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._is_quiet = False


class _WatchedSelector(selectors.DefaultSelector):
    """A selector that tells whether its event loop waits in it."""

    is_waiting = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.is_waiting = timeout is None or timeout > 0
        try:
            return super().select(timeout)
        finally:
            self.is_waiting = False


class WatchedEventLoop(asyncio.SelectorEventLoop):
    """An event loop of asyncio that tells other threads whether its program waits."""

    _ready: Any
    """The callbacks that will run in the next turn. Other threads fill it before they wake it."""

    def __init__(self) -> None:
        self._watched = _WatchedSelector()
        super().__init__(self._watched)

    def is_waiting(self) -> bool:
        return self._watched.is_waiting and not self._ready


@contextmanager
def loop_on(
    clock: ProgramClock, does_program_wait: Callable[[], bool] | None = None
) -> Iterator[Loop]:
    """Yield a loop on this clock. Fails if something has ended it.

    Without `does_program_wait` the program waits while a call of it is under way.
    """
    loop = Loop(clock)
    assert loop._nursery is not None
    clock.does_program_wait = does_program_wait or (lambda: bool(loop._waiting))
    loop.run_soon(trio.lowlevel.add_instrument, clock)
    yield loop
    assert loop.is_running
    loop.run_soon(loop._nursery.cancel_scope.cancel)
