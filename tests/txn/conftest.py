"""Every test here runs on a clock that jumps: nothing sleeps."""

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from tests.txn.world import World


@pytest.fixture
async def world(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> AsyncIterator[World]:
    """A coordinator that has loaded an empty `__transaction_state-0`."""
    world = World(nursery)
    await world.start()
    yield world
    world.stop()
