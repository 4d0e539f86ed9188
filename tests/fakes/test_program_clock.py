"""The clock that jumps while programs wait."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
import trio

from odradek.client.blocking.loop import Loop
from tests.fakes.program_clock import ProgramClock, WatchedEventLoop, loop_on

HOUR_S = 3600.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    with loop_on(ProgramClock()) as loop:
        yield loop


def test_an_hour_is_over_at_once_while_the_program_waits(loop: Loop) -> None:
    began = time.monotonic()
    loop.call(trio.sleep, HOUR_S)
    assert loop.clock.current_time() == HOUR_S
    assert time.monotonic() - began < HOUR_S


def test_no_time_passes_while_the_program_is_at_work(loop: Loop) -> None:
    loop.call_nowait(loop.start_soon, trio.sleep, HOUR_S)
    before = loop.clock.current_time()
    time.sleep(0.05)  # the loop is idle all the time
    assert loop.clock.current_time() == before
    loop.call(trio.sleep, 2 * HOUR_S)
    assert loop.clock.current_time() == before + 2 * HOUR_S


def test_what_a_program_has_asked_for_comes_before_the_next_jump(loop: Loop) -> None:
    """As a record that is queued, and whose time counts from then."""
    late: list[float] = []

    def note(asked_at: float) -> None:
        late.append(loop.clock.current_time() - asked_at)

    for _ in range(500):
        loop.run_soon(note, loop.clock.current_time())
        loop.call(trio.sleep, HOUR_S)
    assert late == [0.0] * 500


def test_the_loop_ends_with_the_block() -> None:
    with loop_on(ProgramClock()) as loop:
        assert loop.is_running
    loop._thread.join()
    assert not loop.is_running


def test_an_event_loop_waits_while_none_of_its_tasks_can_go_on() -> None:
    event_loop = WatchedEventLoop()
    seen: list[bool] = []
    go_on = asyncio.Event()

    async def program() -> None:
        seen.append(event_loop.is_waiting())
        await go_on.wait()
        seen.append(event_loop.is_waiting())

    def watch() -> None:
        while not event_loop.is_waiting():
            time.sleep(0.001)
        event_loop.call_soon_threadsafe(go_on.set)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with asyncio.Runner(loop_factory=lambda: event_loop) as runner:
        runner.run(program())
    watcher.join()
    assert seen == [False, False]


def test_an_event_loop_does_not_wait_when_another_thread_has_asked_for_something() -> None:
    event_loop = WatchedEventLoop()
    event_loop._watched.is_waiting = True  # as it is until it has woken
    assert event_loop.is_waiting()
    event_loop.call_soon_threadsafe(event_loop.stop)
    assert not event_loop.is_waiting()
    event_loop.run_forever()
    event_loop.close()
