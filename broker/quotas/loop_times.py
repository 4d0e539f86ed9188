"""The time that connections take of the loop.

Trio tells an instrument when a step of a task begins and ends. It is installed only while there is
a quota of request time, as it costs something for every step. A step counts for the connection
whose task it is, or that the task was started by. So what waits counts nothing, and what runs in
threads (large messages, fsyncs) does not count either.
"""

import trio
import trio.abc
import trio.lowlevel

PARENTS_MAX = 4
"""The number of tasks, from a task upwards, among which that of a connection is looked for."""


class LoopTime:
    """The time that one connection has taken since it was last counted."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def take(self) -> float:
        """Return the time since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class LoopTimes(trio.abc.Instrument):
    """A stopwatch for the steps of the tasks that serve connections."""

    def __init__(self) -> None:
        self._of: dict[trio.lowlevel.Task, LoopTime] = {}
        self._is_on = False
        self._began = 0.0

    def switch(self, *, is_on: bool) -> None:
        """Start the stopwatch, or stop it and drop what is not counted yet."""
        if is_on == self._is_on:
            return
        self._is_on = is_on
        if is_on:
            self._began = trio.current_time()
            trio.lowlevel.add_instrument(self)
        else:
            trio.lowlevel.remove_instrument(self)
            for time in self._of.values():
                time.seconds = 0.0

    def join(self) -> LoopTime:
        """Return the time of the connection whose task is running, until `leave`."""
        return self._of.setdefault(trio.lowlevel.current_task(), LoopTime())

    def leave(self) -> float:
        """Forget the connection whose task is running. Return its time that is not counted yet."""
        time = self._of.pop(trio.lowlevel.current_task(), None)
        if time is None or not self._is_on:
            return 0.0
        return time.take() + trio.current_time() - self._began  # with the step that is running

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = trio.current_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        found: trio.lowlevel.Task | None = task
        for _ in range(PARENTS_MAX):
            if found is None:
                return
            time = self._of.get(found)
            if time is not None:
                time.seconds += trio.current_time() - self._began
                return
            nursery = found.parent_nursery
            found = None if nursery is None else nursery.parent_task
