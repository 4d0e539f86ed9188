"""Timers that are started, moved and stopped."""

import trio

from odradek.broker.group.timers import Timer, call_when_due, new_timers


async def test_calls_come_in_the_order_of_their_deadlines(nursery: trio.Nursery) -> None:
    timers, called = new_timers(), list[tuple[str, float]]()

    def note(name: str) -> None:
        called.append((name, trio.current_time()))

    start = trio.current_time()
    Timer(timers).start(2000, lambda: note("b"))
    Timer(timers).start(1000, lambda: note("a"))
    nursery.start_soon(call_when_due, timers)
    await trio.sleep(0.5)
    Timer(timers).start(100, lambda: note("c"))
    await trio.sleep(5)
    assert [(name, round(at - start, 3)) for name, at in called] == [
        ("c", 0.6),
        ("a", 1.0),
        ("b", 2.0),
    ]


async def test_a_deadline_that_was_moved_is_met_once_at_its_last_time(
    nursery: trio.Nursery,
) -> None:
    timers, called = new_timers(), list[float]()
    nursery.start_soon(call_when_due, timers)
    start, session = trio.current_time(), Timer(timers)
    for _ in range(10):
        session.start(3000, lambda: called.append(trio.current_time() - start))
        await trio.sleep(1)
    session.start(500, lambda: called.append(trio.current_time() - start))
    await trio.sleep(20)
    assert [round(at, 3) for at in called] == [10.5]


async def test_what_was_cancelled_is_not_called(nursery: trio.Nursery) -> None:
    timers, called = new_timers(), list[str]()
    nursery.start_soon(call_when_due, timers)
    timer = Timer(timers)
    timer.start(1000, lambda: called.append("first"))
    timer.stop()
    await trio.sleep(2)
    timer.start(1000, lambda: called.append("second"))
    await trio.sleep(2)
    assert called == ["second"]


async def test_of_two_that_are_due_together_the_first_may_stop_or_put_off_the_other(
    nursery: trio.Nursery,
) -> None:
    timers, called = new_timers(), list[tuple[str, float]]()
    nursery.start_soon(call_when_due, timers)
    start = trio.current_time()
    first, stopped, put_off = Timer(timers), Timer(timers), Timer(timers)

    def note(name: str) -> None:
        called.append((name, round(trio.current_time() - start, 3)))

    def interfere() -> None:
        note("first")
        stopped.stop()
        put_off.start(500, lambda: note("put off"))

    first.start(1000, interfere)
    stopped.start(1000, lambda: note("stopped"))
    put_off.start(1000, lambda: note("at the old time"))
    await trio.sleep(5)
    assert called == [("first", 1.0), ("put off", 1.5)]


async def test_heartbeats_do_not_fill_the_heap() -> None:
    timers = new_timers()
    session = Timer(timers)
    for _ in range(1000):
        session.start(10_000, lambda: None)
        await trio.sleep(0.1)
    assert len(timers) == 1
