"""A topic for the tests of one API, on a real Kafka too."""

from functools import partial

from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import settled, unique
from tests.broker.asks import create_topic, fetch
from tests.broker.raw import RawClient

E = ErrorCode
TOPIC_OPERATIONS = 3576
"""All operations on a topic, as bits."""


def topic_of(client: RawClient, partitions: int = 1, name: str | None = None) -> str:
    """Make a topic and wait until it is led."""
    name = name or unique("admin")
    assert create_topic(client, name, partitions).error_code == E.NONE
    for number in range(partitions):
        settled(partial(fetch, client, name, 0, partition=number))
    return name
