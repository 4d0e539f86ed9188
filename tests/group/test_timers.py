"""Deadlines that move."""

import trio

from odradek.broker.group.timers import Timers


async def test_calls_come_in_the_order_of_their_deadlines(nursery: trio.Nursery) -> None:
    timers, called = Timers(), list[tuple[str, float]]()

    def note(name: str) -> None:
        called.append((name, trio.current_time()))

    start = trio.current_time()
    timers.schedule("b", 2000, lambda: note("b"))
    timers.schedule("a", 1000, lambda: note("a"))
    nursery.start_soon(timers.run)
    await trio.sleep(0.5)
    timers.schedule("c", 100, lambda: note("c"))
    await trio.sleep(5)
    assert [(name, round(at - start, 3)) for name, at in called] == [
        ("c", 0.6),
        ("a", 1.0),
        ("b", 2.0),
    ]


async def test_a_deadline_that_was_moved_is_met_once_at_its_last_time(
    nursery: trio.Nursery,
) -> None:
    timers, called = Timers(), list[float]()
    nursery.start_soon(timers.run)
    start = trio.current_time()
    for _ in range(10):
        timers.schedule("session", 3000, lambda: called.append(trio.current_time() - start))
        await trio.sleep(1)
    timers.schedule("session", 500, lambda: called.append(trio.current_time() - start))
    await trio.sleep(20)
    assert [round(at, 3) for at in called] == [10.5]


async def test_what_was_cancelled_is_not_called(nursery: trio.Nursery) -> None:
    timers, called = Timers(), list[str]()
    nursery.start_soon(timers.run)
    timers.schedule("x", 1000, lambda: called.append("first"))
    timers.cancel("x")
    await trio.sleep(2)
    timers.schedule("x", 1000, lambda: called.append("second"))
    await trio.sleep(2)
    assert called == ["second"]


async def test_heartbeats_do_not_fill_the_heap() -> None:
    timers = Timers()
    for _ in range(1000):
        timers.schedule("session", 10_000, lambda: None)
        await trio.sleep(0.1)
    assert len(timers._heap) == 1
