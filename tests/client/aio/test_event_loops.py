"""Which client runs under which event loop, what crosses to trio's thread, and what may be lost."""

# ruff: noqa: PT012 - what raises here is often the end of a block, so the block is the statement

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from odradek import client
from odradek.broker.testing import run_broker
from odradek.client import aio, blocking
from odradek.client.aio import TopicPartition
from odradek.client.aio import hosted as aio_hosted
from odradek.client.aio.crossing import Caller, Outbox
from odradek.client.blocking.loop import Loop
from odradek.client.errors import Closed
from odradek.client.types import Header
from tests.client.fake_broker import ADDRESS
from tests.client.hostile_broker import HostileBroker, Trouble
from tests.client.live import WAIT_MS, name_of

RECORD_BYTES = 10_000
BUFFER_BYTES = 100_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.address


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_nothing_is_kept_for_an_event_loop_that_is_closed(is_scheduled: bool) -> None:
    """From the second one on it was kept for ever, and a callback of a group was waited for."""
    event_loop = asyncio.new_event_loop()
    outbox = Outbox(event_loop)
    if is_scheduled:
        assert outbox.post(print, "not called, because the loop is closed before its next turn")
    event_loop.close()
    assert [outbox.post(print, "not called") for _ in range(3)] == [False, False, False]
    assert not outbox._posted


async def test_a_callback_is_not_waited_for_when_its_event_loop_is_closed_before_it(
    autojump_clock: MockClock,
) -> None:
    event_loop = asyncio.new_event_loop()
    outbox = Outbox(event_loop)
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with trio.fail_after(60), pytest.raises(Closed, match="its event loop is closed"):
                await outbox.carry_out(print, "not called")

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        event_loop.close()


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_the_trio_client_under_asyncio_names_what_to_import(name: str) -> None:
    async def use() -> None:
        async with getattr(client, name)("127.0.0.1:9092"):
            pass

    with pytest.raises(RuntimeError, match=r"import odradek\.client\.aio instead"):
        asyncio.run(use())


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
async def test_the_asyncio_client_under_trio_names_what_to_import(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"in a trio program import odradek\.client instead"):
        async with getattr(aio, name)("127.0.0.1:9092"):
            pass


def test_the_asyncio_client_without_an_event_loop_names_what_to_import() -> None:
    entering = aio.Admin("127.0.0.1:9092").__aenter__()
    with pytest.raises(RuntimeError, match=r"import odradek\.client\.blocking instead"):
        entering.send(None)


def test_the_blocking_client_works_inside_a_running_event_loop(address: str) -> None:
    async def use() -> int:
        with blocking.Producer(address) as producer:
            return producer.send(name_of("blocks"), b"x", partition=0).result().offset

    assert asyncio.run(use()) == 0


