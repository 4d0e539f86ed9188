"""Every test here runs on a clock that jumps when no task is busy: nothing sleeps."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.broker.txn.world import World
from tests.fakes.jumping_clock import let_time_jump


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_time_jump(items, Path(__file__).parent)


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    """A coordinator that has loaded an empty `__transaction_state-0`."""
    world = World(nursery)
    await world.start()
    yield world
    world.stop()


@pytest.fixture
async def fresh(nursery: trio.Nursery) -> World:
    """Nothing started yet; the leaders judge markers as Kafka's do."""
    return World(nursery)
