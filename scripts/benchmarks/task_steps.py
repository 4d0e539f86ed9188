"""Our broker, with a watch on the tasks of its connections.

    python -m scripts.benchmarks.task_steps serve ...

At its end it writes for each connection that has ended, in that order, the longest step of its
task, in nanoseconds, into the file that the environment variable `ODRADEK_BENCH_STEPS` names. A
step begins when trio goes on with the task, and ends when the task waits again: for so long no
other client is served.
"""

import os
import time
from pathlib import Path
from typing import Any, Final

import trio

from odradek.broker.cli import main
from odradek.broker.environment import system

OUTPUT: Final = "ODRADEK_BENCH_STEPS"


class Steps(trio.abc.Instrument):
    """Notes the longest step of each task that runs one coroutine function."""

    def __init__(self, code: object) -> None:
        self.ended_ns: list[int] = []
        self._code = code
        self._longest_ns: dict[trio.lowlevel.Task, int] = {}
        self._began_ns = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if getattr(task.coro, "cr_code", None) is self._code:
            self._longest_ns[task] = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_ns = time.perf_counter_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        longest_ns = self._longest_ns.get(task)
        if longest_ns is not None:
            taken_ns = time.perf_counter_ns() - self._began_ns
            self._longest_ns[task] = max(longest_ns, taken_ns)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        longest_ns = self._longest_ns.pop(task, None)
        if longest_ns is not None:
            self.ended_ns.append(longest_ns)


def longest_ms(output: Path) -> list[float]:
    """Return the milliseconds of the longest step of each connection."""
    return [int(line) / 1e6 for line in output.read_text().split()]


def _serve_watched() -> None:
    steps = Steps(system._serve.__code__)
    run: Any = trio.run

    def watched(*arguments: Any, **options: Any) -> Any:
        return run(*arguments, **options, instruments=[steps])

    trio.run = watched  # type: ignore[assignment]
    try:
        main()
    finally:
        Path(os.environ[OUTPUT]).write_text("".join(f"{each}\n" for each in steps.ended_ns))


if __name__ == "__main__":
    _serve_watched()
