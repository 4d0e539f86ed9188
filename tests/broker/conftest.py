"""One broker process for the tests of a module, and a connection to it for each test."""

from collections.abc import Iterator

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from tests.broker.raw import RawClient


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker for a whole module: use topics of your own."""
    with run_broker(data_dir=tmp_path_factory.mktemp("shared")) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def client(shared_broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(shared_broker) as client:
        yield client
