"""A broker with everything to look at: transactions that end well and badly, and groups."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, Consumer, OdradekError, Producer

STALLS: Final = "payments-7"
LATE: Final = "payments-3"
WORKERS: Final = 4
FENCED: Final = "{orders}.task-2"

Task = Callable[[str, threading.Event, int], None]


@contextmanager
def scene(broker: RunningBroker) -> Iterator[None]:
    """Play it while the block runs."""
    with Admin(broker.address) as admin:
        admin.create_topic("orders", partitions=3)
        admin.create_topic("ledger", partitions=2)
    is_over = threading.Event()
    tasks: list[tuple[Task, int]] = [(work, number) for number in range(WORKERS)]
    tasks += [(stall, 0), (stall, 1), (read, 0), (read, 1)]
    threads = [
        threading.Thread(target=task, args=(broker.address, is_over, number))
        for task, number in tasks
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def fence(address: str) -> None:
    """Start another instance of a worker."""
    with Producer(address, transactional_id=FENCED, client_id="newcomer"):
        pass


def work(address: str, is_over: threading.Event, number: int) -> None:
    """Commit transactions, and abort one now and then, until another instance starts."""
    name, client_id = f"{{orders}}.task-{number}", f"orders-{number}"
    count = 0
    with (
        suppress(OdradekError),
        Producer(address, transactional_id=name, client_id=client_id) as producer,
    ):
        while not is_over.is_set():
            count += 1
            with producer.transaction() as transaction:
                for place in range(3):
                    transaction.send("orders", b"x", partition=place)
                    is_over.wait(0.2 + 0.3 * number)
                if count % 5 == 0:
                    transaction.abort()
            is_over.wait(0.6)


def stall(address: str, is_over: threading.Event, number: int) -> None:
    """Send something in a transaction, and do nothing more. The second one times out."""
    name, timeout_ms = ((STALLS, 60_000), (LATE, 5_000))[number]
    with (
        suppress(OdradekError),
        Producer(
            address, transactional_id=name, client_id="teller", transaction_timeout_ms=timeout_ms
        ) as producer,
        producer.transaction() as transaction,
    ):
        for sent in range(120 - 40 * number):
            transaction.send("ledger", b"x", partition=sent % 2)
        is_over.wait()


def read(address: str, is_over: threading.Event, number: int) -> None:
    """Read as a group, the second one slowly."""
    group = ("billing", "slow-audit")[number]
    with Consumer(
        address,
        group_id=group,
        client_id=f"{group}-app",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["orders", "ledger"])
        while not is_over.is_set():
            consumer.poll(500)
            consumer.commit()
            is_over.wait(0.2 + 6.0 * number)
