"""Threads for blocking calls of the loop, which wait for their next job.

A call is one hop to a thread and back: a hop takes 0.1 ms with trio's threads and 0.06 ms with a
thread that already waits for jobs.
"""

import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import outcome
import trio

T = TypeVar("T")

THREAD_IDLE_SECONDS: Final = 10.0

_Done = Callable[[outcome.Outcome[Any]], None]
_Job = tuple[Callable[[], object], _Done, trio.lowlevel.TrioToken]


def _as_it_is() -> None:
    """Leave a new thread as it is."""


class _Worker:
    """A thread of `Threads`. While it is idle its lock is held, and it has no job."""

    __slots__ = ("has_job", "job")

    def __init__(self, job: _Job) -> None:
        self.job: _Job | None = job
        self.has_job = threading.Lock()
        self.has_job.acquire()

    def do_job(self) -> None:
        """Run the job and forget it: it may have a large buffer."""
        assert self.job is not None
        (function, done, token), self.job = self.job, None
        result = outcome.capture(function)
        with contextlib.suppress(trio.RunFinishedError):  # the loop has ended
            token.run_sync_soon(done, result)


class Threads:
    """A bounded number of threads for blocking calls. An idle thread ends by itself.

    A job goes to the thread that became idle last: its caches are warm, and the others may end. It
    wakes only that one. (Threads that wait for the same `queue.SimpleQueue` are all woken.)
    """

    def __init__(
        self, name: str, threads_max: int, prepare: Callable[[], None] = _as_it_is
    ) -> None:
        """`prepare` is the first call of each thread."""
        self._name = name
        self._threads_max = threads_max
        self._prepare = prepare
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._waiting: deque[_Job] = deque()
        self._count = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread, and wait for its end even if the caller is cancelled.

        The caller must know what the call has done before it decides anything else. A cancellation
        is therefore delivered after the call. Raises OSError as `start`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.start(function, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))
        result: T = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return result

    def start(self, function: Callable[[], object], done: _Done) -> None:
        """Call `function` in a thread, and then `done` with its outcome in the loop.

        Raises OSError EAGAIN if there is no thread, and the system lets none start.
        """
        job = function, done, trio.lowlevel.current_trio_token()
        with self._lock:
            is_one_more = not self._idle and self._count < self._threads_max
            self._count += is_one_more
            if not is_one_more:
                self._give(job)
        if is_one_more:
            self._start_thread(job)

    def _start_thread(self, job: _Job) -> None:
        worker = _Worker(job)
        try:
            threading.Thread(
                target=self._work, args=(worker,), name=self._name, daemon=True
            ).start()
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
                if not self._count:
                    raise OSError(errno.EAGAIN, str(error)) from error
                self._give(job)

    def _give(self, job: _Job) -> None:
        """Pass a job to an idle thread, or else to the next that becomes idle. Hold the lock."""
        if not self._idle:
            self._waiting.append(job)
            return
        worker = self._idle.pop()
        worker.job = job
        worker.has_job.release()

    def _work(self, worker: _Worker) -> None:
        self._prepare()
        worker.do_job()
        while self._has_next(worker):
            worker.do_job()

    def _has_next(self, worker: _Worker) -> bool:
        """Wait for the next job of a thread. Return False if there was none for long."""
        with self._lock:
            if self._waiting:
                worker.job = self._waiting.popleft()
                return True
            self._idle.append(worker)
        if worker.has_job.acquire(timeout=THREAD_IDLE_SECONDS):
            return True
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                self._count -= 1
                return False
        # `start` took the thread for a job just after the time-out.
        worker.has_job.acquire()
        return True
