"""The metadata stores that the conformance suite runs on."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.env import MetaStore
from tests.fakes.disk import FakeDisk
from tests.fakes.jumping_clock import let_time_jump
from tests.fakes.meta_store import FakeMetaStore

IN_MEMORY = ("embedded", "simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnderTest:
    store: MetaStore
    compact: Callable[[], Awaitable[None]]
    """Make the store forget the changes so far."""
    shortest_ttl_s: int = 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_time_jump([item for item in items if "[etcd" not in item.name], Path(__file__).parent)


@pytest.fixture(params=[*IN_MEMORY])
async def under_test(request: pytest.FixtureRequest) -> AsyncIterator[StoreUnderTest]:
    if request.param == "embedded":
        store = await EmbeddedStore.open(FakeDisk(), "/data")

        async def compact() -> None:
            store._keys.compact()

        yield StoreUnderTest(store=store, compact=compact)
        store.close()
    else:
        fake = FakeMetaStore(max_operations=128)

        async def forget() -> None:
            fake.compact()

        yield StoreUnderTest(store=fake, compact=forget)


@pytest.fixture
def store(under_test: StoreUnderTest) -> MetaStore:
    return under_test.store
