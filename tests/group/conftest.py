"""Every test here runs on a clock that jumps when nobody is busy: nothing sleeps."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.abc
import trio.testing

from tests.group.world import World


def run_on_a_jumping_clock(
    test: Callable[[], Awaitable[Any]],
    *,
    clock: trio.abc.Clock | None,
    instruments: Sequence[trio.abc.Instrument],
) -> Any:
    jumping = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(test, clock=clock or jumping, instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pytest-trio takes a clock only from the test's own arguments; this spares each test naming it.
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run_on_a_jumping_clock), append=False)


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    """A coordinator with an empty `__consumer_offsets-0`."""
    world = World(nursery)
    await world.start()
    yield world
    world.stop()
