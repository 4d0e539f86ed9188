"""Turns: work whose length a client chose lets other tasks run; and how tests see that."""

import trio

from odradek.broker.environment.turns import STEPS_PER_TURN, Turns
from tests.fakes.turns import longest_turn


async def test_long_work_lets_others_run_once_in_a_turn() -> None:
    others_ran = 0

    async def other() -> None:
        nonlocal others_ran
        while True:
            others_ran += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        turns = Turns()
        for _ in range(10 * STEPS_PER_TURN):
            await turns.take()
        nursery.cancel_scope.cancel()
    assert 9 <= others_ran <= 11


async def test_a_large_step_ends_the_turn_at_once() -> None:
    others_ran = False

    async def other() -> None:
        nonlocal others_ran
        others_ran = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        turns = Turns()
        for _ in range(2):  # trio runs the tasks of one pass in any order
            await turns.take(STEPS_PER_TURN)
        assert others_ran


async def test_a_loop_without_a_checkpoint_is_seen() -> None:
    async def hold(count: int) -> None:
        turns = Turns()
        for _ in range(count):
            await turns.take(0)

    async def give_way(count: int) -> None:
        turns = Turns()
        for _ in range(count):
            await turns.take(1)

    for work, low, high in ((hold, 20_000, 21_000), (give_way, 400, 3_000)):
        with longest_turn() as longest:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work, 20_000)
        assert low <= longest.calls <= high, longest
