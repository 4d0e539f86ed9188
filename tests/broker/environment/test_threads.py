"""Threads that wait for jobs: their number, their end, and what becomes of a job."""

import errno
import threading
import weakref
from functools import partial

import pytest
import trio
import trio.testing

from odradek.broker.environment import threads as threads_module
from odradek.broker.environment.threads import Threads
from tests.fakes.threads import cannot_start

PATIENCE_SECONDS = 60
THREADS_MAX = 8


async def test_a_system_without_threads_is_an_error_and_counts_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight failures used up all threads, and every later job waited for ever."""
    threads = Threads("test", THREADS_MAX)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        for _ in range(2 * THREADS_MAX):
            with pytest.raises(OSError, match="can't start new thread"):
                await threads.run(lambda: 1)
    with trio.fail_after(PATIENCE_SECONDS):
        assert await threads.run(lambda: 1) == 1


async def test_each_thread_is_prepared_once_before_its_first_job() -> None:
    prepared: list[int] = []
    threads = Threads("test", 1, lambda: prepared.append(threading.get_ident()))
    for _ in range(3):
        assert await threads.run(threading.get_ident) == prepared[0]
    assert len(prepared) == 1


async def test_jobs_run_beside_each_other_in_a_bounded_number_of_threads() -> None:
    threads = Threads("test", THREADS_MAX)
    together = threading.Barrier(4)
    seen: set[int] = set()

    def job() -> int:
        together.wait(timeout=PATIENCE_SECONDS)
        seen.add(threading.get_ident())
        return 7

    async def run() -> None:
        assert await threads.run(job) == 7

    for _ in range(10):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(run)
    assert 4 <= len(seen) <= 8


async def test_more_jobs_than_threads_wait_for_their_turn() -> None:
    threads = Threads("test", THREADS_MAX)
    seen: set[int] = set()
    done: list[int] = []

    async def run(number: int) -> None:
        await threads.run(lambda: seen.add(threading.get_ident()))
        done.append(number)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for number in range(20 * THREADS_MAX):
                nursery.start_soon(run, number)
    assert sorted(done) == list(range(20 * THREADS_MAX))
    assert len(seen) <= THREADS_MAX


async def test_no_job_is_lost_when_its_thread_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads_module, "THREAD_IDLE_SECONDS", 0.0)
    threads = Threads("test", THREADS_MAX)
    with trio.fail_after(PATIENCE_SECONDS):
        for number in range(500):
            assert await threads.run(partial(int, number)) == number


async def test_a_job_waits_for_a_busy_thread_if_no_other_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads("test", THREADS_MAX)
    may_go_on = threading.Event()
    done: list[str] = []

    def first() -> None:
        may_go_on.wait(PATIENCE_SECONDS)
        done.append("first")

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, first)
            await trio.testing.wait_all_tasks_blocked()
            monkeypatch.setattr(threading.Thread, "start", cannot_start)
            nursery.start_soon(threads.run, lambda: done.append("second"))
            await trio.testing.wait_all_tasks_blocked()
            may_go_on.set()
    assert done == ["first", "second"]


async def test_an_idle_thread_does_not_keep_what_its_last_job_read() -> None:
    threads = Threads("test", THREADS_MAX)
    read = await threads.run(lambda: Buffer(b"large"))
    kept = weakref.ref(read)
    del read
    with trio.fail_after(PATIENCE_SECONDS):
        while kept() is not None:  # noqa: ASYNC110 - nothing says when the thread has become idle
            await trio.sleep(0.01)


class Buffer(bytearray):
    """A buffer that weak references may point to."""


async def test_an_error_in_a_thread_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "broken")

    threads = Threads("test", THREADS_MAX)
    with pytest.raises(OSError, match="broken"):
        await threads.run(fail)
    assert await threads.run(lambda: 1) == 1


async def test_a_cancelled_caller_hears_what_became_of_the_job() -> None:
    """The caller must know what reached the disk before it decides anything else."""
    threads = Threads("test", THREADS_MAX)
    may_go_on = threading.Event()
    became: list[str] = []

    async def run(scope: trio.CancelScope) -> None:
        with scope:
            await threads.run(lambda: may_go_on.wait(PATIENCE_SECONDS))
            became.append("known")
            await trio.lowlevel.checkpoint()
            became.append("not reached")

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, scope)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        may_go_on.set()
    assert became == ["known"]
    with trio.CancelScope() as cancelled:
        cancelled.cancel()
        await threads.run(lambda: became.append("never begun"))
    assert became == ["known"]
