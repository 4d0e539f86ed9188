"""A thread that gives way: what it asks of Linux, and that it asks for itself alone."""

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable

import pytest
import trio

from odradek.broker.environment import giving_way
from odradek.broker.environment.giving_way import NICER, NICEST, SCHED_SETATTR, give_way
from odradek.broker.environment.handshake_threads import HandshakeThreads, OwnHandshakes
from odradek.broker.environment.threads import Threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such threads")

PATIENCE_SECONDS = 60
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
