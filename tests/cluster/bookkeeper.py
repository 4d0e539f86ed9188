"""An application that counts exactly once, while something happens to its brokers."""

import threading
from itertools import count
from typing import Any, Final

from odradek.client.blocking import Admin, Consumer, OdradekError, Producer, TopicPartition

GROUP: Final = "ledger"
SOURCE: Final = TopicPartition("orders", 0)
LEDGER: Final = "ledger"
PARTITIONS: Final = 2
WAIT_SECONDS: Final = 120.0


class Bookkeeper:
    """Writes each number once: a record and the group's offset in one transaction, in a thread."""

    def __init__(self, addresses: str, **options: Any) -> None:
        """`options` are those of its clients."""
        self._addresses = addresses
        self._options = options
        self._stopped = threading.Event()
        self._written = threading.Condition()
        self.next_number = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Bookkeeper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def wait_for_more(self, more: int) -> None:
        with self._written:
            wanted = self.next_number + more
            assert self._written.wait_for(lambda: self.next_number >= wanted, WAIT_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._write_on()
            except OdradekError:
                self._stopped.wait(0.2)  # whether it was committed is read from the broker

    def _write_on(self) -> None:
        with Producer(self._addresses, transactional_id="bookkeeper", **self._options) as producer:
            # what was open has ended now, so the group's offset is final
            for number in count(committed(self._addresses, **self._options)):
                if self._stopped.is_set():
                    return
                with producer.transaction() as transaction:
                    transaction.send(LEDGER, str(number).encode(), partition=number % PARTITIONS)
                    transaction.send_offsets({SOURCE: number + 1}, GROUP)
                with self._written:
                    self.next_number = number + 1
                    self._written.notify_all()


def committed(addresses: str, **options: Any) -> int:
    """Return the first number that is not written yet."""
    with Admin(addresses, **options) as admin:
        found = admin.group_lag(GROUP, [SOURCE])[SOURCE].offset
    return 0 if found is None else found


def read(addresses: str, at_least: int, **options: Any) -> dict[int, list[int]]:
    """Read the committed numbers of each partition until there are so many."""
    numbers: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    with Consumer(addresses, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(LEDGER, partition) for partition in numbers])
        while sum(map(len, numbers.values())) < at_least:
            for record in consumer.poll(timeout_ms=10_000):
                assert record.value is not None
                numbers[record.partition].append(int(record.value))
    return numbers


def check_numbers(numbers: dict[int, list[int]]) -> None:
    """Check that each number is there once, in order."""
    for partition, found in numbers.items():
        assert found == list(range(partition, len(found) * PARTITIONS + partition, PARTITIONS))
