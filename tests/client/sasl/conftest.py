import pytest
import trio

from tests.client.sasl.sasl_broker import SaslBroker


@pytest.fixture
def sasl_broker(nursery: trio.Nursery) -> SaslBroker:
    return SaslBroker(nursery)
