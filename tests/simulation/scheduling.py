"""Deterministic scheduling, and machines that stand still: every private name of trio is here.

Trio shuffles the tasks that are ready to run. With `deterministic` it sorts them first and shuffles
with a seed, so the same seed gives the same order in every process.

A stopped process (SIGSTOP) runs nothing, whatever happens to it meanwhile. `RunQueue` replaces
trio's queue of ready tasks. It holds back the tasks of a frozen machine until the machine thaws.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

import trio
from trio._core import _run

FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"


@dataclass(eq=False)
class Process:
    """The tasks of one machine. A task belongs to the process in whose context it was started."""

    name: str
    is_frozen: bool = False
    held: list[trio.lowlevel.Task] = field(default_factory=list)

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        """Let the tasks go on that have become ready in the meantime."""
        self.is_frozen = False
        held, self.held = self.held, []
        for task in held:
            _run.GLOBAL_RUN_CONTEXT.runner.runq.append(task)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""The process that the current task belongs to; None for clients and for the simulation itself."""


class RunQueue(deque[trio.lowlevel.Task]):
    """Trio's queue of tasks that are ready to run, without those of frozen processes."""

    def append(self, task: trio.lowlevel.Task) -> None:
        process = task.context.get(PROCESS)
        if process is not None and process.is_frozen:
            process.held.append(task)
        else:
            super().append(task)


def let_processes_freeze() -> None:
    """Replace the queue of this run of trio."""
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    runner.runq = RunQueue(runner.runq)


@contextlib.contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Schedule tasks in an order that depends on the seed only, in `trio.run` inside."""
    flag, state = getattr(_run, FLAG), _run._r.getstate()
    setattr(_run, FLAG, True)
    _run._r.seed(seed)
    try:
        yield
    finally:
        setattr(_run, FLAG, flag)
        _run._r.setstate(state)
