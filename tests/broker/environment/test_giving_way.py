"""A thread that gives way: what it asks of Linux, and that it asks for itself alone."""

import ctypes
import hashlib
import os
import platform
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from odradek.broker.environment import giving_way
from odradek.broker.environment.compiled import OFF
from odradek.broker.environment.giving_way import (
    NICER,
    NICEST,
    SCHED_SETATTR,
    call_yielding,
    give_way,
    yields,
)
from odradek.broker.environment.handshake_threads import HandshakeThreads, OwnHandshakes
from odradek.broker.environment.threads import Threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such threads")

MUST_NOT_SKIP = "ODRADEK_CI"
only_compiled = pytest.mark.skipif(
    not yields() and MUST_NOT_SKIP not in os.environ, reason="built without a C compiler"
)
TIMERS = Path("/proc/self/timers")
lists_timers = pytest.mark.skipif(not TIMERS.exists(), reason="this Linux lists no timers")
PATIENCE_SECONDS = 60
MUCH = 2
ROUNDS = 3
PEER = "192.0.2.9:1"


def nice() -> int:
    """Return the nice value of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def policy() -> int:
    """Return the policy by which the calling thread is scheduled."""
    return os.sched_getscheduler(threading.get_native_id())


async def in_a_new_thread(look: Callable[[], int]) -> int:
    return await Threads("test", 1, give_way).run(look)


async def test_a_thread_that_gives_way_is_nice_and_changes_no_other_one() -> None:
    before = nice()
    assert await in_a_new_thread(nice) == min(before + NICER, NICEST)
    assert nice() == before


@pytest.mark.skipif(platform.machine() not in SCHED_SETATTR, reason="no number of the call")
async def test_it_takes_the_processor_from_nobody_when_it_wakes() -> None:
    assert await in_a_new_thread(policy) == os.SCHED_BATCH
    assert policy() == os.SCHED_OTHER


async def test_without_the_system_call_it_is_nice_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_way, "SCHED_SETATTR", {})
    assert await in_a_new_thread(policy) == os.SCHED_OTHER
    assert await in_a_new_thread(nice) > nice()


@pytest.mark.parametrize("refused", ["getpriority", "setpriority"])
async def test_what_the_system_refuses_is_left_out(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, refused, refuse)
        patched.setattr(giving_way, "SCHED_SETATTR", {platform.machine(): 1 << 20})
        threads = Threads("test", 1, give_way)
        with trio.fail_after(PATIENCE_SECONDS):
            await threads.run(lambda: None)
    assert await threads.run(nice) == nice()


async def test_handshakes_of_strangers_give_way_and_our_own_do_not() -> None:
    found: list[int] = []

    def step() -> bool:
        found.append(nice())
        return True

    for is_first in (True, False):
        await HandshakeThreads().run(step, is_first=is_first, peer=PEER)
    await OwnHandshakes().run(step, is_first=True, peer=PEER)
    first, later, own = found
    assert first == later > own == nice()


def test_the_attributes_have_the_size_that_linux_has_known_first() -> None:
    assert ctypes.sizeof(giving_way._Attributes) == 48


def work() -> bytes:
    """Work for some ten milliseconds without the interpreter's lock, as a signature does."""
    return hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 60_000)


async def switches_beside_a_busy_thread(call: Callable[[], object]) -> int:
    """Return how often another thread got the processor in the middle of a call, at least.

    Other programs on the machine add to it.
    """
    processor = {min(os.sched_getaffinity(0))}
    is_over = threading.Event()

    def be_busy() -> None:
        os.sched_setaffinity(0, processor)
        while not is_over.is_set():
            work()

    def look() -> int:
        os.sched_setaffinity(0, processor)
        before = resource.getrusage(resource.RUSAGE_THREAD)
        call()
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - before.ru_nivcsw

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, be_busy)
        try:
            return min([await Threads("test", 1, give_way).run(look) for _ in range(ROUNDS)])
        finally:
            is_over.set()


@only_compiled
async def test_a_thread_that_yields_passes_the_processor_on_much_oftener_than_linux_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often = await switches_beside_a_busy_thread(lambda: call_yielding(work))
    monkeypatch.setenv(OFF, "1")
    seldom = await switches_beside_a_busy_thread(lambda: call_yielding(work))
    assert often > MUCH * seldom


@only_compiled
async def test_a_thread_does_not_yield_while_it_has_the_interpreters_lock() -> None:
    """Others would wait for it, and for the whole turn of who has the processor then."""

    def hold_the_lock() -> None:
        call_yielding(lambda: sum(range(500_000)))

    often = await switches_beside_a_busy_thread(lambda: call_yielding(work))
    seldom = await switches_beside_a_busy_thread(hold_the_lock)
    assert often > MUCH * seldom


def test_a_call_that_yields_returns_and_raises_what_the_function_does() -> None:
    assert call_yielding(work) == work()
    with pytest.raises(ZeroDivisionError):
        call_yielding(lambda: 1 // 0)


@only_compiled
@lists_timers
def test_a_call_that_has_ended_leaves_no_timer() -> None:
    assert call_yielding(TIMERS.read_text) != ""
    assert call_yielding(lambda: call_yielding(work) and TIMERS.read_text()) != ""
    with pytest.raises(ZeroDivisionError):
        call_yielding(lambda: 1 // 0)
    assert TIMERS.read_text() == ""


@only_compiled
@lists_timers
async def test_a_step_of_a_strangers_handshake_yields_and_one_of_ours_does_not() -> None:
    def has_timer() -> bool:
        return TIMERS.read_text() != ""

    for is_first in (True, False):
        assert await HandshakeThreads().run(has_timer, is_first=is_first, peer=PEER)
    assert not await OwnHandshakes().run(has_timer, is_first=True, peer=PEER)


@only_compiled
def test_a_signal_that_has_a_handler_is_left_alone() -> None:
    """In a process of its own: a process chooses its signal once."""
    program = (
        "import signal, time\n"
        "from odradek.broker.environment.giving_way import call_yielding\n"
        "heard = []\n"
        "signal.signal(signal.SIGRTMAX, lambda number, frame: heard.append(number))\n"
        "call_yielding(lambda: time.sleep(0.01))\n"
        "signal.raise_signal(signal.SIGRTMAX)\n"
        "assert heard == [signal.SIGRTMAX], heard\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)


@only_compiled
def test_a_signal_that_something_else_has_taken_since_is_not_sent() -> None:
    """Without a handler it would end the process."""
    program = (
        "import signal, time\n"
        "from odradek.broker.environment.giving_way import call_yielding\n"
        "call_yielding(lambda: None)\n"
        "for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):\n"
        "    signal.signal(number, signal.SIG_DFL)\n"
        "call_yielding(lambda: time.sleep(0.01))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)
