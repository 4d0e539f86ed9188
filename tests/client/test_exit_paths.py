"""Leaving a client, however it is left: promptly, with the user's exception, harming no other."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.testing import run_broker
from odradek.client import Closed, RecordMetadata
from odradek.client.blocking import Admin, Producer
from odradek.client.blocking import producer as blocking_producer
from odradek.client.blocking.loop import Loop, the_loop
from odradek.client.errors import OdradekError
from odradek.protocol.apis.produce import PRODUCE
from tests.client import leave_and_look
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import SILENCE, FakeBroker
from tests.client.leave_and_look import ABSENT, STATES, WAYS
from tests.client.live import WAIT_MS, name_of


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker(config={"auto.create.topics.enable": "false"}) as broker:
        yield broker.address


@pytest.mark.parametrize("way", WAYS)
def test_a_producer_left_in_any_state_ends_and_the_other_clients_go_on(
    address: str, way: str
) -> None:
    """The process hung for ever, and every other client in it with it."""
    topic = name_of("left")
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
    ended = subprocess.run(
        [sys.executable, "-m", leave_and_look.__name__, address, topic, way],
        capture_output=True,
        text=True,
        timeout=WAIT_MS / 1000,
        check=False,
    )
    kind = WAYS[way][1].__name__
    expected = [f"{state.__name__} left by {kind}" for state in STATES]
    assert ended.stdout.splitlines() == [*expected, "the bystander is well"], ended.stderr
    assert ended.returncode == 0


def test_a_loop_that_ends_fails_its_waiting_calls_and_the_next_client_gets_another() -> None:
    loop = Loop()
    with pytest.raises(Closed, match="the loop of the client has ended"):
        loop.call(_crash_trio)
    assert not loop.is_running
    with pytest.raises(Closed, match="make a new one"):
        loop.call(trio.lowlevel.checkpoint)
    assert the_loop().call_nowait(int) == 0


async def _crash_trio() -> None:
    """Spawn a task of the loop itself, which only `Loop` does, and no client."""

    async def fails() -> None:
        raise ZeroDivisionError

    trio.lowlevel.spawn_system_task(fails)
    await trio.sleep_forever()


def test_an_unused_client_that_another_thread_was_entering_at_a_fork_works_in_the_child(
    address: str,
) -> None:
    admin, loop = Admin(address), the_loop()
    admin._hosted._begun_in = loop
    loop.call(admin._hosted._entering.acquire)  # as the task of the other thread holds it
    child = os.fork()
    if child == 0:
        signal.alarm(WAIT_MS // 1000)  # instead of a hang
        status = 1
        try:
            with admin:
                admin.list_topics()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_a_producer_that_was_busy_at_a_fork_takes_no_record_in_the_child(address: str) -> None:
    """It took all of them for a thread of its parent, and none of them was sent, or failed."""
    topic = name_of("busy-at-a-fork")
    with Producer(address) as producer:
        first = producer.send(topic, b"x")  # it waits for its topic, so the producer is busy
        the_loop().call_nowait(lambda: None)
        child = os.fork()
        if child == 0:
            signal.alarm(WAIT_MS // 1000)  # instead of a hang
            status = 1
            try:
                with pytest.raises(Closed, match="fork"):
                    producer.send(topic, b"never sent")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        with Admin(address) as admin:
            admin.create_topic(topic, partitions=1)
        assert first.result(WAIT_MS).offset == 0


def test_a_callback_that_calls_sys_exit_ends_nothing(address: str) -> None:
    topic = name_of("exits")

    def leave(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        sys.exit(4)

    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
        loop = the_loop()
        with Producer(address) as producer:
            assert producer.send(topic, b"x", on_delivery=leave).result().offset == 0
            producer.flush()
        assert topic in admin.list_topics()
        assert the_loop() is loop


def test_a_partitioner_that_calls_sys_exit_costs_its_own_record(address: str) -> None:
    topic = name_of("exits")

    def leave(topic: str, key: bytes | None, partition_count: int) -> int:
        sys.exit(4)

    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
        loop = the_loop()
        with Producer(address, partitioner=leave) as producer:
            with pytest.raises(Closed):
                producer.send(topic, b"x").result()
            assert producer.send(topic, b"x", partition=0).result().offset == 0
        assert topic in admin.list_topics()
        assert the_loop() is loop


class Failed(BaseException):
    """As `pytest.fail` raises it."""


@pytest.mark.parametrize("partition", [0, 9])
def test_a_callback_that_fails_a_test_does_not_end_its_producer(
    address: str, partition: int
) -> None:
    """It took the connection, or the task that hands records over, with it."""
    topic = name_of("fails")

    def fail(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        raise Failed

    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(address) as producer:
        producer.send(topic, b"x", partition=partition, on_delivery=fail)
        producer.flush()
        producer.send(topic, b"x").result()


def test_a_producer_that_a_callback_tries_to_close_stays_open(address: str) -> None:
    """It counted as closed and was not: its tasks went on, and its last records were dropped."""
    topic = name_of("closes")
    told: list[BaseException] = []

    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(address) as producer:

        def close(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
            try:
                producer.close()
            except RuntimeError as error:
                told.append(error)

        producer.send(topic, b"x", on_delivery=close).result()
        assert producer.send(topic, b"x").result().offset == 1
    assert len(told) == 1


def test_a_callback_cannot_fill_the_queue_beyond_its_bound(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was queued, and `send` raised that it was not."""
    topic = name_of("fills")
    monkeypatch.setattr(blocking_producer, "QUEUED_MAX", 5)
    told: list[tuple[RecordMetadata | None, OdradekError | None]] = []
    raised: list[RuntimeError] = []

    with Admin(address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(address) as producer:

        def send_more(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
            for _ in range(10):
                try:
                    producer.send(topic, b"x", on_delivery=lambda *outcome: told.append(outcome))
                except RuntimeError as error:
                    raised.append(error)

        producer.send(topic, b"x", on_delivery=send_more).result()
        producer.flush()
    assert len(told) == 10
    assert len([error for _, error in told if error is not None]) == len(raised) == 4


@pytest.mark.parametrize("state", ["unknown topic", "full buffer", "idle", "in flight"])
@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
async def test_an_async_producer_is_left_at_once_and_by_what_was_raised(
    autojump_clock: MockClock,
    fake_broker: FakeBroker,
    producer_of: MakeProducer,
    state: str,
    kind: type[BaseException],
) -> None:
    options = {"batch_bytes": 1024, "buffer_bytes": 1024, "flush_on_error": False}
    told: list[OdradekError | None] = []
    sent = 0

    async def send(producer: object, topic: str, value: bytes) -> None:
        nonlocal sent
        sent += 1
        await producer.send(topic, value, on_delivery=lambda _, error: told.append(error))  # type: ignore[attr-defined]

    before = trio.current_time()
    with pytest.raises((kind, BaseExceptionGroup)) as caught:
        async with producer_of(fake_broker, **options) as producer, trio.open_nursery() as nursery:
            if state != "idle":
                fake_broker.next(PRODUCE, SILENCE)
                await send(producer, "t", b"x" * (2_000 if state == "full buffer" else 1))
            if state == "unknown topic":
                nursery.start_soon(send, producer, ABSENT, b"x")
            if state == "full buffer":
                nursery.start_soon(send, producer, "t", b"x")
            await trio.sleep(0.5)
            raise kind("left")
    if not isinstance(caught.value, kind):  # by way of the test's own nursery
        assert caught.group_contains(kind, match="left")
    assert trio.current_time() - before < 1
    assert len(told) == sent
    assert all(isinstance(error, Closed) for error in told)
