"""The calls of the asyncio client, against the same brokers: each ends, in a loop that goes on.

How long they take is tested of the trio client (`test_every_call_ends.py`); here a call that waits
for something that does not come waits for ever, as its loop's clock jumps over every time-out.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from odradek.client import OdradekError
from odradek.client.aio import Admin, Consumer, Producer, TransactionGroup, hosted
from odradek.client.blocking.loop import Loop
from odradek.client.producing import ending, transaction
from tests.client.blocking.test_same_names import OF_THE_LOOP
from tests.client.fake_broker import ADDRESS
from tests.client.hostile_broker import HostileBroker, Trouble
from tests.client.live import WAIT_MS
from tests.client.test_every_call_ends import CALLS, LONG_CALLS, MEMBER, PLACE, Call, Subject
from tests.fakes.program_clock import ProgramClock, WatchedEventLoop, loop_on

pytestmark = pytest.mark.slow


async def _begin_another(subject: Subject) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await subject.transaction.commit()
    async with subject.client.transaction():
        pass


OTHERS: Final[dict[str, Call]] = {
    "Transaction, begun while another ends": Call(_begin_another),
}
NOT_HERE: Final = {f"{kind}.{name}" for kind, names in OF_THE_LOOP.items() for name in names}


def of_asyncio(calls: dict[str, Call]) -> dict[str, Call]:
    return {name: OTHERS.get(name, call) for name, call in calls.items() if name not in NOT_HERE}


AIO_CALLS: Final = of_asyncio(CALLS)


@pytest.fixture
def event_loop() -> WatchedEventLoop:
    return WatchedEventLoop()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch, event_loop: WatchedEventLoop) -> Iterator[Loop]:
    """One whose time passes at once while the program waits, for the clients of one test."""
    with loop_on(ProgramClock(), event_loop.is_waiting) as loop:
        monkeypatch.setattr(hosted, "the_loop", lambda: loop)
        yield loop


@asynccontextmanager
async def entered(name: str, broker: HostileBroker) -> AsyncIterator[Subject]:
    connect = broker.connect
    if name.startswith("Admin"):
        async with Admin(ADDRESS, connect=connect) as admin:
            yield Subject(admin)
    elif name.startswith("Consumer"):
        async with Consumer(ADDRESS, connect=connect, group_id="g") as consumer:
            if "subscribed" in name:
                consumer.subscribe("t")
            else:
                consumer.assign([PLACE])
            yield Subject(consumer)
    elif name.startswith("Producer"):
        async with Producer(ADDRESS, connect=connect) as producer:
            await (await producer.send("t", b"stored", partition=0))
            await producer.send("t", b"under way", partition=0)
            yield Subject(producer)
    elif name.startswith("TransactionGroup"):
        async with TransactionGroup(ADDRESS, "g", connect=connect) as group:
            yield Subject(group)
    else:
        transactional_id = MEMBER.transactional_id if name == "Transaction.detach" else "a"
        async with (
            Producer(ADDRESS, connect=connect, transactional_id=transactional_id) as producer,
            producer.transaction() as transaction,
        ):
            await (await transaction.send("t", b"stored", partition=0))
            await transaction.send("t", b"under way", partition=0)
            yield Subject(producer, transaction)


def ends_in_time(
    use: Callable[[], Coroutine[Any, Any, None]],
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    def run() -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(use())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_MS / 1000)
    assert not thread.is_alive(), "it waits for ever"


@pytest.mark.parametrize(
    "trouble", [Trouble.SILENT, Trouble.LOADING], ids=lambda trouble: trouble.name
)
@pytest.mark.parametrize("name", AIO_CALLS)
def test_every_asyncio_call_ends_and_so_does_leaving(
    loop: Loop, event_loop: WatchedEventLoop, name: str, trouble: Trouble
) -> None:
    assert loop._nursery is not None
    broker = HostileBroker(loop._nursery)
    done: list[str] = []

    async def use() -> None:
        with suppress(OdradekError):
            async with entered(name, broker) as subject:
                loop.call_nowait(broker.turn, trouble)
                with suppress(OdradekError):
                    await AIO_CALLS[name].make(subject)
                done.append("called")
        done.append("left")

    ends_in_time(use, lambda: event_loop)
    assert done == ["called", "left"]


@pytest.mark.parametrize("name", of_asyncio(LONG_CALLS))
def test_every_asyncio_call_is_cancelled_at_once_and_so_is_its_task_in_trio(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The time is real: a call that is not cancelled waits for a minute, or an hour.

    Leaving a failed block does not wait: the broker that keeps silent does not abort anything.
    """
    for module in (ending, transaction):
        monkeypatch.setattr(module, "ABORT_GRACE_S", 0.01)
    loop = Loop()
    monkeypatch.setattr(hosted, "the_loop", lambda: loop)
    assert loop._nursery is not None
    broker = HostileBroker(loop._nursery)
    ends: list[type[BaseException] | None] = []

    async def use() -> None:
        with suppress(OdradekError, ZeroDivisionError):
            async with entered(name, broker) as subject:
                loop.call_nowait(broker.turn, Trouble.SILENT)
                task = asyncio.ensure_future(of_asyncio(LONG_CALLS)[name].make(subject))
                await asyncio.wait([task], timeout=0.05)
                task.cancel()
                await asyncio.wait([task])
                with suppress(OdradekError):
                    ends.append(asyncio.CancelledError if task.cancelled() else None)
                    if not task.cancelled():
                        task.result()
                while loop._waiting:  # noqa: ASYNC110 - a call that goes on has not been cancelled
                    await asyncio.sleep(0.01)
                raise ZeroDivisionError  # so that leaving does not wait for the records
        ends.append(None)

    ends_in_time(use)
    assert len(ends) == 2
    loop.run_soon(loop._nursery.cancel_scope.cancel)
