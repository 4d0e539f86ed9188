"""Two writers that go on while the broker is being killed, and note what became of everything.

Each writes transactions under one transactional id in a thread of its own: some records to every
partition and, our client, an offset of its own group; every fifth is aborted on purpose. A
transaction whose end is in doubt is noted as such, and the writer starts anew, which fences what
it left behind.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from odradek.client import blocking
from tests.checker.history import Outcome, Partition, Transaction
from tests.compat.confluent import producer as confluent_producer

RECORDS_PER_PARTITION: Final = 3
PADDING: Final = b"." * 1_500  # so that segments are rolled under the kills, too
CALL_TIMEOUT_SECONDS: Final = 20.0


class OnPurpose(Exception):
    """Ends a transaction by an exception of the user."""


@dataclass
class Journal:
    """What the writers did, in order; shared by their threads."""

    process: str
    partitions: list[Partition]
    transactions: list[Transaction] = field(default_factory=list)

    @property
    def committed(self) -> int:
        return sum(one.outcome is Outcome.OK for one in self.transactions)

    def begin(self, *, stores_offset: bool) -> Transaction:
        """Note a new transaction before any of it is sent: in doubt until told otherwise."""
        number = len(self.transactions)
        sends = [
            (partition, b"%s-%d-%d-" % (self.process.encode(), number, index) + PADDING)
            for index, partition in enumerate(self.partitions * RECORDS_PER_PARTITION)
        ]
        begun = Transaction(
            process=self.process,
            outcome=Outcome.INFO,
            sends=sends,
            stores=number if stores_offset else None,
        )
        self.transactions.append(begun)
        return begun

    def end(self, outcome: Outcome) -> None:
        self.transactions[-1] = replace(self.transactions[-1], outcome=outcome)

    def aborts_next(self) -> bool:
        return len(self.transactions) % 5 == 4


Writer = Callable[[str, Journal, threading.Event], None]


def write_with_our_client(bootstrap: str, journal: Journal, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with blocking.Producer(bootstrap, transactional_id=journal.process) as sender:
                while not stop.is_set():
                    _one_of_our_client(sender, journal)
        except blocking.OdradekError:
            continue  # a new producer fences what this one left behind


def _one_of_our_client(sender: blocking.Producer, journal: Journal) -> None:
    aborts = journal.aborts_next()
    begun = journal.begin(stores_offset=True)
    asked_to_commit = False
    try:
        with sender.transaction() as transaction:
            for (topic, number), value in begun.sends:
                transaction.send(topic, value, partition=number)
            place = blocking.TopicPartition(*journal.partitions[0])
            assert begun.stores is not None
            transaction.send_offsets({place: begun.stores}, journal.process)
            if aborts:
                raise OnPurpose
            asked_to_commit = True
    except OnPurpose:
        journal.end(Outcome.FAIL)
    except blocking.OdradekError:
        if not asked_to_commit:
            journal.end(Outcome.FAIL)
        raise
    else:
        journal.end(Outcome.OK)


def write_with_confluent(bootstrap: str, journal: Journal, stop: threading.Event) -> None:
    while not stop.is_set():
        sender = confluent_producer(
            bootstrap,
            transactional_id=journal.process,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=20,
        )
        try:
            _until_it_is_done(sender.init_transactions)
            while not stop.is_set():
                _one_of_confluent(sender, journal)
        except KafkaException:
            continue  # a new producer fences what this one left behind


def _one_of_confluent(sender: Producer, journal: Journal) -> None:
    aborts = journal.aborts_next()
    begun = journal.begin(stores_offset=False)
    sender.begin_transaction()
    try:
        for (topic, number), value in begun.sends:
            sender.produce(topic, value, partition=number)
        if not aborts:
            _until_it_is_done(sender.commit_transaction)
            journal.end(Outcome.OK)
            return
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
    _until_it_is_done(sender.abort_transaction)
    journal.end(Outcome.FAIL)


def _until_it_is_done(call: Callable[[float], Any]) -> None:
    """librdkafka says which errors mean that the very same call may be made again."""
    deadline = time.monotonic() + CALL_TIMEOUT_SECONDS
    while True:
        try:
            call(CALL_TIMEOUT_SECONDS)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
