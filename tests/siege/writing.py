"""The writers of a siege: plain records to the sources, transactions to the ledger."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from odradek.client import blocking
from tests.checker.history import Outcome, Partition, Transaction
from tests.compat.agents import Agent, Refused
from tests.compat.confluent import producer as confluent_producer
from tests.compat.writers import Journal

PADDING: Final = b"." * 200
FLUSH_SECONDS: Final = 120.0


@dataclass(slots=True)
class Sent:
    """The records that a process sent alone, each once, and those that were acknowledged."""

    process: str
    topic: str
    partitions: int
    values: list[bytes] = field(default_factory=list)
    offsets: dict[bytes, int] = field(default_factory=dict)

    def next_value(self) -> tuple[int, bytes]:
        """Return the partition and the value of a record that is now sent."""
        number = len(self.values)
        self.values.append(b"%s-%d-" % (self.process.encode(), number) + PADDING)
        return number % self.partitions, self.values[-1]

    def as_transactions(self) -> list[Transaction]:
        return [
            Transaction(
                process=self.process,
                outcome=Outcome.OK if value in self.offsets else Outcome.INFO,
                sends=[((self.topic, number % self.partitions), value)],
                acknowledged={value: self.offsets[value]} if value in self.offsets else {},
            )
            for number, value in enumerate(self.values)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """So many records at once, and then a pause."""

    records: int
    seconds: float


def send_with_confluent(bootstrap: str, sent: Sent, pace: Pace, stop: threading.Event) -> None:
    sender = confluent_producer(bootstrap, acks="all", reconnect_backoff_max_ms=200)

    def answered(error: KafkaError | None, message: "Message[bytes, bytes]") -> None:
        value, offset = message.value(), message.offset()
        if error is None and value is not None and offset is not None:
            sent.offsets[value] = offset

    while not stop.is_set():
        for _ in range(pace.records):
            partition, value = sent.next_value()
            sender.produce(sent.topic, value, partition=partition, on_delivery=answered)
        sender.poll(0)
        stop.wait(pace.seconds)
    left = sender.flush(FLUSH_SECONDS)
    assert left == 0, f"{left} records of {sent.process} were not answered"


def send_with_our_client(bootstrap: str, sent: Sent, pace: Pace, stop: threading.Event) -> None:
    deliveries: list[tuple[bytes, Any]] = []
    with blocking.Producer(bootstrap) as sender:
        while not stop.is_set():
            for _ in range(pace.records):
                partition, value = sent.next_value()
                deliveries.append((value, sender.send(sent.topic, value, partition=partition)))
            stop.wait(pace.seconds)
        for value, delivery in deliveries:
            try:
                sent.offsets[value] = delivery.result().offset
            except blocking.OdradekError as error:  # it may be stored: its outcome is unknown
                print(f"{sent.process}: {error}", flush=True)


def transact_with_agent(
    command: Sequence[str],
) -> Callable[[str, Journal, threading.Event], None]:
    """Return a writer of transactions over an agent, which is replaced when it is refused."""

    def write(bootstrap: str, journal: Journal, stop: threading.Event) -> None:
        while not stop.is_set():
            agent = Agent(command)
            try:
                _transact(agent, bootstrap, journal, stop)
            except (Refused, EOFError, TimeoutError):
                continue  # a new producer fences what this one left behind
            finally:
                agent.close()

    return write


def _transact(agent: Agent, bootstrap: str, journal: Journal, stop: threading.Event) -> None:
    sender = agent.producer(bootstrap, journal.process)
    while not stop.is_set():
        aborts = journal.aborts_next()
        begun = journal.begin(stores_offset=False)
        try:
            sender.begin()
            for (topic, partition), value in begun.sends:
                sender.send(topic, value.decode(), partition=partition)
        except Refused:
            journal.end(Outcome.FAIL)  # nobody has asked to commit it
            raise
        if aborts:
            sender.abort()
            journal.end(Outcome.FAIL)
        else:
            sender.commit()
            journal.end(Outcome.OK)


def places(topic: str, partitions: int) -> list[Partition]:
    return [(topic, number) for number in range(partitions)]
