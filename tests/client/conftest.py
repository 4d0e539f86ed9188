"""A broker in memory for the client's scenarios."""

from collections.abc import Callable

import pytest
import trio

from odradek.client import Producer
from tests.client.fake_broker import ADDRESS, FakeBroker

MakeProducer = Callable[..., Producer]


@pytest.fixture
def fake_broker(nursery: trio.Nursery) -> FakeBroker:
    return FakeBroker(nursery)


@pytest.fixture
def tv1_broker(nursery: trio.Nursery) -> FakeBroker:
    """One that has not decided for the second generation of transactions."""
    return FakeBroker(nursery, transaction_version=1)


@pytest.fixture
def producer_of() -> MakeProducer:
    def make(broker: FakeBroker, **options: object) -> Producer:
        return Producer(ADDRESS, connect=broker.connect, **options)  # type: ignore[arg-type]

    return make
