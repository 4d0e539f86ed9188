"""Clients in threads that count what they do: Odradek's and confluent-kafka.

They work until they shall rest, and are at rest when nothing of theirs is under way. While the
broker is killed under them, they go on with a new client after an error; what they have counted
is then worth nothing, until `begin`.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import confluent_kafka

from odradek.client.blocking import Consumer, Producer
from odradek.client.errors import OdradekError

PATIENCE_SECONDS: Final = 120.0
RECORDS: Final = 20
"""The most records of a transaction."""
THEIR_SETTINGS: Final = {"reconnect.backoff.max.ms": 200, "log_level": 0}
"""Clients that come back soon after a kill, and do not print that the broker was away."""
COMMIT, ABORT = "commit", "abort"
RECORD, REFUSED = "record", "refused"
BYTES_SENT, BYTES_READ = "bytes sent", "bytes read"


class Undone(Exception):
    """Ends a transaction by an abort."""


class Clerk(threading.Thread):
    """One client. `counts` has what it has done since `begin`."""

    def __init__(self, address: str, topic: str, seed: int) -> None:
        super().__init__(name=f"{type(self).__name__}-{seed}", daemon=True)
        self.address = address
        self.topic = topic
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.error: BaseException | None = None
        self.is_under_fire = False
        """The broker may be killed: errors are no surprise."""
        self._works = threading.Event()
        self._is_at_rest = threading.Event()
        self._is_over = False

    def begin(self) -> None:
        """Count from 0. It must be at rest."""
        self.counts.clear()

    def work(self) -> None:
        self._is_at_rest.clear()
        self._works.set()

    def stop_soon(self) -> None:
        self._works.clear()

    def wait_at_rest(self) -> None:
        assert self._is_at_rest.wait(PATIENCE_SECONDS), f"{self.name} does not come to rest"
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        self._is_over = True
        self._works.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive(), f"{self.name} does not end"

    def run(self) -> None:
        try:
            while not self._is_over:
                with self._errors(), ExitStack() as stack:
                    self.open(stack)
                    self._work_and_rest()
        except BaseException as error:
            self.error = error
        finally:
            self._is_at_rest.set()

    @contextlib.contextmanager
    def _errors(self) -> Any:
        try:
            yield
        except (OdradekError, confluent_kafka.KafkaException):
            if not self.is_under_fire:
                raise

    def _work_and_rest(self) -> None:
        while not self._is_over:
            if self._works.is_set():
                self.do()
                continue
            self.before_rest()
            self._is_at_rest.set()
            self._works.wait()

    def open(self, stack: ExitStack) -> None:
        """Open the client, which `stack` closes."""
        raise NotImplementedError

    def do(self) -> None:
        """Do one piece of work, and return when nothing of it is under way."""
        raise NotImplementedError

    def before_rest(self) -> None:
        """Note what is counted by the client itself."""


class Writer(Clerk):
    """Writes transactions, of which it aborts some."""

    def draw(self) -> tuple[list[int], bool]:
        """Return the partition of each record of a transaction, and whether it is committed."""
        count = self.random.randint(1, RECORDS)
        return [self.random.randrange(3) for _ in range(count)], self.random.random() > 0.2

    def count(self, records: Sequence[int], *, is_committed: bool) -> None:
        self.counts[RECORD] += len(records)
        self.counts[COMMIT if is_committed else ABORT] += 1


class OurWriter(Writer):
    _before: Counter[str]

    def open(self, stack: ExitStack) -> None:
        self._before = Counter()
        self._producer = stack.enter_context(Producer(self.address, transactional_id=self.name))

    def do(self) -> None:
        partitions, is_committed = self.draw()
        with contextlib.suppress(Undone), self._producer.transaction():
            waiting = [self._producer.send(self.topic, b"ours", partition=p) for p in partitions]
            for each in waiting:
                each.result()
            if not is_committed:
                raise Undone
        self.count(partitions, is_committed=is_committed)

    def before_rest(self) -> None:
        counted = counted_by(self._producer)
        self.counts += counted - self._before
        self._before = counted


def counted_by(producer: Producer[Any, Any]) -> Counter[str]:
    """Return what a producer has counted: bytes, and attempts that a broker has refused."""
    found = producer.statistics()
    refused = sum(count for name, count in found.errors.items() if name.isupper())
    return Counter({BYTES_SENT: found.bytes_sent, REFUSED: refused})


class TheirWriter(Writer):
    def open(self, stack: ExitStack) -> None:
        self._producer = confluent_kafka.Producer(
            {
                **THEIR_SETTINGS,
                "bootstrap.servers": self.address,
                "transactional.id": self.name,
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(PATIENCE_SECONDS)

    def do(self) -> None:
        partitions, is_committed = self.draw()
        lost: list[object] = []

        def on_delivery(error: object, _message: object) -> None:
            lost.extend([error] if error is not None else [])

        self._producer.begin_transaction()
        for partition in partitions:
            self._producer.produce(
                self.topic, b"theirs", partition=partition, on_delivery=on_delivery
            )
        left = self._producer.flush(PATIENCE_SECONDS)
        assert self.is_under_fire or not (lost or left), (lost, left)
        if is_committed:
            self._producer.commit_transaction(PATIENCE_SECONDS)
        else:
            self._producer.abort_transaction(PATIENCE_SECONDS)
        self.count(partitions, is_committed=is_committed)


class Reader(Clerk):
    """Reads committed records as a group. At rest its position is stored."""

    def __init__(self, address: str, topic: str, seed: int) -> None:
        super().__init__(address, topic, seed)
        self.ends: dict[int, int] = {}
        """By partition, the offset behind the last record that was read since it was at rest."""
        self.stored: dict[int, int] = {}
        """The offsets that it has stored when it came to rest."""
        self.last_progress = 0
        """`progress` when it came to rest."""

    @property
    def progress(self) -> int:
        """How far it has read from the stored offsets, up to the last record of each partition."""
        ends = dict(self.ends)
        return sum(max(0, end - self.stored.get(partition, 0)) for partition, end in ends.items())

    def read_on(self, count: float) -> None:
        """Go on from the stored offsets, and return when it is so many offsets further."""
        self.work()
        wait_until(lambda: self.progress >= count, f"{self.name} does not get {count:g} further")

    def on_stored(self, stored: dict[int, int]) -> None:
        """Note the offsets that are stored now."""
        self.last_progress = self.progress
        self.stored = stored
        self.ends.clear()

    def note(self, partition: int, offset: int) -> None:
        self.ends[partition] = offset + 1
        self.counts[RECORD] += 1


class OurReader(Reader):
    _bytes_before = 0

    def open(self, stack: ExitStack) -> None:
        self._bytes_before = 0
        self._consumer = stack.enter_context(
            Consumer(self.address, group_id=self.name, isolation_level="read_committed")
        )
        self._consumer.subscribe(self.topic)

    def do(self) -> None:
        for record in self._consumer.poll(100):
            self.note(record.partition, record.offset)

    def before_rest(self) -> None:
        self._consumer.commit()
        found = self._consumer.offsets_to_commit()
        self.on_stored({where.partition: each.offset for where, each in found.items()})
        self._note_bytes()

    def begin(self) -> None:
        self._note_bytes()  # what it has fetched ahead since it came to rest
        super().begin()

    def _note_bytes(self) -> None:
        fetched = self._consumer.statistics().bytes_fetched
        self.counts[BYTES_READ] += fetched - self._bytes_before
        self._bytes_before = fetched


class TheirReader(Reader):
    def open(self, stack: ExitStack) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                **THEIR_SETTINGS,
                "bootstrap.servers": self.address,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        stack.callback(self._consumer.close)
        self._consumer.subscribe([self.topic])

    def do(self) -> None:
        for message in self._consumer.consume(1_000, timeout=0.1):
            error = message.error()
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            self.note(message.partition() or 0, message.offset() or 0)

    def before_rest(self) -> None:
        own = self._consumer.assignment()
        positions = [each for each in self._consumer.position(own) if each.offset >= 0]
        if positions:
            self._consumer.commit(offsets=positions, asynchronous=False)
        found = self._consumer.committed(own, timeout=PATIENCE_SECONDS)
        self.on_stored({each.partition: max(each.offset, 0) for each in found})


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.02)
