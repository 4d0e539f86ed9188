"""The line in which tasks wait for a producer, or for its next transaction."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from odradek.client.producing.line import Line


async def test_tasks_that_have_given_up_are_forgotten_although_nothing_comes_back(
    autojump_clock: MockClock,
) -> None:
    """While all transactions hung, each call that raised `Busy` was kept in memory."""
    line = Line[str]()
    for _ in range(3):
        assert await line.take(10) is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.take, 1_000)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not line._waiting


async def test_the_next_task_gets_what_came_for_one_that_was_cancelled_at_that_moment() -> None:
    line = Line[str]()
    found: list[str | None] = []

    async def take() -> None:
        found.append(await line.take(1_000))

    async with trio.open_nursery() as nursery, trio.open_nursery() as cancelled:
        cancelled.start_soon(take)
        await wait_all_tasks_blocked()
        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        cancelled.cancel_scope.cancel()
        line.give("a turn")
    assert found == ["a turn"]
    assert not line._waiting
    assert line.take_nowait() is None
