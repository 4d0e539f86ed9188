"""A process whose producers are left in every way, while another client of it goes on.

`test_exit_paths.py` starts it with the address of a broker and one way of leaving. It prints a line
for each state; a line that is missing is a hang, and the test's time-out ends it.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from odradek.client.blocking import Admin, Closed, Delivery, OdradekError, Producer, RecordMetadata
from odradek.client.blocking.loop import the_loop
from odradek.client.blocking.producer import QUEUED_MAX
from odradek.client.network import Stream

ABSENT: Final = "absent"
"""A topic that the broker does not have and does not make."""


def leave_by_exception() -> None:
    raise ZeroDivisionError


def leave_by_signal() -> None:
    signal.raise_signal(signal.SIGINT)


def leave_by_exit() -> None:
    sys.exit(3)


WAYS: Final[dict[str, tuple[Callable[[], None], type[BaseException]]]] = {
    "exception": (leave_by_exception, ZeroDivisionError),
    "SIGINT": (leave_by_signal, KeyboardInterrupt),
    "sys.exit": (leave_by_exit, SystemExit),
}


class Fates:
    """The arguments of each `on_delivery` call, by record."""

    def __init__(self) -> None:
        self.told: list[OdradekError | None] = []
        self.sent = 0

    def send(self, producer: Producer, topic: str) -> Delivery:
        self.sent += 1
        return producer.send(topic, b"x", on_delivery=self._note)

    def _note(self, metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        self.told.append(error)


async def connect_never(host: str, port: int) -> Stream:
    await trio.sleep_forever()
    raise AssertionError


@contextmanager
def left(way: str, state: str) -> Iterator[None]:
    """The exception that leaves the block must be the one that was raised in it."""
    kind = WAYS[way][1]
    try:
        yield
    except kind:
        print(state, "left by", kind.__name__, flush=True)


def idle(address: str, way: str, topic: str, fates: Fates) -> None:
    with Producer(address, flush_on_error=False) as producer:
        fates.send(producer, topic)
        producer.flush()
        WAYS[way][0]()


def unknown_topic(address: str, way: str, topic: str, fates: Fates) -> None:
    with Producer(address, flush_on_error=False) as producer:
        fates.send(producer, ABSENT)
        WAYS[way][0]()


def not_connected(address: str, way: str, topic: str, fates: Fates) -> None:
    with Producer(address, connect=connect_never, flush_on_error=False) as producer:
        fates.send(producer, topic)
        WAYS[way][0]()


def full_queue(address: str, way: str, topic: str, fates: Fates) -> None:
    with Producer(address, flush_on_error=False) as producer:
        for _ in range(QUEUED_MAX):
            fates.send(producer, ABSENT)
        WAYS[way][0]()


def transaction(address: str, way: str, topic: str, fates: Fates) -> None:
    with (
        Producer(address, transactional_id=f"leaves-{way}") as producer,
        producer.transaction(),
    ):
        fates.send(producer, topic).result()
        fates.send(producer, topic)
        WAYS[way][0]()


def transaction_unknown_topic(address: str, way: str, topic: str, fates: Fates) -> None:
    with (
        Producer(address, transactional_id=f"leaves-{way}-2") as producer,
        producer.transaction(),
    ):
        fates.send(producer, ABSENT)
        WAYS[way][0]()


def two_threads(address: str, way: str, topic: str, fates: Fates) -> None:
    """The other thread waits for room in the queue, and for its delivery, while this one leaves."""
    outcome: list[BaseException] = []
    waits = threading.Event()

    def other(producer: Producer) -> None:
        try:
            for _ in range(QUEUED_MAX - 1):
                fates.send(producer, ABSENT)
            last = fates.send(producer, ABSENT)
            waits.set()
            last.result()
        except Closed as error:
            outcome.append(error)

    thread: threading.Thread | None = None
    try:
        with Producer(address, flush_on_error=False) as producer:
            thread = threading.Thread(target=other, args=(producer,))
            thread.start()
            waits.wait()
            WAYS[way][0]()
    finally:
        assert thread is not None
        thread.join()
        assert len(outcome) == 1, outcome


STATES: Final = (
    idle,
    unknown_topic,
    not_connected,
    full_queue,
    transaction,
    transaction_unknown_topic,
    two_threads,
)


def main(address: str, topic: str, way: str) -> None:
    # A shell's background job has Ctrl-C ignored from the start, and so has what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Admin(address) as bystander:
        bystander.list_topics()
        loop = the_loop()
        for state in STATES:
            fates = Fates()
            with left(way, state.__name__):
                state(address, way, topic, fates)
            assert len(fates.told) == fates.sent, (state, len(fates.told), fates.sent)
            assert topic in bystander.list_topics()
            assert the_loop() is loop
    print("the bystander is well", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
