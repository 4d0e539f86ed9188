"""For tests of what Kafka does and we do: a raw connection to either broker."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.broker.raw import RawClient


class HostAndPort(NamedTuple):
    host: str
    port: int


@pytest.fixture
def either(bootstrap: str) -> Iterator[RawClient]:
    """A connection to ours and, with --peers, to a real Kafka."""
    host, _, port = bootstrap.rpartition(":")
    with RawClient(HostAndPort(host, int(port)), client_id="worker-7") as client:
        yield client
