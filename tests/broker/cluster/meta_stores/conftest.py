"""The metadata stores that the conformance suite runs on."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from odradek.broker.cluster.etcd_answers import read_any
from odradek.broker.cluster.store_embedded import EmbeddedStore
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import MetaStore
from tests.fakes.disk import FakeDisk
from tests.fakes.jumping_clock import let_time_jump
from tests.fakes.meta_store import FakeMetaStore
from tests.peers.etcd_server import RealEtcd

PREFIXES = (f"/test{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnderTest:
    store: MetaStore
    compact: Callable[[], Awaitable[None]]
    """Make the store forget the changes so far."""
    shortest_ttl_s: int = 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without_etcd = [item for item in items if item.get_closest_marker("peers") is None]
    let_time_jump(without_etcd, Path(__file__).parent)


@pytest.fixture
async def embedded() -> AsyncIterator[StoreUnderTest]:
    store = await EmbeddedStore.open(FakeDisk(), "/data")

    async def compact() -> None:
        store._keys.compact()

    yield StoreUnderTest(store=store, compact=compact)
    store.close()


@pytest.fixture
async def simulated() -> StoreUnderTest:
    store = FakeMetaStore(max_operations=128)

    async def compact() -> None:
        store.compact()

    return StoreUnderTest(store=store, compact=compact)


@pytest.fixture
async def etcd(real_etcd: RealEtcd) -> AsyncIterator[StoreUnderTest]:
    config = BrokerConfig(
        etcd_endpoints=",".join(real_etcd.endpoints), etcd_key_prefix=next(PREFIXES)
    )
    async with EtcdStore.open(config, rng=Random(1)) as store:

        async def compact() -> None:
            _, revision = await store.range("/")
            await store._gateway.call("/v3/kv/compaction", {"revision": str(revision)}, read_any)

        yield StoreUnderTest(store=store, compact=compact, shortest_ttl_s=2)


@pytest.fixture(params=["embedded", "simulated", pytest.param("etcd", marks=pytest.mark.peers)])
def under_test(request: pytest.FixtureRequest) -> StoreUnderTest:
    found: StoreUnderTest = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(under_test: StoreUnderTest) -> MetaStore:
    return under_test.store
