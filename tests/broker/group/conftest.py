"""Every async test here runs on a clock that jumps when no task is busy: nothing sleeps."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from tests.broker.group.wire import WireClient
from tests.broker.group.world import World
from tests.fakes.jumping_clock import let_time_jump


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_time_jump(items, Path(__file__).parent)


@pytest.fixture
async def world(nursery: trio.Nursery) -> AsyncIterator[World]:
    """A coordinator with an empty `__consumer_offsets-0`."""
    world = World(nursery)
    await world.start()
    yield world
    world.stop()


# Over a socket


@pytest.fixture
def client(bootstrap: str) -> Iterator[WireClient]:
    with WireClient(bootstrap) as client:
        yield client


@pytest.fixture
def group(client: WireClient) -> str:
    """A name for a group of the test's own, whose coordinator is ready."""
    name = f"group-{uuid.uuid4().hex[:12]}"
    client.coordinator_of(name)
    return name


@pytest.fixture
def topic(client: WireClient) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    client.create_topic(name)
    return name
