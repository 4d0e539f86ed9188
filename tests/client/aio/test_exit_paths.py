"""Leaving an asyncio client, however it is left: promptly, with the user's exception, wholly."""

import asyncio
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from odradek.broker.testing import run_broker
from odradek.client import Producer as TrioProducer
from odradek.client.aio import (
    Admin,
    Closed,
    Consumer,
    OdradekError,
    Producer,
    RecordMetadata,
    TimedOut,
    TopicPartition,
)
from odradek.client.aio import hosted as aio_hosted
from odradek.client.blocking.loop import Loop, the_loop
from tests.client.aio import leave_and_look
from tests.client.aio.leave_and_look import STATES, WAYS
from tests.client.live import WAIT_MS, name_of


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker(config={"auto.create.topics.enable": "false"}) as broker:
        yield broker.address


@pytest.fixture
def topic(address: str) -> str:
    name = name_of("left")

    async def create() -> None:
        async with Admin(address) as admin:
            await admin.create_topic(name, partitions=1)

    asyncio.run(create())
    return name


async def readable(address: str, topic: str) -> list[bytes | None]:
    """The committed records, once everything up to the end that is there now is decided."""
    place = TopicPartition(topic, 0)
    values: list[bytes | None] = []
    async with Admin(address) as admin, Consumer(address) as consumer:
        found = await admin.list_offsets({place: "latest"}, isolation_level="read_uncommitted")
        consumer.assign([place])
        async with asyncio.timeout(WAIT_MS / 1000):
            while await consumer.position(place) < found[place].offset:
                values += [record.value for record in await consumer.poll(100)]
    return values


@pytest.mark.parametrize("way", WAYS)
def test_a_client_left_in_any_state_ends_and_the_other_clients_go_on(
    address: str, topic: str, way: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", leave_and_look.__name__, address, topic, way],
        capture_output=True,
        text=True,
        timeout=WAIT_MS / 1000,
        check=False,
    )
    kind = WAYS[way][1].__name__
    expected = [f"{state.__name__} left by {kind}" for state in STATES]
    assert ended.stdout.splitlines() == [*expected, "another client is well"], ended.stderr
    assert ended.returncode == 0


# A shell's background job has Ctrl-C ignored from the start, and so has what this process starts.
WAITING = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from odradek.client.aio import Consumer, Producer
bootstrap, topic, transactional_id = sys.argv[1:]
async def main():
    async with Producer(bootstrap, transactional_id=transactional_id) as producer:
        async with Consumer(bootstrap) as consumer:
            consumer.assign([(topic, 0)])
            async with producer.transaction() as transaction:
                await (await transaction.send(topic, b"interrupted", partition=0))
                print("waiting", flush=True)
                await consumer.poll(24 * 3600 * 1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_leave_nothing_of_a_transaction(
    address: str, topic: str, by: signal.Signals
) -> None:
    transactional_id = name_of("id")
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, address, topic, transactional_id],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout, process.stderr:
        try:
            assert process.stdout.readline() == b"waiting\n"
            process.send_signal(by)
            process.wait(timeout=WAIT_MS / 1000)  # the poll takes a day
            said = process.stderr.read()
        finally:
            process.kill()
    assert (b"KeyboardInterrupt" in said) == (by is signal.SIGINT)

    async def look() -> list[bytes | None]:
        if by is signal.SIGKILL:
            async with (
                Producer(address, transactional_id=transactional_id) as producer,
                producer.transaction() as transaction,
            ):
                await transaction.send(topic, b"the next one", partition=0)
        return await readable(address, topic)

    assert asyncio.run(look()) == ([b"the next one"] if by is signal.SIGKILL else [])


def test_an_event_loop_that_is_closed_aborts_the_transaction_of_a_task_in_it(
    address: str, topic: str
) -> None:
    """Its coroutine is destroyed, and can wait for nothing."""
    event_loop = asyncio.new_event_loop()
    sent = event_loop.create_future()
    entered: list[Producer] = []

    async def use() -> None:
        async with Producer(address, transactional_id=name_of("id")) as producer:
            entered.append(producer)
            async with producer.transaction() as transaction:
                await (await transaction.send(topic, b"x", partition=0))
                sent.set_result(None)
                await event_loop.create_future()

    coroutine = use()
    task = event_loop.create_task(coroutine)
    event_loop.run_until_complete(sent)
    event_loop.close()
    coroutine.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    assert entered[0]._hosted.is_closed
    assert asyncio.run(readable(address, topic)) == []


def test_a_callback_whose_event_loop_is_closed_is_logged(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def note(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        raise AssertionError

    async def use() -> None:
        async with Producer(address, linger_ms=100) as producer:
            other = asyncio.new_event_loop()
            await asyncio.to_thread(
                other.run_until_complete,
                producer.send(topic, b"x", partition=0, on_delivery=note),
            )
            other.close()
            await producer.flush()

    asyncio.run(use())
    assert "its event loop is closed" in caplog.text


@pytest.mark.parametrize("raised", [ZeroDivisionError, SystemExit])
def test_a_callback_that_raises_ends_nothing(
    address: str, topic: str, raised: type[BaseException]
) -> None:
    def fail(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        raise raised

    async def use() -> None:
        async with Producer(address) as producer:
            await (await producer.send(topic, b"x", on_delivery=fail))
            await producer.flush()
            assert (await (await producer.send(topic, b"x"))).offset == 1

    asyncio.run(use())


def test_an_error_of_leaving_is_a_note_on_the_exception_of_the_program(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = TrioProducer.__aexit__

    async def fails(self: TrioProducer, *reason: Any) -> None:
        await leave(self, *reason)
        raise TimedOut("nobody answered")

    async def use() -> None:
        async with Producer(address):
            monkeypatch.setattr(TrioProducer, "__aexit__", fails)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        asyncio.run(use())
    assert raised.value.__notes__ == ["Closing the client failed as well: nobody answered"]


def test_objects_are_made_anew_after_a_fork(address: str, topic: str) -> None:
    async def in_child(producer: Producer) -> None:
        with pytest.raises(Closed, match="fork"):
            await producer.flush()
        with pytest.raises(Closed, match="fork"):
            await producer.send(topic, b"parent's")
        async with Producer(address) as own:
            assert (await (await own.send(topic, b"child", partition=0))).offset == 1

    async def use() -> None:
        async with Producer(address) as producer:
            await (await producer.send(topic, b"parent", partition=0))
            child = os.fork()
            if child == 0:
                signal.alarm(WAIT_MS // 1000)  # instead of a hang
                status = 1
                try:
                    asyncio.run(in_child(producer))
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
            assert (await (await producer.send(topic, b"again", partition=0))).offset == 2

    asyncio.run(use())


def test_a_loop_of_trio_that_ends_fails_calls_and_deliveries(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    monkeypatch.setattr(aio_hosted, "the_loop", lambda: loop)

    async def use() -> None:
        async with Consumer(address) as consumer, Producer(address, linger_ms=60_000) as producer:
            consumer.assign([(topic, 0)])
            delivery = await producer.send(topic, b"x")
            waiting = [
                asyncio.ensure_future(consumer.poll(WAIT_MS)),
                asyncio.ensure_future(delivery),
            ]
            await asyncio.sleep(0.05)
            loop.run_soon(trio.lowlevel.spawn_system_task, _fails)
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(outcome, Closed), outcome

    with pytest.raises(Closed, match="loop of the client has ended"):
        asyncio.run(use())
    assert the_loop().is_running


async def _fails() -> None:
    raise ZeroDivisionError
