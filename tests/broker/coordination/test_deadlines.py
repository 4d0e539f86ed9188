"""Deadlines: the order in which they come, and the cost of moving them."""

from math import inf

import trio

from odradek.broker.coordination.deadlines import Deadlines


class Thing:
    def __init__(self, at: float) -> None:
        self.at = at


def deadlines(*things: Thing) -> Deadlines[Thing]:
    found: Deadlines[Thing] = Deadlines(lambda thing: thing.at)
    for thing in things:
        found.watch(thing)
    return found


async def test_what_is_due_together_comes_together() -> None:
    now = trio.current_time()
    first, second, third = Thing(now + 1), Thing(now + 1), Thing(now + 2)
    watched = deadlines(third, first, second)
    assert await watched.wait() == [first, second]
    assert trio.current_time() == now + 1
    assert await watched.wait() == [third]
    assert len(watched) == 0


async def test_an_earlier_deadline_wakes_the_waiter(nursery: trio.Nursery) -> None:
    now = trio.current_time()
    late, early = Thing(now + 100), Thing(now + 5)
    watched = deadlines(late)
    seen: list[tuple[list[Thing], float]] = []

    async def wait() -> None:
        seen.append((await watched.wait(), trio.current_time() - now))

    nursery.start_soon(wait)
    await trio.sleep(1)
    watched.watch(early)
    await trio.sleep(10)
    assert seen == [([early], 5)]


async def test_a_deadline_that_moved_later_or_away_is_not_due() -> None:
    now = trio.current_time()
    moved, gone, last = Thing(now + 1), Thing(now + 1), Thing(now + 9)
    watched = deadlines(moved, gone, last)
    moved.at, gone.at = now + 5, inf
    assert await watched.wait() == [moved]
    assert trio.current_time() == now + 5
    assert await watched.wait() == [last]


async def test_a_deadline_that_moved_earlier_is_due_once() -> None:
    now = trio.current_time()
    thing, last = Thing(now + 5), Thing(now + 9)
    watched = deadlines(thing, last)
    thing.at = now + 2
    watched.watch(thing)
    assert await watched.wait() == [thing]
    assert trio.current_time() == now + 2
    thing.at = inf
    assert await watched.wait() == [last]


async def test_a_thousand_transactions_of_one_id_plan_one_look() -> None:
    thing = Thing(0)
    watched = deadlines()
    for number in range(1000):
        thing.at = 1000 + number
        watched.watch(thing)
    assert len(watched) == 1


async def test_deadlines_that_keep_coming_closer_leave_nothing_behind() -> None:
    """A client may give every transaction of an id a shorter time than the one before, or a long
    one and a short one in turn."""
    thing, other = Thing(0), Thing(9_999)
    watched = deadlines(other)
    for number in range(1000):
        thing.at = 5_000 - number
        watched.watch(thing)
    assert len(watched) < 100
    thing.at = trio.current_time() + 1
    watched.watch(thing)
    assert await watched.wait() == [thing]
    assert await watched.wait() == [other]


async def test_what_is_forgotten_is_never_due() -> None:
    now = trio.current_time()
    kept, forgotten = Thing(now + 2), Thing(now + 1)
    watched = deadlines(kept, forgotten)
    watched.forget(forgotten)
    assert await watched.wait() == [kept]
    assert len(watched) == 0


async def test_what_is_forgotten_can_be_watched_again() -> None:
    now = trio.current_time()
    thing, last = Thing(now + 1), Thing(now + 2)
    watched = deadlines(thing, last)
    watched.forget(thing)
    watched.watch(thing)
    assert await watched.wait() == [thing]
    assert await watched.wait() == [last]


async def test_what_is_forgotten_does_not_stay_in_memory() -> None:
    things = [Thing(1000 + number) for number in range(1000)]
    watched = deadlines(*things)
    for thing in things:
        watched.forget(thing)
    assert len(watched) < 100
