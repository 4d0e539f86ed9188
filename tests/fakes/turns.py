"""A meter of how long a task holds trio's loop, in function calls and not in seconds."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import trio


class LongestTurn(trio.abc.Instrument):
    """The most function calls (Python's and C's) of a task between two checkpoints."""

    def __init__(self, but_not: trio.lowlevel.Task, tasks: Collection[str]) -> None:
        self.calls = 0
        self.task_name = ""
        self._but_not = but_not
        self._tasks = tasks
        self._so_far = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._so_far = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        is_watched = not self._tasks or task.name in self._tasks
        if self._so_far > self.calls and task is not self._but_not and is_watched:
            self.calls, self.task_name = self._so_far, task.name

    def called(self, _frame: Any, event: str, _arg: Any) -> None:
        if event in ("call", "c_call"):
            self._so_far += 1

    def __repr__(self) -> str:
        return f"<{self.calls} calls in one turn of {self.task_name}>"


@contextmanager
def longest_turn(*tasks: str) -> Iterator[LongestTurn]:
    """Measure all tasks but the current one, or those with these names. Threads do not count."""
    longest = LongestTurn(trio.lowlevel.current_task(), tasks)
    before = sys.getprofile()
    trio.lowlevel.add_instrument(longest)
    sys.setprofile(longest.called)
    try:
        yield longest
    finally:
        sys.setprofile(before)
        trio.lowlevel.remove_instrument(longest)
