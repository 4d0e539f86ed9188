"""Our members in one group with those of confluent-kafka and kafka-python: whoever leads it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from odradek.client.blocking import Consumer
from odradek.client.types import AssignorName
from tests.compat import confluent, kafka_python
from tests.compat.conftest import CreateTopic
from tests.stories.looking import eventually

STRATEGIES: list[AssignorName] = ["range", "roundrobin", "cooperative-sticky"]


def their_assignors(name: str) -> list[type]:
    known = (RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor)
    return [assignor for assignor in known if assignor.name == name]


class Polled:
    """A member of any client that a thread polls; `owned` are its partitions, as it sees them."""

    def __init__(self, poll: Callable[[], list[bytes]], owned: Callable[[], set[int]]) -> None:
        self.values: list[bytes] = []
        self._poll = poll
        self._owned = owned
        self._stop = threading.Event()
        self.owned: set[int] = set()

    def run(self) -> None:
        while not self._stop.is_set():
            self.values += self._poll()
            self.owned = self._owned()

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def polled_by(threads: ThreadPoolExecutor, member: Polled) -> Iterator[None]:
    """Poll a member in a thread while this block runs."""
    running = threads.submit(member.run)
    try:
        yield
    finally:
        member.stop()
        running.result()


@contextmanager
def ours(bootstrap: str, topic: str, group: str, strategy: AssignorName) -> Iterator[Polled]:
    with Consumer(
        bootstrap, group_id=group, partition_assignors=[strategy], heartbeat_interval_ms=300
    ) as member:
        member.subscribe(topic)
        yield Polled(
            lambda: [record.value or b"" for record in member.poll(50)],
            lambda: {partition for _, partition in member.assignment()},
        )


@contextmanager
def librdkafkas(bootstrap: str, topic: str, group: str, strategy: AssignorName) -> Iterator[Polled]:
    with confluent.consumer(bootstrap, group, partition_assignment_strategy=strategy) as member:
        member.subscribe([topic])
        yield Polled(
            lambda: [message.value() or b"" for message in member.consume(100, timeout=0.05)],
            lambda: {place.partition for place in member.assignment()},
        )


@contextmanager
def kafka_pythons(
    bootstrap: str, topic: str, group: str, strategy: AssignorName
) -> Iterator[Polled]:
    settings: dict[str, Any] = {"partition_assignment_strategy": their_assignors(strategy)}
    with kafka_python.consumer(bootstrap, group, **settings) as member:
        member.subscribe([topic])
        yield Polled(
            lambda: [record.value for record in kafka_python.polled(member, 1_000)],
            lambda: {place.partition for place in member.assignment()},
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("theirs", [librdkafkas, kafka_pythons], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("order", ["ours leads", "theirs leads"])
def test_members_of_two_clients_share_the_partitions(
    bootstrap: str,
    create_topic: CreateTopic,
    unique: Callable[[str], str],
    strategy: AssignorName,
    theirs: Any,
    order: str,
) -> None:
    topic, group = create_topic(partitions=4), unique("group")
    first_kind, second_kind = (ours, theirs) if order == "ours leads" else (theirs, ours)
    sent = [b"%d" % number for number in range(100)]
    with (
        ThreadPoolExecutor(2) as threads,
        first_kind(bootstrap, topic, group, strategy) as first,
        polled_by(threads, first),
    ):
        eventually(lambda: len(first.owned), 4)
        with (
            second_kind(bootstrap, topic, group, strategy) as second,
            polled_by(threads, second),
        ):
            eventually(lambda: (len(first.owned), len(second.owned)), (2, 2))
            assert first.owned | second.owned == {0, 1, 2, 3}
            confluent.deliver(confluent.producer(bootstrap), topic, sent)
            eventually(lambda: len(first.values) + len(second.values), 100)
            assert sorted(first.values + second.values) == sorted(sent)
        eventually(lambda: len(first.owned), 4)
