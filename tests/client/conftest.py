"""A broker in memory for the client's scenarios, and the command line on a real one."""

from collections.abc import Callable

import pytest
import trio

from odradek.client import Producer
from tests.client.fake_broker import ADDRESS, FakeBroker
from tests.client.live import Run

MakeProducer = Callable[..., Producer]


@pytest.fixture
def fake_broker(nursery: trio.Nursery) -> FakeBroker:
    return FakeBroker(nursery)


@pytest.fixture
def tv1_broker(nursery: trio.Nursery) -> FakeBroker:
    """One that has not decided for the second generation of transactions."""
    return FakeBroker(nursery, transaction_version=1)


@pytest.fixture(params=[1, 2])
def broker(request: pytest.FixtureRequest, nursery: trio.Nursery) -> FakeBroker:
    """Both generations of the protocol."""
    return FakeBroker(nursery, transaction_version=request.param)


@pytest.fixture
def producer_of() -> MakeProducer:
    def make(broker: FakeBroker, **options: object) -> Producer:
        return Producer(ADDRESS, connect=broker.connect, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def run(bootstrap: str) -> Run:
    return Run(bootstrap)
