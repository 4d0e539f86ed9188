"""Our members in one group with those of other clients, by both protocols.

In the classic protocol one of the members leads the group, and divides the partitions for all.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from odradek.client.blocking import Consumer
from odradek.client.config import ConsumerOptions
from odradek.client.types import AssignorName
from tests.compat import confluent, kafka_python
from tests.compat.agents import JAVA
from tests.compat.conftest import CreateTopic
from tests.peers.jars import kafka_jars
from tests.stories.looking import eventually

STRATEGIES: list[AssignorName] = ["range", "roundrobin", "cooperative-sticky"]
JAVA_STRATEGIES: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
NEW: Final = "new protocol"
"""In place of a strategy: the coordinator divides the partitions (KIP-848)."""
JAVA_PROGRAM: Final = Path(__file__).parent / "java" / "GroupMember.java"
JAVA_STOP_SECONDS: Final = 30.0

Strategy = AssignorName | Literal["new protocol"]


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


def _our_options(group: str, strategy: Strategy) -> ConsumerOptions:
    if strategy == NEW:
        return {"group_id": group}  # it is the default
    return {
        "group_id": group,
        "partition_assignors": [strategy],
        "heartbeat_interval_ms": 300,
    }


@contextmanager
def ours(bootstrap: str, topic: str, group: str, strategy: Strategy) -> Iterator[Polled]:
    with Consumer(bootstrap, **_our_options(group, strategy)) as member:
        member.subscribe(topic)
        yield Polled(
            lambda: [record.value or b"" for record in member.poll(50)],
            lambda: {partition for _, partition in member.assignment()},
        )


@contextmanager
def librdkafkas(bootstrap: str, topic: str, group: str, strategy: Strategy) -> Iterator[Polled]:
    chosen: dict[str, str] = {"partition_assignment_strategy": strategy}
    if strategy == NEW:
        chosen = {"group_protocol": "consumer"}
    with confluent.consumer(bootstrap, group, **chosen) as member:
        member.subscribe([topic])
        yield Polled(
            lambda: [message.value() or b"" for message in member.consume(100, timeout=0.05)],
            lambda: {place.partition for place in member.assignment()},
        )


@contextmanager
def kafka_pythons(bootstrap: str, topic: str, group: str, strategy: Strategy) -> Iterator[Polled]:
    settings: dict[str, Any] = {"partition_assignment_strategy": their_assignors(strategy)}
    with kafka_python.consumer(bootstrap, group, **settings) as member:
        member.subscribe([topic])
        yield Polled(
            lambda: [record.value for record in kafka_python.polled(member, 1_000)],
            lambda: {place.partition for place in member.assignment()},
        )


class JavaMember(Polled):
    """A Java process. What it prints is read line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        super().__init__(list, lambda: self.owned)
        self._process = process

    def run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, _, text = line.rstrip("\n").partition(" ")
            if what == "value":
                self.values.append(text.encode())
            elif what == "owned":
                self.owned = {int(number) for number in text.split(",") if number}

    def stop(self) -> None:
        self._process.communicate("stop\n", timeout=JAVA_STOP_SECONDS)


@contextmanager
def javas(bootstrap: str, topic: str, group: str, strategy: Strategy) -> Iterator[Polled]:
    settings = [f"group.id={group}"]
    if strategy == NEW:
        settings += ["group.protocol=consumer"]
    else:
        settings += [f"partition.assignment.strategy={JAVA_STRATEGIES[strategy]}"]
        settings += ["heartbeat.interval.ms=300"]
    command = [*JAVA, "-cp", f"{kafka_jars()}/*", str(JAVA_PROGRAM), bootstrap, topic, *settings]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield JavaMember(process)
        finally:
            process.kill()


CASES: Final = [
    *(
        pytest.param(kind, strategy, marks=pytest.mark.minutes if strategy == "roundrobin" else ())
        for kind in (librdkafkas, kafka_pythons)
        for strategy in STRATEGIES
    ),
    (librdkafkas, NEW),
    pytest.param(javas, "range", marks=[pytest.mark.peers, pytest.mark.minutes]),
    *(
        pytest.param(javas, strategy, marks=pytest.mark.peers)
        for strategy in ("cooperative-sticky", NEW)
    ),
]
"""Range and round robin differ in their assignors only; `test_assignors_java.py` compares those."""


@pytest.mark.parametrize(
    ("theirs", "strategy"), CASES, ids=lambda each: getattr(each, "__name__", each)
)
@pytest.mark.parametrize("order", ["ours leads", "theirs leads"])
def test_members_of_two_clients_share_the_partitions(
    bootstrap: str,
    create_topic: CreateTopic,
    unique: Callable[[str], str],
    strategy: Strategy,
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
