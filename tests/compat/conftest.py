"""What the tests of foreign clients share: names that nobody else uses, and topics that exist.

The brokers live for the whole run (see `tests/conftest.py`), so that the suite is quick; every test
brings topics, groups and transactional ids of its own.
"""

import gc
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_SECONDS = 60.0  # what a test waits for something that must happen; never for luck
TRANSACTION_TIMEOUTS_MS = (1_000, 20_000)
"""Of a transaction that is to time out: a short one; a long one where the machine stood still and
not even the first record was in time."""


class CreateTopic(Protocol):
    def __call__(self, *, partitions: int = 1, **config: str) -> str:
        """Create a topic of a new name (`a_b="1"` configures `a.b`) and return its name."""


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that starts as given and that no other test has."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def dropped() -> Iterator[None]:
    """Drop what a client leaves open when it is refused, once no frame of the test holds it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """The administrator that makes the tests' topics, whatever client is being tested."""
    return AdminClient({"bootstrap.servers": bootstrap})


def wait_until_known(admin: AdminClient, topic: str, partitions: int) -> None:
    """A real Kafka says that they are made before it knows them; 0: that the topic is gone."""
    give_up = time.monotonic() + DEADLINE_SECONDS
    while True:
        known = admin.list_topics(timeout=DEADLINE_SECONDS).topics.get(topic)
        found = [] if known is None else [p for p in known.partitions.values() if p.leader != -1]
        if len(found) == partitions:
            return
        assert time.monotonic() < give_up, f"{topic} has {len(found)} partitions, not {partitions}"
        time.sleep(0.01)  # between two looks, not for luck


@pytest.fixture
def create_topic(admin: AdminClient, unique: Callable[[str], str]) -> CreateTopic:
    def create(*, partitions: int = 1, **config: str) -> str:
        topic = unique("topic")
        asked = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=1,
            config={name.replace("_", "."): value for name, value in config.items()},
        )
        admin.create_topics([asked])[topic].result(timeout=DEADLINE_SECONDS)
        wait_until_known(admin, topic, partitions)
        return topic

    return create