@pytest.mark.parametrize(
    ("value", "headers"),
    [(b"x" * RECORD_BYTES, []), (b"", [("a header", b"x" * RECORD_BYTES)])],
    ids=["value", "headers"],
)
def test_send_waits_while_the_buffer_is_full_and_a_timeout_ends_the_wait(
    value: bytes, headers: list[Header], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    monkeypatch.setattr(aio_hosted, "the_loop", lambda: loop)
    assert loop._nursery is not None
    broker = HostileBroker(loop._nursery)
    taken: list[aio.Delivery] = []
    errors: list[aio.OdradekError | None] = []

    async def send(producer: aio.Producer) -> None:
        while True:
            await producer.send(
                "t",
                value,
                headers=headers,
                partition=0,
                on_delivery=lambda _, error: errors.append(error),
            )
            taken.append(None)  # type: ignore[arg-type]

    async def use() -> None:
        options: Any = {"buffer_bytes": BUFFER_BYTES, "batch_bytes": 20_000}
        with pytest.raises(TimeoutError):
            async with aio.Producer(ADDRESS, connect=broker.connect, **options) as producer:
                await producer.send("t", b"first", partition=0)
                await producer.flush()
                loop.call_nowait(broker.turn, Trouble.SILENT)
                async with asyncio.timeout(None) as limit:
                    sending = asyncio.gather(*(send(producer) for _ in range(10)))
                    while len(taken) <= BUFFER_BYTES / RECORD_BYTES:  # noqa: ASYNC110 - no event
                        await asyncio.sleep(0.01)
                    limit.reschedule(asyncio.get_running_loop().time() + 0.1)
                    await sending

    asyncio.run(use())
    loop.run_soon(loop._nursery.cancel_scope.cancel)
    # The buffer and the queue each take `buffer_bytes`, and one record more of each task.
    assert BUFFER_BYTES / RECORD_BYTES < len(taken) <= 2 * BUFFER_BYTES / RECORD_BYTES + 10
    assert len(errors) == len(taken) + 10, "the callback of each cancelled send was called too"


def test_other_tasks_run_while_one_sends_without_end(address: str) -> None:
    async def use() -> None:
        stopped = asyncio.Event()

        async def send(producer: aio.Producer) -> None:
            while not stopped.is_set():
                await producer.send(topic, b"x" * 100, partition=0)

        topic = name_of("turns")
        async with aio.Producer(address) as producer:
            sending = asyncio.ensure_future(send(producer))
            await asyncio.sleep(0.01)
            stopped.set()
            await sending

    asyncio.run(use())


def cancelled_at_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel the task of the next call at the moment at which its outcome has arrived."""
    call = Caller.call

    async def cancelled(self: Caller, *args: Any) -> Any:
        await call(self, *args)
        monkeypatch.undo()
        raise asyncio.CancelledError

    monkeypatch.setattr(Caller, "call", cancelled)


Read = Callable[[aio.Consumer], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize(
    "read",
    [
        lambda consumer: consumer.poll(WAIT_MS),
        lambda consumer: anext(consumer),
        lambda consumer: consumer.fetch_batches(WAIT_MS),
    ],
    ids=["poll", "iteration", "batches"],
)
def test_records_that_a_cancelled_task_did_not_get_are_not_skipped(
    address: str, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    topic = name_of("cancelled")
    place = TopicPartition(topic, 0)

    async def use() -> None:
        async with aio.Producer(address) as producer:
            for number in range(5):
                await (await producer.send(topic, b"%d" % number, partition=0))
        async with aio.Consumer(address, group_id=topic) as consumer:
            consumer.assign([place])
            consumer.seek(place, 2)
            cancelled_at_arrival(monkeypatch)
            with pytest.raises(asyncio.CancelledError):
                await read(consumer)
            assert await consumer.position(place) == 2
            await consumer.commit()
            assert (await consumer.committed([place]))[place].offset == 2
            records: list[aio.ConsumerRecord] = []
            while len(records) < 3:
                records += await consumer.poll(WAIT_MS)
            assert [record.offset for record in records] == [2, 3, 4]

    asyncio.run(use())


def test_a_client_that_was_entered_at_the_moment_of_a_cancellation_is_left(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        producer = aio.Producer(address, transactional_id=name_of("id"))
        cancelled_at_arrival(monkeypatch)
        with pytest.raises(asyncio.CancelledError):
            async with producer:
                raise AssertionError
        stay = producer._hosted._stay
        assert stay is not None
        await Caller().call(producer._hosted.entered, stay._left.wait)

    asyncio.run(asyncio.wait_for(use(), WAIT_MS / 1000))


def test_a_transaction_that_began_at_the_moment_of_a_cancellation_is_aborted(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with aio.Producer(address, transactional_id=name_of("id")) as producer:
            transaction = producer.transaction()
            cancelled_at_arrival(monkeypatch)
            with pytest.raises(asyncio.CancelledError):
                async with transaction:
                    raise AssertionError
            assert transaction.state == "aborted"
            async with producer.transaction() as following:
                pass
            assert following.state == "committed"

    asyncio.run(use())


def test_a_cancelled_commit_goes_on_in_trio(address: str) -> None:
    """As with trio: the outcome is that of the broker, and the next transaction waits for it."""
    topic = name_of("commit")

    async def use() -> list[bytes | None]:
        async with aio.Producer(address, transactional_id=name_of("id")) as producer:
            async with producer.transaction() as transaction:
                await (await transaction.send(topic, b"x", partition=0))
                commit = asyncio.ensure_future(transaction.commit())
                await asyncio.sleep(0)
                commit.cancel()
                await asyncio.wait([commit])
            assert transaction.state in ("being committed", "committed", "aborted")
            async with producer.transaction() as following:
                await following.send(topic, b"y", partition=0)
        async with aio.Consumer(address) as consumer:
            consumer.assign([(topic, 0)])
            async with asyncio.timeout(WAIT_MS / 1000):
                values: list[bytes | None] = []
                while b"y" not in values:
                    values += [record.value for record in await consumer.poll(100)]
        return values

    assert asyncio.run(use()) in ([b"x", b"y"], [b"y"])


def test_the_loop_of_trio_has_no_task_left_of_what_was_cancelled(address: str) -> None:
    async def use() -> None:
        async with aio.Consumer(address) as consumer:
            consumer.assign([(name_of("tasks"), 0)])
            loop = consumer._hosted.entered
            before = loop.call_nowait(lambda: trio.lowlevel.current_statistics().tasks_living)
            polls = [asyncio.ensure_future(consumer.poll(WAIT_MS)) for _ in range(20)]
            await asyncio.sleep(0.05)
            for poll in polls:
                poll.cancel()
            await asyncio.wait(polls)
            after = loop.call_nowait(lambda: trio.lowlevel.current_statistics().tasks_living)
            assert after < before + len(polls)  # the consumer itself has begun to fetch

    asyncio.run(use())
