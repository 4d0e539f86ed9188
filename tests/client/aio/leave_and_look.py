"""A process whose asyncio clients are left in every way, while another client of it goes on.

`test_exit_paths.py` starts it with the address of a broker and one way of leaving. It prints a line
for each state; a line that is missing is a hang, and the test's time-out ends it.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from odradek.client.aio import Admin, Consumer, OdradekError, Producer, RecordMetadata
from odradek.client.blocking.loop import the_loop
from odradek.client.blocking.producer import QUEUED_MAX
from odradek.client.network import Stream

ABSENT: Final = "absent"
"""A topic that the broker does not have and does not make."""


async def leave_by_exception() -> None:
    raise ZeroDivisionError


async def leave_by_signal() -> None:
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(60)  # asyncio.run cancels its task, and then raises KeyboardInterrupt
    raise AssertionError


async def leave_by_exit() -> None:
    sys.exit(3)


async def leave_by_cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def leave_by_timeout() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(60)


WAYS: Final[dict[str, tuple[Callable[[], Awaitable[None]], type[BaseException]]]] = {
    "exception": (leave_by_exception, ZeroDivisionError),
    "SIGINT": (leave_by_signal, KeyboardInterrupt),
    "sys.exit": (leave_by_exit, SystemExit),
    "cancel": (leave_by_cancel, asyncio.CancelledError),
    "timeout": (leave_by_timeout, TimeoutError),
}


class Fates:
    """The arguments of each `on_delivery` call, by record."""

    def __init__(self) -> None:
        self.told: list[OdradekError | None] = []
        self.sent = 0

    async def send(self, producer: Producer, topic: str) -> None:
        self.sent += 1
        await producer.send(topic, b"x", on_delivery=self._note)

    def _note(self, metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        self.told.append(error)


async def connect_never(host: str, port: int) -> Stream:
    await trio.sleep_forever()
    raise AssertionError


Leave = Callable[[], Awaitable[None]]


async def idle(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with Producer(address, flush_on_error=False) as producer:
        await fates.send(producer, topic)
        await producer.flush()
        await leave()


async def unknown_topic(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with Producer(address, flush_on_error=False) as producer:
        await fates.send(producer, ABSENT)
        await leave()


async def not_connected(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with Producer(address, connect=connect_never, flush_on_error=False) as producer:
        await fates.send(producer, topic)
        await leave()


async def full_queue(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with Producer(address, flush_on_error=False) as producer:
        for _ in range(QUEUED_MAX):
            await fates.send(producer, ABSENT)
        await leave()


async def transaction(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with (
        Producer(address, transactional_id=f"leaves-{leave}") as producer,
        producer.transaction(),
    ):
        await fates.send(producer, topic)
        await producer.flush()
        await fates.send(producer, topic)
        await leave()


async def transaction_unknown_topic(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with (
        Producer(address, transactional_id=f"leaves-{leave}-2") as producer,
        producer.transaction(),
    ):
        await fates.send(producer, ABSENT)
        await leave()


async def consumer_and_admin(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    async with Admin(address) as admin, Consumer(address) as consumer:
        await admin.list_topics()
        consumer.assign([(topic, 0)])
        await consumer.poll(100)
        await leave()


async def task_that_waits(address: str, leave: Leave, topic: str, fates: Fates) -> None:
    """Another task waits for its delivery while the producer is left."""
    async with Producer(address, flush_on_error=False) as producer:
        delivery = await producer.send(ABSENT, b"x")
        waiting = asyncio.ensure_future(delivery.wait())
        await asyncio.sleep(0.01)
        try:
            await leave()
        finally:
            if not waiting.done():
                waiting.add_done_callback(lambda _: None)


STATES: Final = (
    idle,
    unknown_topic,
    not_connected,
    full_queue,
    transaction,
    transaction_unknown_topic,
    consumer_and_admin,
    task_that_waits,
)


def main(address: str, topic: str, way: str) -> None:
    # A shell's background job has Ctrl-C ignored from the start, and so has what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    leave, kind = WAYS[way]
    loop = the_loop()
    for state in STATES:
        fates = Fates()
        raised: list[BaseException] = []

        async def use(state: Callable[..., Awaitable[None]], fates: Fates) -> None:
            await state(address, leave, topic, fates)

        try:
            asyncio.run(use(state, fates))
        except kind as error:
            raised.append(error)
        assert [type(error) for error in raised] == [kind], state
        assert len(fates.told) == fates.sent, (state, len(fates.told), fates.sent)
        assert topic in asyncio.run(topics(address))
        assert the_loop() is loop
        while loop._waiting:  # a call that goes on has not been cancelled, and this never ends
            time.sleep(0.01)
        print(state.__name__, "left by", kind.__name__, flush=True)
    print("another client is well", flush=True)


async def topics(address: str) -> list[str]:
    async with Admin(address) as admin:
        return list(await admin.list_topics())


if __name__ == "__main__":
    main(*sys.argv[1:])
